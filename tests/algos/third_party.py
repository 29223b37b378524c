"""Two algorithms as another package would write them: one needs a behavior set, one
needs dynamics. See `test_third_party.py`."""

from __future__ import annotations

import jax

from manyhands.algos import bc
from manyhands.algos.algorithm import Algorithm, Common, Given, Need
from manyhands.options import COUNT, POSITIVE, option, options, traced


@options
class Options(Common):
    width: int = option(8, "Hidden units.", COUNT)
    behavior_steps: int = option(20, "Updates of what is trained before.", COUNT)
    policy_rate: float = traced(5e-4, "Learning rate.", POSITIVE)


def start_from_set(key, given: Given, options: Options) -> bc.State:
    """Clones; the best behavior's number shifts the seed, so that the set matters."""
    key = jax.random.fold_in(key, given.behavior.best)
    return bc.start(key, given, options)  # pyright: ignore[reportArgumentType]


def start_from_dynamics(key, given: Given, options: Options) -> bc.State:
    key = jax.random.fold_in(key, given.dynamics.elites[0])
    return bc.start(key, given, options)  # pyright: ignore[reportArgumentType]


def set_options(o: Options) -> dict:
    return {"steps": o.behavior_steps, "policy_width": 8, "batch_size": 16}


def dynamics_options(o: Options) -> dict:
    return dict(
        kind="gaussian", members=2, elites=1, width=8, steps=o.behavior_steps,
        batch_size=16, patience=2, rate=1e-3,
    )  # fmt: skip


PARTS = (bc.update, bc.fitted, bc.model, bc.act, bc.skeleton)
PRESETS = {"default": Options(steps=24, batch_size=16)}
WITH_SET = Algorithm(
    PRESETS, start_from_set, *PARTS, needs=(Need("vq", set_options),)
)  # fmt: skip
WITH_DYNAMICS = Algorithm(
    PRESETS, start_from_dynamics, *PARTS, needs=(Need("dynamics", dynamics_options),)
)
