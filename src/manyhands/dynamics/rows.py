"""A data set made ready for models of the dynamics: some rows are held out."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from manyhands.data.trajectories import Trajectories
from manyhands.dynamics.settings import Inputs
from manyhands.errors import UserError
from manyhands.fleet import Packed
from manyhands.types import Batch

SHARE_HELD, MOST_HELD = 0.2, 1000


@dataclass(frozen=True)
class Rows:
    packed: Packed  # to learn from
    held: Batch
    inputs: Inputs
    rewards: tuple[float, float]  # the lowest and the highest
    low: np.ndarray  # bounds of actions
    high: np.ndarray

    def some(self, many: int, seed: int = 0) -> Batch:
        """Rows to learn from, drawn without repetition."""
        rows = self.packed.rows.shape[0]
        index = np.random.default_rng(seed).permutation(rows)[:many]
        return self.packed.batch(jnp.asarray(index))


def prepare(
    data: Trajectories, scale: Callable[[np.ndarray], np.ndarray], unit_rewards: bool
) -> Rows:
    """Only rows whose next observation is known, whether they are terminal or not."""
    data = data.renumbered().next_known()
    if data.transitions < 10:
        raise UserError(
            "data: expected at least 10 transitions with a next observation to learn "
            f"the dynamics from, got {data.transitions}"
        )
    lowest, highest = float(data.rewards.min()), float(data.rewards.max())
    rewards = data.rewards
    if unit_rewards:
        rewards = ((rewards - lowest) / reward_range(lowest, highest)).astype(
            np.float32
        )
    data = replace(
        data,
        observations=scale(data.observations),
        next_observations=scale(data.next_observations),
        rewards=rewards,
    )
    everything = Packed.of(data)
    many = min(MOST_HELD, int(SHARE_HELD * data.transitions))
    order = np.random.default_rng(0).permutation(data.transitions)
    held, kept = np.sort(order[:many]), np.sort(order[many:])
    return Rows(
        packed=everything._replace(rows=everything.rows[kept]),
        held=everything.batch(jnp.asarray(held)),
        inputs=Inputs.of(data.observations[kept], data.actions[kept]),
        rewards=(lowest, highest),
        low=np.asarray(data.action_low),
        high=np.asarray(data.action_high),
    )


def reward_range(lowest: float, highest: float) -> float:
    """What differences of rewards are divided by; 1 where all are the same."""
    return highest - lowest if highest > lowest else 1.0
