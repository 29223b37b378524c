"""The vocabulary that layers share."""

from typing import Any, NamedTuple

import jaxtyping
from jaxtyping import Array, Float, Int, PRNGKeyArray

Key = PRNGKeyArray
Keys = jaxtyping.Key[Array, " row"]
Metrics = dict[str, Float[Array, ""]]
Pytree = Any  # of arrays


class Batch(NamedTuple):
    """Transitions drawn from a data set."""

    observations: Float[Array, "batch state"]
    actions: Float[Array, "batch action"]
    rewards: Float[Array, " batch"]
    next_observations: Float[Array, "batch state"]
    terminals: Float[Array, " batch"]  # 1 where the world ended, else 0
    trajectory: Int[Array, " batch"]
    # What was done next; not a number where a trajectory ends. None: nobody recorded.
    next_actions: Float[Array, "batch action"] | None = None


class Box(NamedTuple):
    """Where actions live."""

    low: Float[Array, " action"]
    high: Float[Array, " action"]

    @property
    def center(self) -> Float[Array, " action"]:
        return (self.high + self.low) / 2

    @property
    def scale(self) -> Float[Array, " action"]:
        return (self.high - self.low) / 2
