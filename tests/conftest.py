"""Shared by all tests: shapes checked at run time, and where real data may lie."""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import install_import_hook

# In the packages written on JAX, annotated shapes are checked at every call. This must
# come before their first import.
PACKAGES = [
    f"manyhands.{name}"
    for name in ("nn", "envs", "behavior", "dynamics", "fleet", "zoo", "algos")
]
install_import_hook(PACKAGES, "beartype.beartype")

from manyhands import Trajectories  # noqa: E402

CACHE = "JAX_COMPILATION_CACHE_DIR"


def pytest_configure(config: pytest.Config) -> None:
    """The processes of one session share what they compile: most of their time."""
    if CACHE not in os.environ:
        os.environ[CACHE] = tempfile.mkdtemp(prefix="manyhands-tests-")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(CACHE)))


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
