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
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Adam(jnp.zeros((), jnp.int32), zeros, zeros)


def update(
    params: Pytree, gradients: Pytree, state: Adam, rates: Pytree
) -> tuple[Pytree, Adam]:
    """One step. `rates` has a learning rate for every leaf, or is one for all."""
    steps = state.steps + 1
    t = steps.astype(jnp.float32)
    correction = jnp.sqrt(1 - BETA2**t) / (1 - BETA1**t)
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state.mean, gradients)
    square = jax.tree.map(
        lambda v, g: BETA2 * v + (1 - BETA2) * g**2, state.square, gradients
    )
    if jax.tree.structure(rates) != jax.tree.structure(params):
        rates = jax.tree.map(lambda _: rates, params)
    params = jax.tree.map(
        lambda p, m, v, rate: p - rate * correction * m / (jnp.sqrt(v) + EPSILON),
        params,
        mean,
        square,
        rates,
    )
    return params, Adam(steps, mean, square)


def polyak(target: Pytree, online: Pytree, rate: Array | float) -> Pytree:
    """Targets move a share of the way to the online parameters."""
    return jax.tree.map(lambda t, p: t + rate * (p - t), target, online)
