"""Parameters stored for speed: large arrays as they are, all small ones in one vector.

A network has a few matrices and dozens of small arrays. An optimiser step over the
small ones, each on its own, launches a kernel for each, which costs more than what it
computes; joining the matrices too would copy them at every use.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.types import Pytree

LARGE = 2048  # numbers; copying fewer costs nothing next to a launch
ALIGN = 16  # a vector of odd length is read one number at a time


class Bundle(eqx.Module):
    """`tree()` gives the parameters; leading axes (replicas) lead every one of them."""

    large: tuple[Float[Array, "..."], ...]
    small: Float[Array, "*lead size"]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @staticmethod
    def of(tree: Pytree) -> "Bundle":
        leaves, structure = jax.tree.flatten(tree)
        large = tuple(leaf for leaf in leaves if leaf.size >= LARGE)
        small = [leaf.reshape(-1) for leaf in leaves if leaf.size < LARGE]
        shapes = tuple(leaf.shape for leaf in leaves)
        return Bundle(large, _join(small), structure, shapes)

    def tree(self) -> Pytree:
        lead, start, leaves = self.small.shape[:-1], 0, []
        large = iter(self.large)
        for shape in self.shapes:
            size = math.prod(shape)
            if size >= LARGE:
                leaves.append(next(large))
            else:
                part = self.small[..., start : start + size]
                leaves.append(part.reshape(*lead, *shape))
                start += size
        return jax.tree.unflatten(self.structure, leaves)

    def spread(self, scalars: Pytree) -> "Bundle":
        """One number for every array of the tree, in a bundle that broadcasts."""
        numbers = [jnp.asarray(x, jnp.float32) for x in jax.tree.leaves(scalars)]
        sizes = [math.prod(shape) for shape in self.shapes]
        large = tuple(x for x, size in zip(numbers, sizes) if size >= LARGE)
        small = [
            jnp.broadcast_to(x, size) for x, size in zip(numbers, sizes) if size < LARGE
        ]
        return Bundle(large, _join(small), self.structure, self.shapes)


def _join(parts: list[Array]) -> Float[Array, " size"]:
    size = sum(len(part) for part in parts)
    return jnp.concatenate([*parts, jnp.zeros(-size % ALIGN or ALIGN)])
