"""Clusters of vectors: K-means that fills every code, and a polish of its answer."""

import warnings
from typing import Any

import numpy as np
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

ROUNDS = 15
SOFTEST = 20.0  # discriminant directions above which responsibilities are softened


def kmeans(
    rows: np.ndarray, k: int, seed: int, starts: int, sizes: np.ndarray | None = None
) -> np.ndarray:
    """Labels [n] of the best of several starts; `sizes`: weights of the rows."""
    with warnings.catch_warnings():
        # Fewer distinct rows than k: some codes stay empty, and are filled below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        search: Any = KMeans(k, random_state=seed)
        search.set_params(n_init=starts).fit(rows, sample_weight=sizes)
    return every_code(search.labels_, k)


def every_code(labels: np.ndarray, k: int) -> np.ndarray:
    """Give a node of the largest code to each code that has none."""
    labels = np.array(labels)
    for code in np.setdiff1d(np.arange(k), labels):
        labels[np.flatnonzero(labels == np.bincount(labels).argmax())[0]] = code
    return labels


def polish(rows: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Labels after rounds of discriminant analysis with itself (two covariances).

    W and B are the covariances within and between codes. In the K - 1 directions of
    greatest B against W, where W = I and B = diag(g), the mean of a code's n
    trajectories is shrunk by n g / (1 + n g); responsibilities are softmax(-d^2 / 2).
    """
    rows = rows - rows.mean(0)
    p = rows.shape[1]
    total = rows.T @ rows / len(rows)
    resp = np.eye(k)[labels]
    directions = min(k - 1, p)
    for _ in range(ROUNDS):
        n = np.maximum(resp.sum(0), 1e-9)[:, None]
        means = resp.T @ rows / n
        between = (means * n).T @ means / len(rows)
        within = 0.8 * (total - between)
        within += (0.2 * np.trace(total - between) / p + 1e-9) * np.eye(p)
        ratio, axes = eigh(between, within, subset_by_index=[p - directions, p - 1])
        ratio = np.maximum(ratio, 0)
        centers = means @ axes * (n * ratio / (1 + n * ratio))
        apart = rows @ axes
        square = (centers**2).sum(1) - 2 * apart @ centers.T
        logits = -0.5 * square * min(1.0, SOFTEST / directions)
        resp = np.exp(logits - logits.max(1, keepdims=True))
        resp /= resp.sum(1, keepdims=True)
    return every_code(resp.argmax(1), k)
