"""Linking: small clusters inside each context, joined across contexts into hands.

Inside one context (one gesture, one letter) hands fall apart; across contexts the same
hand looks different. So each context is divided into small clusters, and these are
clustered under one rule: different clusters of one context are different hands. Where a
context has more clusters than there are hands, a hand may take several of them.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array, csr_array
from sklearn.neighbors import NearestNeighbors

from manyhands.assign.clustering import kmeans
from manyhands.assign.modularity import Graph, louvain
from manyhands.assign.whiten import context_means

NEIGHBORS = 3
RUNS = 8  # divisions of the contexts, each linked by itself
STARTS = 8  # of one linking
ROUNDS = 30
FINAL_STARTS = 10
NULLS = 20
NULL_STARTS = 8
MOST_AXES = 40  # principal axes of the cells that the test turns


@dataclass(frozen=True)
class Cells:
    """Small clusters: their context, their mean vector, and how many are in them."""

    of: np.ndarray  # [M]: the cell of each trajectory
    context: np.ndarray  # [n]
    means: np.ndarray  # [n, d]
    sizes: np.ndarray  # [n]


def find_hands(
    rows: np.ndarray, context: np.ndarray, k: int, seed: int
) -> tuple[np.ndarray, Cells]:
    """Codes [M] on which several runs agree, and the small clusters of the last run.

    Each run divides the contexts anew (Louvain's method depends on the order of nodes)
    and links. Trajectories are then clustered by the codes they had in all runs.
    """
    rng = np.random.default_rng(seed)
    divided = [divide(rows, context, k, rng) for _ in range(RUNS)]
    codes = [link(cells, k, rng)[0][cells.of] for cells in divided]
    member = np.concatenate([np.eye(k)[code] for code in codes], axis=1)
    return kmeans(member, k, seed, FINAL_STARTS), divided[-1]


def divide(
    rows: np.ndarray, context: np.ndarray, k: int, rng: np.random.Generator
) -> Cells:
    """Divide each context's trajectories, vectors [M, d], into small clusters.

    By Louvain's method on the graph of three nearest neighbors. In a context of fewer
    than 2 k trajectories each is its own cluster.
    """
    centered = rows - context_means(rows, context)[context]
    of = np.full(len(rows), -1)
    contexts = []
    for c in np.unique(context):
        inside = np.flatnonzero(context == c)
        labels = np.arange(len(inside))
        if len(inside) >= 2 * k:
            labels = louvain(neighbor_graph(centered[inside], NEIGHBORS), rng)
        of[inside] = len(contexts) + labels
        contexts += [c] * (labels.max() + 1)
    return Cells(of, np.array(contexts), context_means(rows, of), np.bincount(of))


def neighbor_graph(rows: np.ndarray, neighbors: int) -> Graph:
    """Nearest neighbors, weights exp(-d^2 / (s_i s_j)), s the last one's distance."""
    neighbors = min(neighbors, len(rows) - 1)
    search = NearestNeighbors(n_neighbors=neighbors).fit(rows)
    distance, near = search.kneighbors()
    own = np.maximum(distance[:, -1], 1e-12)
    weight = np.exp(-(distance**2) / (own[:, None] * own[near]))
    i = np.repeat(np.arange(len(rows)), neighbors)
    shape = (len(rows), len(rows))
    graph = csr_array(coo_array((weight.ravel(), (i, near.ravel())), shape))
    return Graph.of(graph.maximum(graph.T))


def link(
    cells: Cells, k: int, rng: np.random.Generator, starts: int = STARTS
) -> tuple[np.ndarray, float]:
    """Codes [n] of the cells, and the best objective of all starts.

    K-means over cells weighted by size; each round assigns the cells of one context to
    different codes at least cost (the Hungarian method). A start is the clusters of one
    context, chosen at random.
    """
    best, least = np.zeros(len(cells.sizes), int), np.inf
    members = [np.flatnonzero(cells.context == c) for c in np.unique(cells.context)]
    square = (cells.means**2).sum(1)
    for _ in range(starts):
        centers = cells.means[_start(cells, members, k, rng)]
        codes, objective = _settle(cells, members, centers, square)
        if objective < least:
            best, least = codes, objective
    return best, least


def _settle(cells, members, centers, square) -> tuple[np.ndarray, float]:
    """Rounds of assigning and averaging until no cell moves."""
    codes, objective = np.full(len(cells.sizes), -1), np.inf
    for _ in range(ROUNDS):
        distance = square[:, None] - 2 * cells.means @ centers.T
        distance += (centers**2).sum(1)
        cost = cells.sizes[:, None] * distance
        new = assign_apart(cost, members)
        objective = float(cost[np.arange(len(new)), new].sum())
        if np.array_equal(new, codes):
            break
        codes = new
        centers = centers_of(cells, codes, centers)
    return codes, objective


def assign_apart(cost: np.ndarray, members: list[np.ndarray]) -> np.ndarray:
    """Codes of least total cost [n, k]; no code repeats within a list of members.

    Of a list longer than k, each code may take up to ceil(length / k) members.
    """
    k = cost.shape[1]
    codes = np.empty(len(cost), int)
    for inside in members:
        seats = -(-len(inside) // k)
        row, seat = linear_sum_assignment(np.tile(cost[inside], seats))
        codes[inside[row]] = seat % k
    return codes


def centers_of(cells: Cells, codes: np.ndarray, before: np.ndarray) -> np.ndarray:
    """[k, d]: weighted means of the cells; a code without cells stays where it was."""
    member = np.eye(len(before))[codes] * cells.sizes[:, None]
    weight = member.sum(0)[:, None]
    means = (member.T @ cells.means) / np.maximum(weight, 1)
    return np.where(weight > 0, means, before)


def transfer(cells: Cells, k: int, rng: np.random.Generator) -> float:
    """Do the contexts share hands? Standard deviations by which linking beats chance.

    Chance: the signs of the cells' principal coordinates are drawn anew for each
    context, which keeps the geometry inside contexts and destroys what they share.
    """
    weight = np.sqrt(cells.sizes)[:, None]
    centered = cells.means - np.average(cells.means, axis=0, weights=cells.sizes)
    axes = np.linalg.svd(centered * weight, full_matrices=False)[2]
    rows = centered @ axes[:MOST_AXES].T
    real = link(replace(cells, means=rows), k, rng, NULL_STARTS)[1]
    nulls = []
    for _ in range(NULLS):
        signs = rng.choice([-1.0, 1.0], (int(cells.context.max()) + 1, rows.shape[1]))
        turned = replace(cells, means=rows * signs[cells.context])
        nulls.append(link(turned, k, rng, NULL_STARTS)[1])
    return float((np.mean(nulls) - real) / max(np.std(nulls), 1e-12))


def _start(cells, members, k, rng) -> np.ndarray:
    """k cells to start from: those of a random context, others where it has too few."""
    inside = rng.permutation(members[rng.integers(len(members))])[:k]
    others = np.setdiff1d(np.arange(len(cells.sizes)), inside)
    more = rng.choice(others, min(k - len(inside), len(others)), replace=False)
    chosen = np.concatenate([inside, more])
    return np.resize(chosen, k)
