"""Networks as they might start, of numbers that nothing is compiled for."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def untaught(start: Callable[[Any], Any], seed: int = 0) -> Any:
    """What `start` makes of a key, with other numbers: small random ones, no counts."""
    random = np.random.default_rng(seed)

    def leaf(like: jax.ShapeDtypeStruct) -> jax.Array:
        numbers = 0.3 * random.normal(size=like.shape)
        counts = jnp.issubdtype(like.dtype, jnp.integer)
        return jnp.asarray(np.zeros(like.shape) if counts else numbers, like.dtype)

    return jax.tree.map(leaf, jax.eval_shape(start, jax.random.key(0)))
