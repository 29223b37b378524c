"""What it brings that kernels which do not need each other run at the same time.

Microseconds per update of all replicas together on a GPU, one kernel after another and
as `fleet` has it, and whether both end with the same bits. It fails where they do not.
Usage: python benchmarks/at_once.py [--algos lbrac_v cql ...] [--replicas 1 5 25]
"""

import argparse
import inspect
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from train import prepare, rows_of

from manyhands import fleet

ROWS = 100_000


def trained(program, prepared, updates: int) -> tuple[list[np.ndarray], float]:
    """The state after three times so many updates, and seconds of the fastest."""
    update, batch_size, state, group = prepared
    data, best = rows_of(ROWS), float("inf")
    state = jax.tree.map(jnp.copy, state)
    for part in range(4):
        first = jnp.asarray(part * updates, jnp.int32)
        started = time.perf_counter()
        state, _ = program(
            update,
            state,
            group,
            data.rows,
            first,
            updates,
            batch_size,
            (data.observation_size, data.action_size),
        )
        jax.block_until_ready(state)
        if part:  # the first one compiles
            best = min(best, time.perf_counter() - started)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)], best / updates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algos", nargs="+", default=["lbrac_v"])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 5, 25])
    parser.add_argument("--updates", type=int, default=300)
    args = parser.parse_args()
    in_order = jax.jit(
        inspect.unwrap(fleet._together),
        static_argnames=fleet.STATIC,
        donate_argnames="state",
    )
    device, same = jax.devices()[0], True
    print(f"{device.platform} {device.device_kind}, jax {jax.__version__}")
    for name in args.algos:
        for many in args.replicas:
            prepared = prepare(name, many, ROWS)
            (one, before), (other, now) = (
                trained(program, prepared, args.updates)
                for program in (in_order, fleet._together)
            )
            equal = all(map(partial(np.array_equal, equal_nan=True), one, other))
            same &= equal
            print(
                f"{name:16}{many:4} replicas{before * 1e6:8.0f} us in order"
                f"{now * 1e6:8.0f} at once, {'the same' if equal else 'OTHER'} bits",
                flush=True,
            )
    sys.exit(not same)


if __name__ == "__main__":
    main()
