"""Which codes are one behavior? Judged on steps that no code was fitted to.

Start with more codes than behaviors, then merge. Giving up a code for another costs
what its trajectories' held-out actions lose under the other one. A false division gains
nothing on steps held out, however well it fits the others; two sources that are alike
but distinct lose what distinguishes them, step by step.

The cost is an upper bound: two halves of one source may have specialised on the states
they happen to visit, and one code for both would soon learn the rest. Where the
trajectories lie, embedded before there were any codes, tells such halves from sources:
halves of one cloud touch, sources lie apart. So the cost counts the more, the further
apart they lie.
"""

from typing import NamedTuple

import numpy as np

# A code is another one's if the evidence against it is less than this, in nats per
# transition of its own trajectories, so that a small source counts as much as a large.
SAME = 0.15
# The two halves of a normal distribution have means so many of their own deviations
# apart: 2 sqrt(2 / pi) / sqrt(1 - 2 / pi).
HALVES = 2.65


class Step(NamedTuple):
    """One merge on the way from many codes to one."""

    keep: int  # the code that stands for both from here on
    drop: int
    cost: float  # held-out nats lost per transition of the dropped code
    error: float  # its standard error
    apart: float  # between the two in the embedding, in units of their own deviation
    evidence: float  # that they are two: the cost, weighed by how far apart they lie
    codes: int  # how many are left
    heldout: float  # held-out log-probability per transition, of all, after it


def path(
    codes: np.ndarray, held: np.ndarray, counts: np.ndarray, embedded: np.ndarray
) -> list[Step]:
    """All merges, the one with the least evidence against it first, down to one code.

    Args:
        codes: [M] the code of each trajectory.
        held: [M, K] held-out log-probability of trajectories under codes, summed.
        counts: [M] over how many held-out steps.
        embedded: [M, E] trajectories, embedded before there were codes.
    """
    codes, steps = codes.copy(), []
    used = np.unique(codes)
    everyone = np.arange(len(codes))
    while len(used) > 1:
        member = (codes == used[:, None]).astype(np.float64)  # [code, M]
        sums = member @ held[:, used]  # [code, other]
        rows = np.maximum(1, member @ counts)[:, None]
        costs = (np.diag(sums)[:, None] - sums) / rows  # [drop, keep]
        apart = distances(member, embedded)
        evidence = costs * np.maximum(1, apart / HALVES) ** 2
        np.fill_diagonal(evidence, np.inf)
        d, k = np.unravel_index(np.argmin(evidence), evidence.shape)
        keep, drop = int(used[k]), int(used[d])
        mine = codes == drop
        loss = held[mine, drop] - held[mine, keep]
        error = loss.std() * np.sqrt(len(loss)) / rows[d, 0]
        codes[mine] = keep
        used = np.delete(used, d)
        heldout = held[everyone, codes].sum() / counts.sum()
        steps.append(
            Step(
                keep,
                drop,
                cost=float(costs[d, k]),
                error=float(error),
                apart=float(apart[d, k]),
                evidence=float(evidence[d, k]),
                codes=len(used),
                heldout=float(heldout),
            )
        )
    return steps


def distances(member: np.ndarray, embedded: np.ndarray) -> np.ndarray:
    """[code, code] between means, in units of the scatter around them on that line.

    Args:
        member: [code, M] 1 where a trajectory has the code, else 0.
    """
    sizes = member.sum(axis=1)
    means = member @ embedded / sizes[:, None]
    centered = embedded - member.T @ means
    scatter = (member[:, None] * centered.T) @ centered  # [code, E, E]
    # One more, usual, trajectory for every pair: a code may have only one.
    usual = scatter.sum(axis=0) / max(1, len(embedded) - len(sizes))
    line = means[:, None] - means[None, :]
    square = np.sum(line**2, axis=-1)
    own = np.einsum("abi,aij,abj->ab", line, scatter, line)
    own += own.T + np.einsum("abi,ij,abj->ab", line, usual, line)
    degrees = np.maximum(1, sizes[:, None] + sizes[None, :] - 1)
    # square^2 / (line' scatter line / degrees) is the squared distance in its units.
    return np.sqrt(square**2 / np.maximum(own / degrees, 1e-12))


def accepted(steps: list[Step], at_most: int) -> list[Step]:
    """The merges to make: until few enough are left, and while nothing speaks against.

    The first one to be refused ends it, though a later one may have less against it.
    """
    made = []
    for step in steps:
        too_many = step.codes >= at_most
        if not too_many and step.evidence > SAME:
            break
        made.append(step)
    return made
