"""The behaviors: what each does, and which other one is nearest."""

from typing import Any

import numpy as np

from manyhands.data.trajectories import Trajectories

BINS = 24
DIMENSIONS = 12  # of actions, drawn for every behavior


def rows(
    codes: list[dict[str, Any]],
    assigned: np.ndarray,
    returns: np.ndarray,
    distances: np.ndarray | None,
) -> list[dict[str, Any]]:
    """Those of the run's summary, with the scatter of returns and a neighbor."""
    table = []
    used = [row["code"] for row in codes]
    for row in codes:
        code = row["code"]
        more: dict[str, Any] = {"return_std": float(returns[assigned == code].std())}
        others = [other for other in used if other != code]
        if distances is not None and others:
            nearest = min(others, key=lambda other: distances[code, other])
            more["nearest"] = {
                "code": nearest,
                "distance": float(distances[code, nearest]),
            }
        table.append(row | more)
    return table


def divergences(sums: np.ndarray, codes: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[K, K] nats a step lost when behavior j has to explain what i did.

    That is an estimate of KL(b_i || b_j) in the states that i visits.

    Args:
        sums: [M, K] log-probability of trajectories under behaviors.
    """
    many = sums.shape[1]
    found = np.full((many, many), np.nan)
    for code in range(many):
        mine = codes == code
        if mine.any():
            total = sums[mine].sum(axis=0)
            found[code] = (total[code] - total) / lengths[mine].sum()
    return found


def angles(E: np.ndarray) -> np.ndarray:
    """[K, K] 1 - cosine between behaviors' embeddings: for want of data."""
    unit = E / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), 1e-12)
    return 1 - unit @ unit.T


def action_histograms(
    data: Trajectories, codes: np.ndarray, used: list[int]
) -> dict[str, Any]:
    """The share of each behavior's actions in every bin, by action dimension."""
    dimensions = min(data.action_size, DIMENSIONS)
    of_row = codes[data.trajectory]
    low = data.action_low[:dimensions].astype(np.float64)
    high = data.action_high[:dimensions].astype(np.float64)
    place = (data.actions[:, :dimensions] - low) / np.maximum(high - low, 1e-12)
    bins = np.clip((place * BINS).astype(np.int64), 0, BINS - 1)

    def shares(mine: np.ndarray) -> list[list[float]]:
        picked = bins[mine]
        counts = [np.bincount(column, minlength=BINS) for column in picked.T]
        return [(c / max(1, len(picked))).round(4).tolist() for c in counts]

    return {
        "low": low,
        "high": high,
        "of_dimensions": data.action_size,
        "all": shares(np.ones(len(bins), bool)),
        "by_code": {str(code): shares(of_row == code) for code in used},
    }
