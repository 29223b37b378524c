"""How fast is loading a D4RL file, next to reading the same arrays with h5py alone?

One million HalfCheetah-sized transitions in gzip HDF5, as D4RL stores them. Prints the
ratio of the times (best of a few, alternating) and the peak memory of a load over the
size of the arrays. Usage: python benchmarks/load.py [--transitions N]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

FIELDS = ("observations", "actions", "rewards", "next_observations")
FLAGS = ("terminals", "timeouts")


def make(path: Path, transitions: int) -> None:
    """A smooth random walk: compresses about as well as simulator states do."""
    random = np.random.default_rng(0)
    walk = random.normal(size=(transitions + 1, 17)).cumsum(axis=0) % 7.0
    states = walk.astype(np.float32)
    timeouts = np.arange(transitions) % 1000 == 999
    arrays = {
        "observations": states[:-1],
        "next_observations": states[1:],
        "actions": random.uniform(-1, 1, (transitions, 6)).astype(np.float32),
        "rewards": random.normal(size=transitions).astype(np.float32),
        "terminals": np.zeros(transitions, bool),
        "timeouts": timeouts,
    }
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array, compression="gzip")


def read_plainly(path: Path) -> None:
    with h5py.File(path) as file:
        for key in FIELDS + FLAGS:
            file[key][()]  # pyright: ignore[reportIndexIssue]


def load(path: Path) -> None:
    import manyhands

    manyhands.load(path)


def seconds(function, path: Path) -> float:
    started = time.perf_counter()
    function(path)
    return time.perf_counter() - started


def peak_bytes(function: str, path: Path) -> int:
    """How far it raises the peak memory of a fresh process (Linux)."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[2]); import load, manyhands;"
        "from pathlib import Path; from manyhands import datasets;"
        f"before = load.resident(); load.{function}(Path(sys.argv[1]));"
        "print(load.resident() - before)"
    )
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", program, str(path), here]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def resident() -> int:
    """Peak so far. (getrusage would report the parent's peak after a fork.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=1_000_000)
    transitions = parser.parse_args().transitions
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "halfcheetah-medium-v2.hdf5"
        make(path, transitions)
        size = transitions * (4 * (17 + 17 + 6 + 1) + 2)
        times = [(seconds(read_plainly, path), seconds(load, path)) for _ in range(4)][
            1:
        ]  # the first round warms caches and imports
        plain, ours = (min(column) for column in zip(*times))
        print(f"{transitions:,} transitions, arrays of {size / 1e6:.0f} MB")
        print(f"h5py alone {plain:.2f} s, manyhands.load {ours:.2f} s")
        print(f"ratio {ours / plain:.2f} (aim: at most 1.3)")
        if transitions >= 100_000:  # below that, memory is the interpreter's noise
            peak = peak_bytes("load", path)
            print(f"peak memory {peak / size:.2f} of the arrays (aim: at most 2)")


if __name__ == "__main__":
    main()
