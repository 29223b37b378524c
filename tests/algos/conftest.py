"""Small problems for learners."""

import jax.numpy as jnp
import numpy as np
import pytest

from manyhands import Trajectories
from manyhands.types import Batch, Box

LOW, HIGH = np.array([-1.0, -2.0]), np.array([1.0, 4.0])


@pytest.fixture(scope="session")
def box() -> Box:
    return Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))


@pytest.fixture(scope="session")
def batch() -> Batch:
    """Eight transitions, two of which are the last ones of their world."""
    random = np.random.default_rng(0)
    columns = dict(
        observations=random.normal(size=(8, 3)),
        actions=random.uniform(0.9 * LOW, 0.9 * HIGH, (8, 2)),
        rewards=random.normal(size=8),
        next_observations=random.normal(size=(8, 3)),
        terminals=np.arange(8) % 4 == 0,
    )
    floats = {name: jnp.asarray(x, jnp.float32) for name, x in columns.items()}
    return Batch(**floats, trajectory=jnp.arange(8) % 4)


@pytest.fixture(scope="session")
def two_arms() -> Trajectories:
    """Two sources in one state: one acts near -0.5 and is paid 0, the other near 0.5
    and is paid 1. Nobody has been in between. To be learnt with discount 0."""
    random = np.random.default_rng(0)
    trajectories, steps = 60, 10
    source = np.arange(trajectories) % 2
    arm = np.repeat(source, steps)
    rows = trajectories * steps
    return Trajectories.from_arrays(
        observations=1 + 0.01 * random.normal(size=(rows, 1)),
        actions=(arm - 0.5 + 0.05 * random.normal(size=rows))[:, None],
        rewards=arm,
        next_observations=np.ones((rows, 1)),
        terminals=np.zeros(rows, bool),
        timeouts=np.arange(rows) % steps == steps - 1,
        trajectory=np.repeat(np.arange(trajectories), steps),
        source=source,
        source_names=["poor", "rich"],
        action_bounds=(-1.0, 1.0),
        name="two-arms",
    )
