"""What models of the dynamics say, and what ensembles of them say together.

A member of an ensemble is a module with `__call__(observations, actions)` that returns
a `Prediction` of the reward and the change of the observation. An ensemble is a member
whose arrays lead with a member axis.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.types import Batch


class Prediction(NamedTuple):
    """Independent Gaussians for [reward, change of the observation]."""

    mean: Float[Array, "*lead target"]
    log_std: Float[Array, "*lead target"]

    def log_prob(self, targets: Float[Array, "*lead target"]) -> Float[Array, "*lead"]:
        standard = (targets - self.mean) * jnp.exp(-self.log_std)
        normal = -0.5 * (standard**2 + jnp.log(2 * jnp.pi)) - self.log_std
        return normal.sum(axis=-1)


def targets_of(batch: Batch) -> Float[Array, "*lead target"]:
    change = batch.next_observations - batch.observations
    return jnp.concatenate([batch.rewards[..., None], change], axis=-1)


def predict_all(
    members: Any,
    observations: Float[Array, "row state"],
    actions: Float[Array, "row action"],
) -> Prediction:
    """[member, row, target] of an ensemble."""
    return jax.vmap(lambda member: member(observations, actions))(members)


def disagreement(means: Float[Array, "member row target"]) -> Float[Array, " row"]:
    """The longest distance between two members' means."""
    apart = means[:, None] - means[None, :]
    return jnp.sqrt(jnp.sum(apart**2, axis=-1)).max(axis=(0, 1))


def widest(log_std: Float[Array, "member row target"]) -> Float[Array, " row"]:
    """max_i |sigma_i|: the length of the deviations of the least certain member."""
    return jnp.sqrt(jnp.sum(jnp.exp(2 * log_std), axis=-1)).max(axis=0)
