"""Shared by all tests: shapes checked at run time, and where real data may lie."""

from pathlib import Path

import numpy as np
import pytest
from jaxtyping import install_import_hook

# In the packages written on JAX, annotated shapes are checked at every call. This must
# come before their first import.
PACKAGES = ["manyhands.nn", "manyhands.envs", "manyhands.behavior", "manyhands.fleet"]
install_import_hook(PACKAGES, "beartype.beartype")

from manyhands import Trajectories  # noqa: E402

REAL_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def real_data() -> Path:
    """A folder with data sets that others made; not part of the project."""
    if not REAL_DATA.is_dir():
        pytest.skip("no folder shared/data beside the checkout")
    return REAL_DATA


@pytest.fixture
def small() -> Trajectories:
    """Four trajectories that end in every way, with all that a data set can have."""
    lengths = [3, 4, 1, 2]
    rows = sum(lengths)
    random = np.random.default_rng(0)
    ends = np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros(rows, bool), np.zeros(rows, bool)
    terminals[ends[[0, 2]]] = True
    timeouts[ends[1]] = True  # and the last one is cut off
    return Trajectories.from_arrays(
        observations=random.normal(size=(rows, 3)),
        actions=random.uniform(-1, 2, size=(rows, 2)),
        rewards=np.arange(rows),
        terminals=terminals,
        timeouts=timeouts,
        trajectory=np.repeat([7, 3, 9, 1], lengths),
        final_observations=random.normal(size=(4, 3)),
        source=[1, 0, 1, 2],
        source_names=["ann", "bob", "cy [test]"],
        log_probs=random.normal(size=rows),
        action_bounds=(-1.0, [2.0, 3.0]),
        env_id="Pendulum-v1",
        name="small",
    )
