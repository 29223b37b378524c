"""How good a model of the dynamics is: on rows held out, and beyond the data."""

from typing import Any, NamedTuple

import jax
import numpy as np

from manyhands.dynamics.prediction import (
    Prediction,
    disagreement,
    predict_all,
    targets_of,
    widest,
)
from manyhands.types import Batch, Pytree

BLOCK = 4096  # rows evaluated together


class Judged(NamedTuple):
    """Of every row."""

    prediction: Prediction  # [member, row, target]
    disagreement: np.ndarray
    widest: np.ndarray


@jax.jit
def _judge(members: Pytree, observations, actions) -> Judged:
    said = predict_all(members, observations, actions)
    return Judged(said, disagreement(said.mean), widest(said.log_std))  # pyright: ignore


def judge(members: Pytree, observations: np.ndarray, actions: np.ndarray) -> Judged:
    parts = [
        jax.device_get(
            _judge(members, observations[b : b + BLOCK], actions[b : b + BLOCK])
        )
        for b in range(0, len(observations), BLOCK)
    ]
    said = Prediction(
        np.concatenate([p.prediction.mean for p in parts], axis=1),  # pyright: ignore
        np.concatenate([p.prediction.log_std for p in parts], axis=1),  # pyright: ignore
    )
    return Judged(
        said,
        np.concatenate([p.disagreement for p in parts]),
        np.concatenate([p.widest for p in parts]),
    )


def report(
    members: Pytree, held: Batch, low: np.ndarray, high: np.ndarray, seed: int = 0
) -> dict[str, Any]:
    """Of rows that were held out, as numbers for a summary.

    `disagreement` and `widest` are means over rows in three places: the held-out rows;
    their states with actions drawn from all of the box (`other_actions`); and states
    whose every number is that of another row (`other_states`), each plausible, but not
    together. A model that knows what it does not know says more there.
    """
    held = Batch(*(None if x is None else np.asarray(x) for x in held))  # pyright: ignore
    random = np.random.default_rng(seed)
    states, actions = np.asarray(held.observations), np.asarray(held.actions)
    found = judge(members, states, actions)
    said, targets = found.prediction, np.asarray(targets_of(held))
    error = np.asarray(said.mean, np.float64) - targets
    spread = targets.astype(np.float64).var(axis=0)
    # A target that does not vary cannot be explained any further.
    explained = 1 - (error**2).mean(axis=(0, 1)) / np.where(spread > 0, spread, 1)
    standard = np.abs(error) * np.exp(-np.asarray(said.log_std, np.float64))
    anything = random.uniform(low, high, actions.shape).astype(np.float32)
    mixed = np.stack([random.permutation(column) for column in states.T], axis=1)
    places = {
        "in_data": found,
        "other_actions": judge(members, states, anything),
        "other_states": judge(members, mixed, actions),
    }
    return {
        "heldout": {
            "rows": len(states),
            "squared_error": (error**2).mean(axis=(1, 2)).tolist(),
            "log_prob": np.asarray(said.log_prob(targets)).mean(axis=1).tolist(),  # pyright: ignore
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
