"""Adam as Keras does it, on bundled parameters."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from manyhands.nn.bundle import Bundle
from manyhands.types import Pytree

BETA1, BETA2 = 0.9, 0.999
EPSILON = 1e-7  # "epsilon hat": added before the bias correction, unlike optax's


class Adam(NamedTuple):
    steps: Int[Array, "*lead"]
    mean: Bundle
    square: Bundle


def init(params: Bundle) -> Adam:
    # Not the same zeros twice: a fleet gives up its state, every array of it once.
    mean, square = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    return Adam(jnp.zeros((), jnp.int32), mean, square)


def update(
    params: Bundle, gradient: Pytree, state: Adam, rates: Pytree, decay: Pytree
) -> tuple[Bundle, Adam]:
    """One step.

    Args:
        gradient: a tree like `params.tree()`.
        rates: a learning rate for every leaf of it.
        decay: likewise, the weight decay in units of the rate (AdamW's).
    """
    steps = state.steps + 1
    t = steps.astype(jnp.float32)
    correction = jnp.sqrt(1 - BETA2**t) / (1 - BETA1**t)
    g = Bundle.of(gradient)
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state.mean, g)
    square = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g**2, state.square, g)

    def move(p, m, v, rate, decay):
        return p - rate * (correction * m / (jnp.sqrt(v) + EPSILON) + decay * p)

    params = jax.tree.map(
        move, params, mean, square, params.spread(rates), params.spread(decay)
    )
    return params, Adam(steps, mean, square)


def step(
    params: Bundle, gradient: Pytree, state: Adam, rate: Array | float
) -> tuple[Bundle, Adam]:
    """One step with one rate for all, and no decay."""
    rates, decay = for_all(rate, gradient), for_all(0.0, gradient)
    return update(params, gradient, state, rates, decay)


def for_all(value: Array | float, tree: Pytree) -> Pytree:
    """The same number for every leaf."""
    return jax.tree.map(lambda _: value, tree)


def for_kernels(value: Array | float, tree: Pytree) -> Pytree:
    """A number for every matrix, and 0 for the rest: a bias should not decay."""
    return jax.tree.map(lambda leaf: value if leaf.ndim > 1 else 0.0, tree)


def polyak(target: Bundle, online: Bundle, rate: Float[Array, ""] | float) -> Bundle:
    """Targets move a share of the way to the online parameters."""
    return jax.tree.map(lambda t, p: t + rate * (p - t), target, online)
