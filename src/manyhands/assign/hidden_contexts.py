"""Contexts that nobody declared, read from the paths of the observations.

If the paths fall apart into kinds of movement (gestures, letters, tasks), the graph of
like paths has clusters with hardly an edge between them.
"""

from dataclasses import dataclass, replace

import numpy as np

from manyhands.assign.inputs import Inputs
from manyhands.assign.linking import neighbor_graph
from manyhands.assign.modularity import Graph, louvain

POINTS = 16  # of a resampled path
AXES = 20
NEIGHBORS = 10
COARSE = 0.25  # resolution of the contexts; 1 for the test whether there are any


@dataclass(frozen=True)
class Kinds:
    """Kinds of movement, and what new paths are compared with."""

    labels: np.ndarray  # [M]: the kind of each trajectory
    share: float  # of edges inside clusters: is there more than one kind at all?
    mean: np.ndarray  # [D]
    axes: np.ndarray  # [D, d]
    paths: np.ndarray  # [M, d]


def shapes(inputs: Inputs) -> np.ndarray:
    """[M, 16 S]: paths resampled to 16 points, centered, scaled to unit size."""
    place = np.linspace(0, 1, POINTS) * (inputs.lengths[:, None] - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, inputs.lengths[:, None] - 1)
    part = (place - low)[:, :, None]
    o, start = inputs.observations, inputs.offsets[:-1, None]
    paths = (1 - part) * o[start + low] + part * o[start + high]
    paths = paths - paths.mean(1, keepdims=True)
    size = np.sqrt((paths**2).mean((1, 2), keepdims=True))
    return (paths / np.maximum(size, 1e-9)).reshape(len(inputs), -1)


def find(inputs: Inputs, k: int, rng: np.random.Generator) -> Kinds:
    """Kinds of movement; those of fewer than k trajectories are joined into one."""
    raw = shapes(inputs)
    mean = raw.mean(0)
    _, _, axes = np.linalg.svd(raw - mean, full_matrices=False)
    axes = axes[:AXES].T
    paths = (raw - mean) @ axes
    graph = neighbor_graph(paths, NEIGHBORS)
    share = graph.inside_share(louvain(graph, rng))
    labels = louvain(Graph(graph.weights, graph.degree, COARSE), rng)
    rare = np.bincount(labels)[labels] < k
    labels = np.unique(np.where(rare, -1, labels), return_inverse=True)[1]
    return Kinds(labels, share, mean, axes, paths)


def kinds_of(inputs: Inputs, kinds: Kinds) -> np.ndarray:
    """[M]: the kind of the nearest known path, for new trajectories."""
    paths = (shapes(inputs) - kinds.mean) @ kinds.axes
    square = (kinds.paths**2).sum(1)
    return kinds.labels[np.argmin(square - 2 * paths @ kinds.paths.T, axis=1)]


def with_kinds(inputs: Inputs, kinds: Kinds) -> Inputs:
    """New trajectories, with the kind of each as its context."""
    return replace(inputs, context=kinds_of(inputs, kinds))
