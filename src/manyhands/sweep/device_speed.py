"""How fast this device is, and how much memory a fleet may use on it."""

import contextlib
import math
import os
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from manyhands.runs import environment

# Fitted to thirty times measured on one NVIDIA H200, jax 0.11: ten learners with 8 to
# 66 products and 0.07 to 14 GFLOP, 1, 5 and 25 replicas (results/algos_speed.md).
GPU_PRODUCT = 6e-6  # seconds for each product and what is around it
GPU_RATE = 57e12  # FLOP/s beyond that
# Of `smoke` on two cores: what an update reaches of a plain product's rate.
CPU_SHARE = 0.5
CPU_PRODUCT = 10e-6

# Limits of Linux' control groups, of their second version and of their first.
CONTAINER = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


class Speed(NamedTuple):
    device: str
    memory: float  # bytes that a fleet may use
    rate: float  # FLOP/s
    product: float  # seconds
    together: bool  # replicas share the time that a product takes

    @staticmethod
    def here(jobs: int) -> "Speed":
        device = environment()["device"]
        if jax.default_backend() == "cpu":
            rate = CPU_SHARE * matmul_rate()
            memory = host_memory() / jobs
            return Speed(device, memory, rate, CPU_PRODUCT, together=False)
        stats = jax.devices()[0].memory_stats() or {}
        limit = float(stats.get("bytes_limit", math.inf))
        return Speed(device, limit, GPU_RATE, GPU_PRODUCT, together=True)


def host_memory() -> float:
    """Bytes of this machine, or of the container that we are in."""
    found = [math.inf]
    if hasattr(os, "sysconf"):  # not on Windows
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in CONTAINER:
        # "max" where there is no limit; no such file where there are no such groups.
        with contextlib.suppress(OSError, ValueError):
            found.append(float(int(path.read_text())))
    return min(found)


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
