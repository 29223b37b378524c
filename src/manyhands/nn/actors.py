"""Deterministic policies on a box, and the start that PyTorch gives to networks."""

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.nn.networks import MLP, Dense
from manyhands.types import Box, Key


def uniform_mlp(
    key: Key,
    sizes: Sequence[int],
    hidden_bias: float | None = None,
    last_bound: float | None = None,
) -> MLP:
    """Weights and biases uniform within 1 / sqrt(inputs), as PyTorch starts them.

    Args:
        hidden_bias: what the biases before the last layer are instead.
        last_bound: a bound for all of the last layer instead.
    """
    layers, last = [], len(sizes) - 2
    for number, (inputs, outputs) in enumerate(pairwise(sizes)):
        bound = inputs**-0.5
        if number == last and last_bound is not None:
            bound = last_bound
        key_w, key_b = jax.random.split(jax.random.fold_in(key, number))
        w = jax.random.uniform(key_w, (inputs, outputs), minval=-bound, maxval=bound)
        b = jax.random.uniform(key_b, (outputs,), minval=-bound, maxval=bound)
        if number != last and hidden_bias is not None:
            b = jnp.full(outputs, hidden_bias)
        layers.append(Dense(w, b))
    return MLP(tuple(layers))


def action_of(
    net: MLP, observations: Float[Array, "*lead state"], box: Box
) -> Float[Array, "*lead action"]:
    """pi(s): the network's outputs squashed into the box."""
    return box.center + box.scale * jnp.tanh(net(observations))


def blurred(
    actions: Float[Array, "batch action"],
    noise: Float[Array, "batch action"],
    spread: Float[Array, ""] | float,
    bound: Float[Array, ""] | float,
    box: Box,
) -> Float[Array, "batch action"]:
    """Actions with bounded noise: TD3's target policy smoothing.

    Args:
        noise: standard normal numbers.
        spread: its deviation, in units of half the box.
        bound: the largest noise, likewise.
    """
    moved = actions + box.scale * jnp.clip(spread * noise, -bound, bound)
    return jnp.clip(moved, box.low, box.high)


def distance(
    one: Float[Array, "batch action"], other: Float[Array, "batch action"], box: Box
) -> Float[Array, " batch"]:
    """Squared, summed over the action, in units of half the box.

    So penalties weigh the same whatever the bounds are.
    """
    return jnp.sum(((one - other) / box.scale) ** 2, axis=-1)
