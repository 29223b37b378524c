"""Networks as they might start, of numbers that nothing is compiled for."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyhands.nn.bundle import Bundle
from manyhands.nn.optimizer import Trained


def untaught(start: Callable[[Any], Any], seed: int = 0) -> Any:
    """The state that `start` makes of a key, with parameters of other numbers.

    No two networks are alike, nor is any bias zero; all but parameters is.
    """
    random = np.random.default_rng(seed)

    def draw(like: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.asarray(0.5 * random.normal(size=like.shape), like.dtype)

    def zeros(like: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.zeros(like.shape, like.dtype)

    state = jax.eval_shape(start, jax.random.key(0))

    def numbers(part: Any) -> Any:
        if isinstance(part, Trained):
            params, *moments = part
            return Trained(jax.tree.map(draw, params), *jax.tree.map(zeros, moments))
        return jax.tree.map(draw if isinstance(part, Bundle) else zeros, part)

    return type(state)(*map(numbers, state))
