"""Updates per second of every algorithm: beside d3rlpy on a CPU, for replicas on a GPU.

HalfCheetah's sizes, each algorithm's own batch and networks, synthetic data; both
libraries draw their batches as they do in training. d3rlpy needs an environment of its
own (it pins an old gymnasium): name its interpreter. The two take turns, best of three.
GFLOP are those of one update's matrix products, counted as though policies that learn
at every other update learnt at each.
Usage: python benchmarks/algos.py [--d3rlpy PYTHON] [--algos bc cql ...]
"""

import argparse
import math
import os
import subprocess
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from train import LEFT_OUT, begun, measure, rows_of

from manyhands.algos.registry import ALGORITHMS, algorithm

THEIRS = ["bc", "cql", "bcq", "plas", "td3_bc", "iql", "rebrac"]


def of_d3rlpy(python: str, name: str, updates: int) -> float:
    script = Path(__file__).with_name("algos_d3rlpy.py")
    command = [python, str(script), name, str(updates)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def flops(name: str) -> float:
    learner = algorithm(name)
    options = learner.presets["default"]
    start, key = begun(name, options, 0), jax.random.key(0)
    state = learner.start(key, start, options)
    batch = rows_of(options.batch_size).batch(jax.numpy.arange(options.batch_size))
    arguments = state, batch, key, options, learner.fitted(start, options)
    counted = jax.jit(learner.update).lower(*arguments).cost_analysis() or {}
    return counted["flops"]


def matmul_rate() -> float:
    """FLOP/s of a product as learners have them, the best of some."""
    rows, width, times = 256, 300, 100
    matrix = jnp.full((width, width), 1 / width)

    @jax.jit
    def several(x):
        return jax.lax.fori_loop(0, times, lambda _, x: x @ matrix, x)

    x, best = jnp.ones((rows, width)), math.inf
    several(x).block_until_ready()
    for _ in range(5):
        started = time.perf_counter()
        several(x).block_until_ready()
        best = min(best, time.perf_counter() - started)
    return 2 * rows * width * width * times / best


def main() -> None:
    on_cpu = jax.default_backend() == "cpu"
    parser = argparse.ArgumentParser(description=__doc__)
    every = [name for name in ALGORITHMS if name not in LEFT_OUT]
    parser.add_argument("--algos", nargs="+", default=every)
    parser.add_argument("--d3rlpy", help="an interpreter that has it")
    parser.add_argument("--updates", type=int, default=100 if on_cpu else 1000)
    parser.add_argument("--replicas", type=int, nargs="+", default=None)
    args = parser.parse_args()
    device = jax.devices()[0]
    rate = matmul_rate() / 1e9
    print(f"{device.platform} {device.device_kind}, {os.cpu_count()} cores")
    print(f"a product of 256 x 300 x 300 reaches {rate:,.0f} GFLOP/s")
    many = args.replicas or ([1] if on_cpu else [1, 5, 25])
    rows = 100_000 if on_cpu else 1_000_000
    heads = ["GFLOP", *(f"{n} replicas" for n in many), "GFLOP/s"] + (
        ["d3rlpy", "ratio"] if args.d3rlpy else []
    )
    print(f"| updates/s | {' | '.join(heads)} |")
    print("|---|" + "---:|" * len(heads))
    for name in args.algos:
        ours = [n / measure(name, n, args.updates, rows) for n in many]
        work = flops(name) / 1e9
        cells = [f"{work:.2f}", *(f"{rate:,.0f}" for rate in ours)]
        cells.append(f"{work * max(ours):,.0f}")
        if args.d3rlpy:
            cells += ["", ""]
            if name in THEIRS:
                theirs = of_d3rlpy(args.d3rlpy, name, args.updates)
                cells[-2:] = [f"{theirs:,.0f}", f"{ours[0] / theirs:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
