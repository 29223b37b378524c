"""Adam as Keras does it, over whole trees, with a learning rate for every leaf."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from manyhands.types import Pytree

BETA1, BETA2 = 0.9, 0.999
EPSILON = 1e-7  # "epsilon hat": added before the bias correction, unlike optax's


class Adam(NamedTuple):
    steps: Int[Array, ""]
    mean: Pytree
    square: Pytree


def init(params: Pytree) -> Adam:
    # Not the same zeros twice: a fleet gives up its state, every array of it once.
    mean, square = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    return Adam(jnp.zeros((), jnp.int32), mean, square)


def update(
    params: Pytree, gradients: Pytree, state: Adam, rates: Pytree, decay: Pytree = 0.0
) -> tuple[Pytree, Adam]:
    """One step. `rates` has a learning rate for every leaf, or is one for all.

    `decay`, likewise, is the weight decay in units of the rate (AdamW's).
    """
    steps = state.steps + 1
    t = steps.astype(jnp.float32)
    correction = jnp.sqrt(1 - BETA2**t) / (1 - BETA1**t)
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state.mean, gradients)
    square = jax.tree.map(
        lambda v, g: BETA2 * v + (1 - BETA2) * g**2, state.square, gradients
    )

    def move(p, m, v, rate, decay):
        return p - rate * (correction * m / (jnp.sqrt(v) + EPSILON) + decay * p)

    params = jax.tree.map(
        move, params, mean, square, _for_all(rates, params), _for_all(decay, params)
    )
    return params, Adam(steps, mean, square)


def _for_all(value: Pytree, params: Pytree) -> Pytree:
    if jax.tree.structure(value) == jax.tree.structure(params):
        return value
    return jax.tree.map(lambda _: value, params)


def polyak(target: Pytree, online: Pytree, rate: Array | float) -> Pytree:
    """Targets move a share of the way to the online parameters."""
    return jax.tree.map(lambda t, p: t + rate * (p - t), target, online)
