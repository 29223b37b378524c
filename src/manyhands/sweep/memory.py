"""How much memory a fleet may use on this device."""

import contextlib
import math
import os
from pathlib import Path

import jax

# Limits of Linux' control groups, of their second version and of their first.
CONTAINER = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def available(jobs: int) -> float:
    """Bytes, of the device; where that is the host, for one of so many processes."""
    if jax.default_backend() == "cpu":
        return host_memory() / jobs
    stats = jax.devices()[0].memory_stats() or {}
    return float(stats.get("bytes_limit", math.inf))


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
