"""The map: where trajectories lie, and what a click on one shows."""

from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from manyhands.data.trajectories import Trajectories
from manyhands.report.packing import bytes_between, floats

SHOWN = 2000  # trajectories on the page
ROWS = 1_000_000  # transitions that are looked at for them: seconds
EACH = 20  # of every behavior, however small
POINTS = 60  # in time, of a trajectory's actions
DIMENSIONS = 12  # of actions, drawn over time
BUDGET = 1_500_000  # bytes for all actions over time


def sample(codes: np.ndarray, lengths: np.ndarray, most: int = SHOWN) -> np.ndarray:
    """Which trajectories to show: all, or by chance, but some of every behavior."""
    if len(codes) <= most and lengths.sum() <= ROWS:
        return np.arange(len(codes))
    random = np.random.default_rng(0)
    order = random.permutation(len(codes))
    many = max(1, min(most, int(ROWS / lengths.mean()), len(codes)))
    at_least = max(1, min(EACH, many // (2 * len(np.unique(codes)))))
    first = [order[codes[order] == code][:at_least] for code in np.unique(codes)]
    chosen = np.concatenate(first)[:many]
    rest = order[~np.isin(order, chosen)][: many - len(chosen)]
    return np.sort(np.concatenate([chosen, rest]))


def places(embeddings: dict[str, np.ndarray], shown: np.ndarray) -> dict[str, Any]:
    """The first two principal components of W; E and e_pi in the same plane."""
    W = embeddings["W"]
    pca = PCA(n_components=min(2, *W.shape)).fit(W)

    def plane(rows: np.ndarray) -> np.ndarray:
        flat = pca.transform(np.atleast_2d(rows))
        return np.pad(flat, [(0, 0), (0, 2 - flat.shape[1])])

    found = {
        "xy": floats(plane(W[shown])),
        "behaviors": plane(embeddings["E"]).round(5),
        "variance": float(pca.explained_variance_ratio_.sum()),
    }
    if "e_pi" in embeddings:
        found["policy"] = plane(embeddings["e_pi"]).round(5)
    return found


def over_time(data: Trajectories) -> dict[str, Any]:
    """Actions and the reward so far, at a few times in each of these trajectories."""
    dimensions = min(data.action_size, DIMENSIONS)
    points = min(POINTS, max(8, BUDGET // (len(data) * (dimensions + 1))))
    times, so_far = [], []
    for m in range(len(data)):
        start, stop = data.offsets[m], data.offsets[m + 1]
        many = min(points, stop - start)
        when = np.linspace(0, stop - start - 1, many).round().astype(np.int64)
        times.append(start + when)
        so_far.append(np.cumsum(data.rewards[start:stop], dtype=np.float64)[when])
    rows, reward = np.concatenate(times), np.concatenate(so_far)
    low, high = data.action_low[:dimensions], data.action_high[:dimensions]
    return {
        "points": [len(t) for t in times],
        "dimensions": dimensions,
        "of_dimensions": data.action_size,
        "most_points": points,
        "low": low,
        "high": high,
        "actions": bytes_between(data.actions[rows, :dimensions], low, high),
        "reward_low": float(reward.min()),
        "reward_high": float(reward.max()),
        "reward": bytes_between(reward, reward.min(), reward.max()),
    }
