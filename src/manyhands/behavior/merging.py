"""Which codes are one behavior? Judged on steps that no code was fitted to.

Start with more codes than behaviors, then merge. For two codes, take the trajectories
that either holds: if one code for all of them predicts their held-out actions about as
well as each its own, the two are one behavior. A false division gains nothing on steps
held out, however well it fits the others; two sources that are alike but distinct lose
what distinguishes them, step by step.
"""

from typing import NamedTuple

import numpy as np

# A code is another one's if giving it up loses less than this (nats per transition of
# its own trajectories, so that a small source counts as much as a large one).
SAME = 0.1


class Step(NamedTuple):
    """One merge on the way from many codes to one."""

    keep: int  # the code that stands for both from here on
    drop: int
    cost: float  # held-out nats lost per transition of the dropped code
    error: float  # its standard error
    codes: int  # how many are left
    heldout: float  # held-out log-probability per transition, of all, after it


def path(codes: np.ndarray, held: np.ndarray, counts: np.ndarray) -> list[Step]:
    """All merges, cheapest first, down to one code.

    Args:
        codes: [M] the code of each trajectory.
        held: [M, K] held-out log-probability of trajectories under codes, summed.
        counts: [M] over how many held-out steps.
    """
    codes = codes.copy()
    steps: list[Step] = []
    used = sorted(set(codes.tolist()))
    everyone = np.arange(len(codes))
    while len(used) > 1:
        best = min(
            (
                _merge(codes, held, counts, keep, drop)
                for keep in used
                for drop in used
                if keep != drop
            ),
            key=lambda merge: merge[2],
        )
        keep, drop, cost, error = best
        codes[codes == drop] = keep
        used.remove(drop)
        heldout = held[everyone, codes].sum() / counts.sum()
        steps.append(Step(keep, drop, cost, error, len(used), float(heldout)))
    return steps


def _merge(codes, held, counts, keep: int, drop: int) -> tuple[int, int, float, float]:
    mine = codes == drop
    loss, rows = held[mine, drop] - held[mine, keep], max(1, counts[mine].sum())
    error = loss.std() * np.sqrt(len(loss)) / rows
    return keep, drop, float(loss.sum() / rows), float(error)


def accepted(steps: list[Step], at_most: int) -> list[Step]:
    """The merges to make: while they cost nothing, and until few enough are left."""
    made = []
    for step in steps:
        too_many = step.codes >= at_most
        if not too_many and step.cost > SAME:
            break
        made.append(step)
    return made
