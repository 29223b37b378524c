"""What `train` trains: data sets with what goes with them, and replicas on them."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from manyhands.algos.evaluate import Body, Seat
from manyhands.behavior.problem import Scaling
from manyhands.data.trajectories import Trajectories
from manyhands.types import Box


class Place(NamedTuple):
    """A data set, and what goes with it."""

    data: Trajectories
    env: str | None
    scaling: Scaling  # of observations
    behaviors: float | None  # the mean normalised score of those who made it

    @property
    def box(self) -> Box:
        return Box(
            jnp.asarray(self.data.action_low), jnp.asarray(self.data.action_high)
        )

    @property
    def seat(self) -> Seat:
        """Where its policies are played."""
        assert self.env is not None
        return Seat(Body(self.box, self.scaling), self.env, self.behaviors)


class Case(NamedTuple):
    """What makes a replica: every data set with every k, options and seed."""

    place: int  # which one
    seed: int
    options: Any
    first: Any  # a `Behavior`, a `Policy` or None
