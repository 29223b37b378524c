"""Noise-whitened coordinates: what differs between trajectories, in units of what
differs within them.

The noise of a trajectory's mean feature is measured between its four blocks, or, where
groups are known, between the trajectories of a group. Coordinates are the leading
directions of cov(means) in units of the noise, and every trajectory's vector is made
length one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from manyhands.assign.inputs import Inputs

BLOCKS = 4
MOST_AXES = 150


@dataclass(frozen=True)
class Projection:
    """From mean features [F] to coordinates [q], with a center for each context."""

    centers: np.ndarray  # [C + 1, F]; the last one is of all trajectories
    directions: np.ndarray  # [F, q]


def block_means(
    inputs: Inputs, features: Callable[[Inputs], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Means [M, 4, F] over contiguous blocks of each trajectory, and steps [M, 4]."""
    means, counts = [], []
    for part in inputs.parts():
        marks = part.lengths[:, None] * np.arange(BLOCKS + 1) // BLOCKS
        count = np.diff(marks, axis=1)
        starts = (part.offsets[:-1, None] + marks[:, :-1]).ravel()
        kept = count.ravel() > 0
        values = features(part)
        sums = np.zeros((len(kept), values.shape[1]), np.float32)
        sums[kept] = np.add.reduceat(values, starts[kept], axis=0)
        sums = sums.reshape(len(part), BLOCKS, -1)
        means.append(sums / np.maximum(count, 1)[:, :, None])
        counts.append(count)
    return np.concatenate(means), np.concatenate(counts)


def whole_means(means: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[M, F]: means over whole trajectories from those over blocks."""
    weights = counts / counts.sum(1, keepdims=True)
    return np.einsum("mbf,mb->mf", means, weights.astype(np.float32))


def fit_projection(
    blocks: np.ndarray,
    counts: np.ndarray,
    axes: int,
    context: np.ndarray | None = None,
    group: np.ndarray | None = None,
) -> Projection:
    """Directions of greatest variance between trajectories, the noise being whitened.

    With e the noise of the means mu, S_T = cov(mu) and S_W = cov(e) after scaling each
    feature by (var e + 0.05 var mu)^-1/2 and rotating to 150 principal axes:
    S_W <- 0.9 S_W + 0.1 tr(S_W)/p I + 0.02 diag(S_T), and the directions are the
    leading solutions of S_T v = lambda S_W v.
    """
    means = whole_means(blocks, counts)
    context = np.zeros(len(means), int) if context is None else context
    centers = context_means(means, context)
    centered = means - centers[context]
    if group is None:
        noise = _block_noise(blocks, counts, context)
    else:
        noise = _group_noise(centered, group)
    scale = noise.var(0) * len(noise) / len(means) + 0.05 * centered.var(0)
    scale = np.where(scale > 1e-12, 1 / np.sqrt(np.maximum(scale, 1e-12)), 0)
    scaled, noise = centered * scale, noise * scale
    rotation = _principal_axes(scaled, MOST_AXES)
    scaled, noise = scaled @ rotation, noise @ rotation
    total = (scaled.T @ scaled / len(scaled)).astype(np.float64)
    within = (noise.T @ noise / len(means)).astype(np.float64)
    p = len(total)
    within = 0.9 * within + 0.1 * np.trace(within) / p * np.eye(p)
    within += np.diag(0.02 * np.diag(total) + 1e-12)
    directions = eigh(total, within, subset_by_index=[max(0, p - axes), p - 1])[1]
    directions = scale[:, None] * (rotation @ directions[:, ::-1])
    everything = means.mean(0, keepdims=True)
    return Projection(np.concatenate([centers, everything]), directions)


def project(
    projection: Projection, means: np.ndarray, context: np.ndarray | None
) -> np.ndarray:
    """[M, q]: coordinates of mean features; an unknown context is -1."""
    context = np.zeros(len(means), int) if context is None else context
    return (means - projection.centers[context]) @ projection.directions


def context_means(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[C, F]: the mean row of each label 0, 1, ...; of a label without rows, of all."""
    n = len(rows)
    size = np.bincount(labels)
    member = csr_array((np.ones(n, rows.dtype), (labels, np.arange(n))), (len(size), n))
    means = (member @ rows) / np.maximum(size, 1)[:, None].astype(rows.dtype)
    means[size == 0] = rows.mean(0)
    return means


def length_one(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _block_noise(blocks, counts, context) -> np.ndarray:
    """[n, F]: (block mean - mean of blocks) / sqrt(B (B - 1)), blocks centered first.

    Centering takes the mean of all trajectories (of the context) from each block:
    what all have in common at that time is no noise.
    """
    long = (counts > 0).all(1)
    blocks, context = blocks[long], context[long]
    if not len(blocks):
        return np.zeros((1, blocks.shape[2]), np.float32)
    of = np.unique(context, return_inverse=True)[1]
    flat = blocks.reshape(len(blocks), -1)
    blocks = blocks - context_means(flat, of)[of].reshape(blocks.shape)
    blocks = blocks - blocks.mean(1, keepdims=True)
    noise = blocks.reshape(-1, blocks.shape[2]) / np.sqrt(BLOCKS * (BLOCKS - 1))
    return noise * np.sqrt(len(counts) / len(long[long]))


def _group_noise(centered: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[n, F]: deviations from the group's mean, times sqrt(g / (g - 1))."""
    size = np.bincount(group)
    means = context_means(centered, group)
    many = size[group] > 1
    factor = np.sqrt(size[group] / np.maximum(size[group] - 1, 1))
    noise = (centered - means[group]) * factor[:, None].astype(np.float32)
    if not many.any():
        return np.zeros((1, centered.shape[1]), np.float32)
    return noise[many] * np.sqrt(len(many) / len(many[many]))


def _principal_axes(rows: np.ndarray, most: int) -> np.ndarray:
    """[F, p]: leading principal axes of centered rows."""
    n, f = rows.shape
    most = min(most, n, f)
    if n < f:
        values, vectors = eigh(rows @ rows.T, subset_by_index=[n - most, n - 1])
        kept = values > 1e-6 * values[-1]
        kept[-1] = True  # of rows that are all equal, too
        values = np.maximum(values, 1e-12)
        return rows.T @ (vectors[:, kept] / np.sqrt(values[kept]))
    return eigh(rows.T @ rows, subset_by_index=[f - most, f - 1])[1]
