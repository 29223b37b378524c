"""What soft actor-critics share: a tanh-Gaussian policy and its price of entropy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.nn.distributions import TanhNormal
from manyhands.nn.networks import MLP
from manyhands.types import Box, Keys

LOG_STD = (-20.0, 2.0)


class Actor(eqx.Module):
    net: MLP  # observation -> means and log-deviations of the actions
    log_alpha: Float[Array, "*lead"]


def distribution(
    net: MLP,
    observations: Float[Array, "*lead state"],
    box: Box,
    bounds: tuple[float, float] = LOG_STD,
) -> TanhNormal:
    """pi(.|s), its log-deviations clipped to the bounds."""
    mean, log_std = jnp.split(net(observations), 2, axis=-1)
    return TanhNormal(mean, jnp.clip(log_std, *bounds), box.center, box.scale)


def surplus(
    log_prob: Float[Array, " batch"], box: Box, aim: Float[Array, ""] | float
) -> Float[Array, " batch"]:
    """-log pi(a~|s) - H, a constant to gradients: how much entropy there is too much.

    Args:
        aim: H for a box of half-width 1; in other boxes densities are other numbers.
    """
    entropy = aim + jnp.log(box.scale).sum()
    return jax.lax.stop_gradient(-log_prob - entropy)


# Acting


def model(state: Any, fitted: Any) -> MLP:
    """The actor's network."""
    del fitted
    return state.actor.tree().net


def act(
    net: MLP, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    """The mode."""
    del keys
    return distribution(net, observations, box).mode()
