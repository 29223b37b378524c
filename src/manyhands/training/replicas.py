"""Trees of arrays whose leaves lead with the replica: joining, taking, putting back."""

from typing import Any

import jax
import jax.numpy as jnp

from manyhands.types import Pytree


# Compiled as a whole: an operation of its own for every array takes much longer.
@jax.jit
def stack(trees: list[Pytree]) -> Pytree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def take(tree: Pytree, replica: int) -> Pytree:
    return jax.tree.map(lambda leaf: leaf[replica], tree)


@jax.jit
def pick(tree: Pytree, which: Any) -> Pytree:
    """One or some of the leading axis, in one program: for trees of many arrays."""
    return jax.tree.map(lambda leaf: leaf[which], tree)


def put(tree: Pytree, replica: int, one: Pytree) -> Pytree:
    return jax.tree.map(lambda leaf, new: leaf.at[replica].set(new), tree, one)
