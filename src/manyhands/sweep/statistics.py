"""What several runs say together: means, interquartile means, who improves on whom.

Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice"
(2021): few runs deserve intervals, and a mean of many tasks is ruled by the odd one.

A run that has diverged has a score of minus infinity: it is worse than all others.
"""

from typing import NamedTuple

import numpy as np

DRAWS = 2000
LEVEL = 0.95


class Interval(NamedTuple):
    """Without ends where a task has a single run: another might be anywhere."""

    value: float
    low: float | None
    high: float | None


def iqm(scores: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean of the middle half, along the last axis; ends count in part.

    Args:
        weights: of the runs; alike if None.
    """
    order = np.argsort(scores, axis=-1, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=-1)
    each = np.ones(scores.shape[-1]) if weights is None else weights
    mine = each[order]
    # A run covers a stretch as long as its weight; the middle half is 1/4 to 3/4.
    ends, whole = np.cumsum(mine, axis=-1), mine.sum(axis=-1, keepdims=True)
    covered = np.minimum(ends, 0.75 * whole) - np.maximum(ends - mine, 0.25 * whole)
    inside = covered > 1e-9 * whole
    # What is outside may be infinite.
    sums = np.where(inside, ordered * np.where(inside, covered, 1.0), 0.0)
    return sums.sum(axis=-1) / np.where(inside, covered, 0.0).sum(axis=-1)


def iqm_interval(by_task: list[np.ndarray], seed: int = 0) -> Interval:
    """Of all tasks' runs together, every task with the same weight; intervals from
    drawing runs anew within tasks."""
    random = np.random.default_rng(seed)
    weights = np.concatenate([np.full(len(runs), 1 / len(runs)) for runs in by_task])
    drawn = np.concatenate([_drawn(random, runs) for runs in by_task], axis=1)
    value = float(iqm(np.concatenate(by_task), weights))
    return _interval(value, iqm(drawn, weights), by_task)


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
    value = np.mean([_better(a[None], b[None])[0] for a, b in zip(ours, theirs)])
    return _interval(float(value), drawn, [*ours, *theirs])


def _interval(value: float, drawn: np.ndarray, by_task: list[np.ndarray]) -> Interval:
    if min(map(len, by_task)) < 2:
        return Interval(value, None, None)
    # Between two infinite values there is nothing to interpolate.
    how = "linear" if np.isfinite(drawn).all() else "inverted_cdf"
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(drawn, ends, method=how)
    return Interval(value, float(low), float(high))


def _drawn(random: np.random.Generator, runs: np.ndarray) -> np.ndarray:
    """[draw, run] with replacement."""
    return runs[random.integers(len(runs), size=(DRAWS, len(runs)))]


def _better(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """[draw] share of pairs that ours win; a tie is half a win."""
    a, b = ours[:, :, None], theirs[:, None, :]
    return ((a > b) + 0.5 * (a == b)).mean(axis=(1, 2))
