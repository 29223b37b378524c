"""A linear world with known noise."""

from typing import NamedTuple

import numpy as np
import pytest

from manyhands import Trajectories

CHANGE = np.array([[-0.2, 0.1, 0.0], [0.0, -0.3, 0.2]])  # of (s, a) -> s' - s
PRICE = np.array([0.5, -0.4, 0.3])
# Of the reward and of both observations; the last one's grows with the action.
NOISE = np.array([0.3, 0.1, 0.05])


class Linear(NamedTuple):
    data: Trajectories

    @staticmethod
    def mean(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """[row, target] of (r, s' - s)."""
        inputs = np.concatenate([states, actions], axis=1)
        return np.concatenate([(inputs @ PRICE)[:, None], inputs @ CHANGE.T], axis=1)

    @staticmethod
    def deviation(actions: np.ndarray) -> np.ndarray:
        found = np.tile(NOISE, (len(actions), 1))
        found[:, 2] *= 1 + 3 * np.abs(actions[:, 0])
        return found


@pytest.fixture(scope="session")
def linear() -> Linear:
    """Rows that do not depend on each other; every tenth trajectory is terminal."""
    random = np.random.default_rng(0)
    rows, steps = 6000, 10
    states, actions = random.normal(size=(rows, 2)), random.uniform(-1, 1, (rows, 1))
    said = Linear.mean(states, actions)
    said = said + Linear.deviation(actions) * random.normal(size=said.shape)
    ends = np.arange(rows) % steps == steps - 1
    terminals = ends & (np.arange(rows) % (10 * steps) == 10 * steps - 1)
    data = Trajectories.from_arrays(
        observations=states,
        actions=actions,
        rewards=said[:, 0],
        next_observations=states + said[:, 1:],
        terminals=terminals,
        timeouts=ends & ~terminals,
        trajectory=np.arange(rows) // steps,
        action_bounds=(-1.0, 1.0),
        name="linear",
    )
    return Linear(data)
