"""The graph of steps: neighboring steps of other trajectories vote for each other.

Where steps betray their source, the nearest steps of a step are of the same source. A
step is the point [o_t, a_t, o_(t-1)]. Votes are summed over trajectories (or groups)
and the graph is cut into k parts of greatest modularity.

Modularity alone joins sources that move alike and splits one that moves in two ways.
Where actions tell sources apart at like observations, a second kind of vote helps: of
the ten steps nearest in observation, the three that act most alike, against all ten.
Trajectories that meet and act alike attract, those that meet and act differently repel
each other, and those that never meet do neither.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import coo_array, csr_array
from sklearn.neighbors import NearestNeighbors

from manyhands.assign.clustering import every_code, kmeans
from manyhands.assign.inputs import Inputs
from manyhands.assign.modularity import Graph, anneal, single_moves
from manyhands.assign.whiten import length_one

NEIGHBORS = 3
MEETING = 10  # nearest steps in observation alone
MOST_POINTS = 20_000
MOST_STEPS = 100  # of a trajectory
ENOUGH_INSIDE = 0.9  # share of votes inside the parts: steps betray their source
ACTIONS_TELL = 0.75  # of the votes that leave the parts, at most this share acts alike
WEIGHT_OF_ALIKE = 2.0


@dataclass(frozen=True)
class Cloud:
    """Points [P, d] that vote, their trajectories, and how to make more of them."""

    points: np.ndarray
    owner: np.ndarray  # [P]: the trajectory of each point
    mean: np.ndarray  # [D]
    axes: np.ndarray  # [D, d]: principal axes over eigenvalue^(1/4)


def steps_of(inputs: Inputs, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of up to `most` evenly spaced steps a trajectory, and their trajectories."""
    chosen, owner = [], []
    for m, (start, length) in enumerate(zip(inputs.offsets, inputs.lengths)):
        first = min(1, length - 1)  # a trajectory of one step votes with that step
        count = min(most, length - first)
        place = np.linspace(first, length - 1, count).round().astype(np.int64)
        chosen.append(start + place)
        owner.append(np.full(count, m))
    return np.concatenate(chosen), np.concatenate(owner)


def points_of(inputs: Inputs, rows: np.ndarray) -> np.ndarray:
    """[P, D]: [o_t, a_t, o_(t-1)] at the given rows."""
    o, a = inputs.observations, inputs.actions
    before = np.where(inputs.step[rows] > 0, rows - 1, rows)
    return np.concatenate([o[rows], a[rows], o[before]], axis=1)


def scaled_cloud(raw: np.ndarray, owner: np.ndarray) -> Cloud:
    """Scale the principal axes of the points by eigenvalue^(-1/4)."""
    mean = raw.mean(0)
    covariance = np.atleast_2d(np.cov(raw - mean, rowvar=False))
    ridge = 1e-3 * np.trace(covariance) / len(covariance) + 1e-9
    values, axes = np.linalg.eigh(covariance + ridge * np.eye(len(covariance)))
    axes = (axes / values**0.25).astype(np.float32)
    return Cloud((raw - mean) @ axes, owner, mean, axes)


def nearest(
    cloud: Cloud, of: np.ndarray, owner: np.ndarray | None, neighbors: int
) -> np.ndarray:
    """[P, neighbors]: for each point the nearest points of the cloud.

    `owner`: the points' own trajectories, which may not vote; None for new points.
    """
    spare = 0 if owner is None else int(np.bincount(owner).max())
    wanted = min(neighbors + spare, len(cloud.points))
    search = NearestNeighbors(algorithm="brute").fit(cloud.points)
    near = search.kneighbors(of, wanted, return_distance=False)
    if owner is None:
        return near
    # The nearest that are of other trajectories come first, in order of distance.
    order = np.argsort(cloud.owner[near] == owner[:, None], axis=1, kind="stable")
    return np.take_along_axis(near, order[:, :neighbors], axis=1)


@dataclass(frozen=True)
class StepGraph:
    """The points that vote, their rows in the data, and the votes [n, n]."""

    cloud: Cloud
    rows: np.ndarray  # [P]
    votes: Graph  # between trajectories, or between groups where these are known


def build(inputs: Inputs) -> StepGraph:
    """Choose evenly spaced steps, 4 to 100 a trajectory, and count their votes."""
    rows, owner = steps_of(inputs, max(4, min(MOST_STEPS, MOST_POINTS // len(inputs))))
    cloud = scaled_cloud(points_of(inputs, rows), owner)
    near = cloud.owner[nearest(cloud, cloud.points, cloud.owner, NEIGHBORS)]
    return StepGraph(cloud, rows, _vote_graph(inputs, owner, near))


def act_alike(inputs: Inputs, graph: StepGraph) -> tuple[Graph, Graph]:
    """Votes of steps near in observation that act most alike, and of all such steps."""
    rows, owner = graph.rows, graph.cloud.owner
    where = scaled_cloud(inputs.observations[rows], owner)
    near = nearest(where, where.points, owner, MEETING)
    actions = inputs.actions[rows]
    apart = np.linalg.norm(actions[near] - actions[:, None], axis=2)
    alike = np.take_along_axis(near, np.argsort(apart, axis=1)[:, :NEIGHBORS], axis=1)
    return (
        _vote_graph(inputs, owner, owner[alike]),
        _vote_graph(inputs, owner, owner[near]),
    )


def _vote_graph(inputs: Inputs, owner: np.ndarray, near: np.ndarray) -> Graph:
    """W_ij = (votes from i to j) / (points of i), made symmetric; near [P, votes]."""
    size = len(inputs)
    rows = np.repeat(owner, near.shape[1])
    each = 1.0 / np.bincount(owner, minlength=size)[rows]
    weights = csr_array(coo_array((each, (rows, near.ravel())), (size, size)))
    graph = Graph.of(weights + weights.T)
    return graph if inputs.group is None else graph.joined(inputs.group)


def find_sources(
    inputs: Inputs, graph: StepGraph, k: int, seed: int, *, alike: bool = True
) -> tuple[np.ndarray, float]:
    """Labels [n] of the cut into k sources, and the share of votes inside them.

    The first cut, quickly made, is the gate: where too many votes cross it, it is
    returned as it is. It also shows whether actions tell sources apart: whether, at
    like observations, fewer votes leave its parts for steps that act alike.
    """
    first = cut_at_once(graph.votes, k, seed)
    share = graph.votes.inside_share(first)
    if share < ENOUGH_INSIDE:
        return first, share
    weighed = graph.votes
    if alike and inputs.observations.shape[1]:
        most_alike, near = act_alike(inputs, graph)
        leaving = [1 - of.inside_share(first) for of in (most_alike, near)]
        if leaving[0] <= ACTIONS_TELL * leaving[1]:
            evidence = WEIGHT_OF_ALIKE * (most_alike.weights - near.weights)
            weighed = Graph(csr_array(weighed.weights + evidence), weighed.degree)
    labels = cut(graph.votes, weighed, k, seed, first)
    return labels, graph.votes.inside_share(labels)


def spectrum(graph: Graph, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvalues [most] and vectors [n, most] of D^-1/2 (W + small) D^-1/2."""
    n = len(graph)
    dense = graph.weights.toarray() + 1e-3 * graph.degree.mean() / n
    scale = 1 / np.sqrt(np.maximum(graph.degree, 1e-9))
    dense *= scale[:, None] * scale
    values, vectors = eigh(dense, subset_by_index=[max(0, n - most), n - 1])
    return values[::-1], vectors[:, ::-1]


def cut_at_once(votes: Graph, k: int, seed: int) -> np.ndarray:
    """Labels [n]: K-means of the leading eigenvectors' rows, the best of seven ways."""
    values, vectors = spectrum(votes, min(len(votes), 4 * k))
    found = []
    for m, power in _at_once(k):
        rows = length_one(vectors[:, :m] * np.abs(values[:m]) ** power)
        found.append(kmeans(rows, k, seed, 5))
    best = max(found, key=votes.quality)
    return single_moves(votes, every_code(best, k), np.random.default_rng(seed))


def cut(votes: Graph, graph: Graph, k: int, seed: int, first: np.ndarray) -> np.ndarray:
    """Labels [n] of the cut into k parts of greatest quality in `graph` that was found.

    Many small clusters (K-means of the votes' leading eigenvectors) are joined into k
    by annealing; single moves polish the best, or the first cut where that is better.
    """
    rng = np.random.default_rng(seed)
    small = [m for m in (4 * k, 8 * k, 16 * k) if 3 * m <= len(votes)]
    vectors = spectrum(votes, max(small, default=k))[1]
    found = [first]
    for m in small:
        for again in range(2):
            fine = kmeans(length_one(vectors[:, :m]), m, seed + 1000 * again, 1)
            found.append(anneal(graph.joined(fine), k, rng)[fine])
    best = max(found, key=graph.quality)
    return single_moves(graph, every_code(best, k), rng)


def _at_once(k: int) -> list[tuple[int, float]]:
    """Numbers of eigenvectors, and powers of the eigenvalues that weigh them."""
    plain = [(max(1, m), 0.0) for m in (k - 1, k, 3 * k // 2, 2 * k, 3 * k)]
    return [*plain, (4 * k, 8.0), (4 * k, 16.0)]


def voted_for(
    cloud: Cloud, inputs: Inputs, known: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Trajectories of the cloud voted for [P, 3] by points of the trajectories [P].

    `known`: these are the trajectories of the cloud, which may not vote for themselves.
    """
    owner, points = cloud.owner, cloud.points
    if not known:
        rows, owner = steps_of(inputs, MOST_STEPS)
        points = (points_of(inputs, rows) - cloud.mean) @ cloud.axes
    near = nearest(cloud, points, owner if known else None, NEIGHBORS)
    return cloud.owner[near], owner
