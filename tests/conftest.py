"""Shared by all tests: shapes checked at run time, and where real data may lie."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from jaxtyping import install_import_hook

# In the packages written on JAX, annotated shapes are checked at every call. This must
# come before their first import.
PACKAGES = [
    f"manyhands.{name}"
    for name in "nn envs behavior dynamics fleet training agents algos".split()
]
PACKAGES += ["zoo"]  # of tools/
install_import_hook(PACKAGES, "beartype.beartype")

from manyhands import Trajectories  # noqa: E402

CACHE = "JAX_COMPILATION_CACHE_DIR"


def pytest_configure(config: pytest.Config) -> None:
    """The processes of one session share what they compile: most of their time.

    Small programs too, of which there are many: to keep one costs next to nothing.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a shell. Programs that tests start and interrupt would
        # inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    if CACHE not in os.environ:
        os.environ[CACHE] = tempfile.mkdtemp(prefix="manyhands-tests-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(CACHE)))


# Files that take longest, in this order before all others: what begins last must be
# short, or one process is at work on it while the others have ended. The report's
# contents: so that the file that shows it in a browser finds its programs compiled.
LONGEST = """
    contracts/test_algorithms algos/test_lbrac_learning behavior/test_fork_sources
    algos/test_several_data_sets sweep/test_benchmark cli/test_cli
    behavior/test_many_sources
    behavior/test_interrupted behavior/test_estimate contracts/test_estimators
    algos/test_cql_learning test_docs test_examples sweep/test_ray_engine
    sweep/test_estimates_of_fleets tools/zoo/test_train cli/test_train_command
    report/test_report_contents
""".split()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here, last = Path(__file__).parent, len(LONGEST)
    place = {here / f"{name}.py": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, last))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Programs that run for moments are compiled with few optimizations: twice as fast.

    Not those of tests marked `learns` or `slow`. Here and in processes that the test
    starts.
    """
    quick = not any(map(item.get_closest_marker, ("learns", "slow")))
    jax.config.update("jax_disable_most_optimizations", quick)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quick))


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
