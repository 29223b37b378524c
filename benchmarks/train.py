"""Microseconds per update of the policy learners, for many replicas at once.

HalfCheetah's sizes, each algorithm's own batch and networks, synthetic data. By default
LBRAC-v, its default and as printed; `--algos all` for every one that learns from the
data's rows alone (MOPO and MOPP need dynamics).
Usage: python benchmarks/train.py [--algos lbrac_v:paper bcq:default:vae_width=752 ...]
       [--replicas 1 5 25]
"""

import argparse
import time
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyhands import fleet
from manyhands.algos.algorithm import Given
from manyhands.algos.registry import ALGORITHMS, algorithm
from manyhands.algos.starting_sets import Start
from manyhands.behavior import options as fit_options
from manyhands.behavior import vq_learning
from manyhands.behavior.methods import METHODS
from manyhands.types import Box, Pytree

STATES, ACTIONS, CODES, TRAJECTORIES = 17, 6, 10, 1000
LEFT_OUT = ("clone", "mopo", "mopp")


def rows_of(rows: int) -> fleet.Packed:
    columns = 2 * STATES + ACTIONS + 3 + ACTIONS
    data = jax.random.uniform(
        jax.random.key(0), (rows, columns), minval=-0.9, maxval=0.9
    )
    after = 2 * STATES + ACTIONS + 1  # the terminals, then the trajectories
    data = data.at[:, after].set(0.0)
    data = data.at[:, after + 1].set(jnp.arange(rows) // (rows // TRAJECTORIES))
    return fleet.Packed(data, STATES, ACTIONS)


def begun(name: str, options, seed: int) -> Given:
    """What an algorithm starts from, not fitted to anything."""
    learner, key = algorithm(name), jax.random.key(seed)
    box = Box(-jnp.ones(ACTIONS), jnp.ones(ACTIONS))
    empty = Given(STATES, ACTIONS, box)
    need = learner.behavior_need
    first = need.learner if need else None
    if first == "vq":
        state = vq_learning.init(key, STATES, ACTIONS, CODES, TRAJECTORIES)
        there = np.ones(CODES, bool), TRAJECTORIES
        start = Start(state.policy.tree(), vq_learning.values(state), 0, 1.0, *there)
        return empty._replace(behavior=start)
    if first in METHODS:
        method = METHODS[first]
        sizes = STATES, ACTIONS, 1, TRAJECTORIES
        state = method.init(key, *sizes, fit_options.Options())
        return empty._replace(behavior=method.model(state))
    if first is not None:
        clone = algorithm(first)
        chosen = next(iter(clone.presets.values()))
        state = clone.start(key, empty, chosen)
        model = clone.model(state, clone.fitted(empty, chosen))
        return empty._replace(behavior=model)
    return empty


def stack(trees: list[Pytree]) -> Pytree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


class Prepared(NamedTuple):
    update: fleet.Update
    batch_size: int
    state: Pytree
    replicas: fleet.Replicas


def prepare(asked: str, replicas: int, rows: int) -> Prepared:
    """What trains together.

    Args:
        asked: NAME[:PRESET[:OPTION=NUMBER,...]]
    """
    given = asked.split(":")
    name, preset, changes = given + ["default", ""][len(given) - 1 :]
    learner = algorithm(name)
    pairs = [change.split("=") for change in changes.split(",") if change]
    options = replace(
        learner.presets[preset], **{option: int(number) for option, number in pairs}
    )
    starts = [begun(name, options, seed) for seed in range(replicas)]
    state = stack(
        [learner.start(jax.random.key(s), g, options) for s, g in enumerate(starts)]
    )
    zeros = jnp.zeros(replicas, jnp.int32)
    group = fleet.Replicas(
        jnp.arange(replicas, dtype=jnp.uint32),
        zeros,
        zeros + rows,
        stack([jax.tree.map(jnp.float32, options)] * replicas),
        stack([learner.fitted(g, options) for g in starts]),
    )
    return Prepared(learner.update, options.batch_size, state, group)


def measure(asked: str, replicas: int, updates: int, rows: int) -> float:
    """Seconds per update of all replicas together; the best of three."""
    update, batch_size, state, group = prepare(asked, replicas, rows)
    data, best = rows_of(rows), float("inf")
    for trial in range(4):
        started = time.perf_counter()
        state, _ = fleet.advance(
            update, state, group, data, trial * updates, updates, batch_size
        )
        jax.block_until_ready(state)
        if trial:  # the first one compiles
            best = min(best, time.perf_counter() - started)
    return best / updates


def main() -> None:
    on_cpu = jax.default_backend() == "cpu"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algos", nargs="+", default=["lbrac_v", "lbrac_v:paper"])
    parser.add_argument("--replicas", type=int, nargs="+", default=None)
    parser.add_argument("--updates", type=int, default=50 if on_cpu else 1000)
    parser.add_argument("--rows", type=int, default=100_000 if on_cpu else 1_000_000)
    args = parser.parse_args()
    names = args.algos
    if names == ["all"]:
        names = [name for name in ALGORITHMS if name not in LEFT_OUT]
    device = jax.devices()[0]
    print(f"{device.platform} {device.device_kind}, jax {jax.__version__}")
    many = args.replicas or ([1] if on_cpu else [1, 5, 25])
    print("us/update of", *[f"{n:>8} replicas" for n in many])
    for name in names:
        times = [measure(name, n, args.updates, args.rows) for n in many]
        print(f"{name:16}", *[f"{t * 1e6:17.0f}" for t in times], flush=True)


if __name__ == "__main__":
    main()
