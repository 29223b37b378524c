"""Rollouts in a model, always under way, and the buffer that their steps go to.

At every update some rollouts start and all that are under way make one step: a rollout
of length h is done h updates later. So one batch of predictions per update serves all
ages, the policy is never older than an update, and all of it is arrays in the state of
the learner: nothing happens between the updates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from manyhands.types import Batch, Key


class Underway(NamedTuple):
    """Rollouts by the number of steps that they have made, less one."""

    observations: Float[Array, "age row state"]
    alive: Bool[Array, "age row"]

    @staticmethod
    def none(horizon: int, rows: int, states: int) -> "Underway":
        shape = horizon - 1, rows
        return Underway(jnp.zeros((*shape, states)), jnp.zeros(shape, bool))

    def joined(
        self, starts: Float[Array, "row state"]
    ) -> tuple[Float[Array, "many state"], Bool[Array, " many"]]:
        """Those that start now come first; whether each goes on."""
        observations = jnp.concatenate([starts[None], self.observations])
        begun = jnp.ones((1, len(starts)), bool)
        alive = jnp.concatenate([begun, self.alive])
        return observations.reshape(-1, starts.shape[-1]), alive.reshape(-1)

    def moved(
        self, observations: Float[Array, "many state"], alive: Bool[Array, " many"]
    ) -> "Underway":
        """After a step of all that were `joined`: the oldest are done."""
        ages, rows = self.alive.shape
        shape = ages + 1, rows
        return Underway(
            observations.reshape(*shape, -1)[:-1], alive.reshape(shape)[:-1]
        )


class Buffer(NamedTuple):
    """Transitions in a ring: the oldest make room."""

    rows: Float[Array, "capacity column"]
    place: Int[Array, ""]  # where the next one goes
    filled: Int[Array, ""]

    @staticmethod
    def empty(capacity: int, states: int, actions: int) -> "Buffer":
        # Not the same zero twice: a fleet gives its state up.
        columns = 2 * states + actions + 2
        place, filled = (jnp.zeros((), jnp.int32) for _ in range(2))
        return Buffer(jnp.zeros((capacity, columns)), place, filled)

    def insert(self, batch: Batch, keep: Bool[Array, " many"]) -> "Buffer":
        """Those of the transitions that are to be kept."""
        columns = [
            batch.observations,
            batch.actions,
            batch.rewards[:, None],
            batch.next_observations,
            batch.terminals[:, None],
        ]
        capacity = len(self.rows)
        assert len(keep) <= capacity
        place = (self.place + jnp.cumsum(keep) - 1) % capacity
        # What is not kept is written beyond the end: nowhere.
        place = jnp.where(keep, place, capacity)
        rows = self.rows.at[place].set(jnp.concatenate(columns, axis=1), mode="drop")
        many = keep.sum()
        return Buffer(
            rows,
            (self.place + many) % capacity,
            jnp.minimum(self.filled + many, capacity),
        )

    def sample(self, key: Key, many: int, states: int, actions: int) -> Batch:
        """Drawn with replacement; at least one must be there."""
        index = jax.random.randint(key, (many,), 0, self.filled)
        ends = [states, states + actions, states + actions + 1]
        ends.append(ends[-1] + states)
        s, a, r, following, terminal = jnp.split(self.rows[index], ends, axis=1)
        nobody = jnp.zeros(many, jnp.int32)
        return Batch(s, a, r[:, 0], following, terminal[:, 0], nobody)
