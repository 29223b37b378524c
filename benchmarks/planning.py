"""Milliseconds per step of the environment when MOPP plans for many of them at once.

HalfCheetah's sizes, the default networks and plans, on whatever device JAX finds; what
is planned with has not been taught anything, which takes the same time.
Usage: python benchmarks/planning.py [--environments 20] [--trajectories 100]
       [--horizon 4] [--proposals 10] [--width 500] [--steps 20]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from manyhands.algos import mopp
from manyhands.algos.algorithm import Given
from manyhands.behavior.problem import Scaling
from manyhands.dynamics import autoregressive
from manyhands.dynamics.fit import Dynamics
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.types import Box

STATES, ACTIONS = 17, 6


def planned_with(options: mopp.Options) -> mopp.Model:
    settings = Settings(
        kind="autoregressive",
        members=options.members,
        elites=options.elites,
        width=options.model_width,
        steps=1,
        batch_size=1,
        patience=0,
        rate=1e-3,
        head_width=options.head_width,
    )
    inputs = Inputs(jnp.zeros(STATES + ACTIONS), jnp.ones(STATES + ACTIONS))
    start = jax.jit(lambda key: autoregressive.start(key, STATES, ACTIONS, settings))
    members = autoregressive.members(start(jax.random.key(0)), inputs, settings)
    elites = jnp.arange(options.elites, dtype=jnp.int32)
    numbers = jnp.linspace(0, 1, 101), jnp.array([0.0, 1.0])
    dynamics = Dynamics(members, elites, *numbers, inputs, {})
    box = Box(-jnp.ones(ACTIONS), jnp.ones(ACTIONS))
    given = Given(STATES, ACTIONS, box, None, dynamics, Scaling.none(STATES))
    state = mopp.start(jax.random.key(1), given, options)
    return mopp.model(state, mopp.fitted(given, options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore
    parser.add_argument("--environments", type=int, default=20)
    parser.add_argument("--trajectories", type=int, default=100)
    parser.add_argument("--horizon", type=int, default=4)
    parser.add_argument("--proposals", type=int, default=10)
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    options = mopp.Options(
        trajectories=asked.trajectories,
        horizon=asked.horizon,
        proposals=asked.proposals,
        model_width=asked.width,
        behavior_width=asked.width,
        critic_width=asked.width,
        head_width=max(2, 2 * asked.width // 5),
        ending="never",
    )
    model = jax.block_until_ready(planned_with(options))
    box = Box(-jnp.ones(ACTIONS), jnp.ones(ACTIONS))
    act, many = jax.jit(mopp.act), asked.environments
    shape = asked.steps + 1, many
    rows = np.random.default_rng(0).normal(size=(*shape, STATES)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), shape)
    started = time.perf_counter()
    act(model, box, rows[0], keys[0]).block_until_ready()
    compiling = time.perf_counter() - started
    times = []
    for step in range(1, asked.steps + 1):
        started = time.perf_counter()
        # To the host and back, as an environment asks for it.
        np.asarray(act(model, box, rows[step], keys[step]))
        times.append(1000 * (time.perf_counter() - started))
    device = jax.devices()[0]
    print(
        f"{device.platform} {device.device_kind}: {many} environments, "
        f"{asked.trajectories} trajectories of {asked.horizon} steps, "
        f"{asked.proposals} proposals, width {asked.width}"
    )
    print(
        f"{np.median(times):.1f} ms per step for all environments (median of "
        f"{asked.steps}; {min(times):.1f} to {max(times):.1f}), "
        f"{np.median(times) / many:.2f} ms for each; compiled in {compiling:.1f} s"
    )


if __name__ == "__main__":
    main()
