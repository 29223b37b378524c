"""What several runs say together: means, interquartile means, who improves on whom.

Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice"
(2021): few runs deserve intervals, and a mean of many tasks is ruled by the odd one.
"""

from typing import NamedTuple

import numpy as np

DRAWS = 2000
LEVEL = 0.95


class Interval(NamedTuple):
    value: float
    low: float
    high: float


def iqm(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half, along the last axis; ends count in part."""
    ordered, many = np.sort(scores, axis=-1), scores.shape[-1]
    # Run i covers the stretch from i to i + 1; the middle half is n/4 to 3n/4.
    edges = np.arange(many)
    covered = np.minimum(edges + 1, 0.75 * many) - np.maximum(edges, 0.25 * many)
    weights = np.maximum(covered, 0.0)
    return ordered @ (weights / weights.sum())


def iqm_interval(by_task: list[np.ndarray], seed: int = 0) -> Interval:
    """Of all tasks' runs together; intervals from drawing runs anew within tasks."""
    random = np.random.default_rng(seed)
    drawn = np.concatenate([_drawn(random, runs) for runs in by_task], axis=1)
    low, high = np.quantile(iqm(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(iqm(np.concatenate(by_task))), float(low), float(high))


def improvement(
    ours: list[np.ndarray], theirs: list[np.ndarray], seed: int = 0
) -> Interval:
    """How probably a run of ours is better than one of theirs, mean over tasks."""
    random = np.random.default_rng(seed)
    drawn = np.mean(
        [
            _better(_drawn(random, one), _drawn(random, other))
            for one, other in zip(ours, theirs)
        ],
        axis=0,
    )
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = np.mean([_better(a[None], b[None])[0] for a, b in zip(ours, theirs)])
    return Interval(float(value), float(low), float(high))


def _drawn(random: np.random.Generator, runs: np.ndarray) -> np.ndarray:
    """[draw, run] with replacement."""
    return runs[random.integers(len(runs), size=(DRAWS, len(runs)))]


def _better(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """[draw] share of pairs that ours win; a tie is half a win."""
    difference = ours[:, :, None] - theirs[:, None, :]
    return ((difference > 0) + 0.5 * (difference == 0)).mean(axis=(1, 2))
