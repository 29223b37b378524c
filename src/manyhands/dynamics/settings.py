"""How models of the dynamics are learnt: settings, and how their inputs are scaled."""

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from manyhands.errors import UserError

SMALLEST = 1e-12  # a deviation below it counts as 1

Kind = Literal["gaussian", "autoregressive"]
Judge = Literal["error", "likelihood"]


class Settings(eqx.Module):
    """Floats are traced: replicas that train together may differ in them."""

    kind: Kind = eqx.field(static=True)
    members: int = eqx.field(static=True)
    elites: int = eqx.field(static=True)  # how many are used, the best on held-out rows
    width: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)  # at most
    batch_size: int = eqx.field(static=True)  # of every member
    patience: int = eqx.field(static=True)  # epochs without improvement; 0: no end
    rate: float | Float[Array, "*replica"]
    # Members are judged on held-out rows by their squared error or their likelihood.
    judge: Judge = eqx.field(static=True, default="error")
    head_width: int = eqx.field(static=True, default=0)  # autoregressive only
    learn_ending: bool = eqx.field(static=True, default=False)
    changes: bool = eqx.field(static=True, default=True)  # predicted, or s' itself
    unit_rewards: bool = eqx.field(static=True, default=False)  # scaled to 0 ... 1


def check_elites(options: Any) -> None:
    if options.elites > options.members:
        raise UserError(
            f"elites: expected at most the {options.members} members, got "
            f"{options.elites}"
        )


class Inputs(eqx.Module):
    """Mean and deviation of the rows to learn from: [observation, action]."""

    center: Float[Array, "*member input"]
    scale: Float[Array, "*member input"]

    @staticmethod
    def of(observations: np.ndarray, actions: np.ndarray) -> "Inputs":
        rows = np.concatenate([observations, actions], axis=1)
        center = rows.mean(axis=0, dtype=np.float64)
        scale = rows.std(axis=0, dtype=np.float64)
        scale = np.where(scale < SMALLEST, 1, scale)
        return Inputs(*(jnp.asarray(x, jnp.float32) for x in (center, scale)))

    def standard(
        self,
        observations: Float[Array, "*lead state"],
        actions: Float[Array, "*lead action"],
    ) -> Float[Array, "*lead input"]:
        rows = jnp.concatenate([observations, actions], axis=-1)
        return (rows - self.center) / self.scale

    def state(
        self, observations: Float[Array, "*lead state"]
    ) -> Float[Array, "*lead state"]:
        size = observations.shape[-1]
        return (observations - self.center[:size]) / self.scale[:size]
