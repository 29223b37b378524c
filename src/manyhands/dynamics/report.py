"""How good a model of the dynamics is: on rows held out, and beyond the data."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from manyhands.dynamics.prediction import (
    disagreement,
    predict_all,
    targets_of,
    widest,
)
from manyhands.types import Batch, Pytree

BLOCK = 4000  # rows evaluated together; 20,000 are then of one shape to compile


class Judged(NamedTuple):
    """Of every row, in NumPy."""

    mean: Any  # [member, row, target]
    log_std: Any
    disagreement: Any
    widest: Any


@jax.jit
def _judge(members: Pytree, observations: Array, actions: Array) -> Judged:
    said = predict_all(members, observations, actions)
    return Judged(*said, disagreement(said.mean), widest(said.log_std))


def judge(members: Pytree, observations: Array, actions: Array) -> Judged:
    parts = []
    for begin in range(0, len(observations), BLOCK):
        block = observations[begin : begin + BLOCK], actions[begin : begin + BLOCK]
        parts.append(jax.device_get(_judge(members, *block)))
    joined = [np.concatenate(p, axis=1 if p[0].ndim > 1 else 0) for p in zip(*parts)]
    return Judged(*joined)


def report(
    members: Pytree, held: Batch, low: np.ndarray, high: np.ndarray, seed: int = 0
) -> dict[str, Any]:
    """Of rows that were held out, as numbers for a summary.

    `disagreement` and `widest` are means over rows in three places: the held-out rows;
    their states with actions drawn from all of the box (`other_actions`); and states
    whose every number is that of another row (`other_states`), each plausible, but not
    together. A model that knows what it does not know says more there.
    """
    random = np.random.default_rng(seed)
    states, actions = held.observations, held.actions
    found = judge(members, states, actions)
    targets = np.asarray(targets_of(held), np.float64)
    error = found.mean - targets
    spread = targets.var(axis=0)
    # A target that does not vary cannot be explained any further.
    explained = 1 - (error**2).mean(axis=(0, 1)) / np.where(spread > 0, spread, 1)
    standard = np.abs(error) * np.exp(-found.log_std.astype(np.float64))
    log_prob = -0.5 * (standard**2 + np.log(2 * np.pi)) - found.log_std
    anything = random.uniform(low, high, actions.shape).astype(np.float32)
    columns = [random.permutation(column) for column in np.asarray(states).T]
    mixed = jnp.asarray(np.stack(columns, axis=1))
    places = {
        "in_data": found,
        "other_actions": judge(members, states, jnp.asarray(anything)),
        "other_states": judge(members, mixed, actions),
    }
    return {
        "heldout": {
            "rows": len(states),
            "squared_error": (error**2).mean(axis=(1, 2)).tolist(),
            "log_prob": log_prob.sum(axis=2).mean(axis=1).tolist(),
            "explained_reward": float(explained[0]),
            "explained_change": float(explained[1:].mean()),
            "within_one_deviation": float((standard < 1).mean()),
            "within_two_deviations": float((standard < 2).mean()),
        },
        "disagreement": {
            where: float(place.disagreement.mean()) for where, place in places.items()
        },
        "widest": {
            where: float(place.widest.mean()) for where, place in places.items()
        },
    }
