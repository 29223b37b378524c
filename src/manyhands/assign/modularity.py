"""Clusters of a graph by modularity: single moves, Louvain's method, annealing.

A graph has weights w of total one, positive for neighbors. What chance would give is
r d d', with degrees d and a resolution r. The quality of a partition is

Q = sum over clusters of (weight inside - r (share of all degrees)^2).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array


@dataclass(frozen=True)
class Graph:
    """Symmetric weights [n, n], degrees [n] of total one, and the resolution."""

    weights: csr_array
    degree: np.ndarray
    resolution: float = 1.0

    @classmethod
    def of(cls, weights, resolution: float = 1.0) -> "Graph":
        weights = csr_array(weights / weights.sum())
        return cls(weights, np.asarray(weights.sum(1)).ravel(), resolution)

    def __len__(self) -> int:
        return len(self.degree)

    def joined(self, labels: np.ndarray) -> "Graph":
        """The graph whose nodes are the clusters."""
        n, k = len(labels), int(labels.max()) + 1
        member = csr_array((np.ones(n), (np.arange(n), labels)), (n, k))
        weights = csr_array(member.T @ self.weights @ member)
        return Graph(weights, member.T @ self.degree, self.resolution)

    def quality(self, labels: np.ndarray) -> float:
        """Q of a partition."""
        joined = self.joined(labels)
        expected = self.resolution * (joined.degree**2).sum()
        return float(joined.weights.trace() - expected)

    def inside_share(self, labels: np.ndarray) -> float:
        """The share of all weight that lies inside clusters."""
        return float(self.joined(labels).weights.trace() / self.weights.sum())


def single_moves(
    graph: Graph,
    labels: np.ndarray,
    rng: np.random.Generator,
    *,
    sweeps: int = 10,
    may_empty: bool = False,
) -> np.ndarray:
    """Move one node at a time to the neighboring cluster that raises Q most."""
    weights: Any = graph.weights
    start, columns = weights.indptr.tolist(), weights.indices.tolist()
    values, degrees = graph.weights.data.tolist(), graph.degree.tolist()
    code = labels.tolist()
    size = np.bincount(labels).tolist()
    load = np.bincount(labels, weights=graph.degree).tolist()
    for _ in range(sweeps):
        moved = False
        for i in rng.permutation(len(code)).tolist():
            old = code[i]
            if size[old] == 1 and not may_empty:
                continue
            links = {old: 0.0}
            for at in range(start[i], start[i + 1]):
                j = columns[at]
                if j != i:
                    links[code[j]] = links.get(code[j], 0.0) + values[at]
            load[old] -= degrees[i]
            pull = graph.resolution * degrees[i]
            gain = {k: w - pull * load[k] for k, w in links.items()}
            best = max(gain, key=gain.__getitem__)
            if gain[best] <= gain[old] + 1e-12:
                best = old
            load[best] += degrees[i]
            if best != old:
                code[i] = best
                size[old] -= 1
                size[best] += 1
                moved = True
        if not moved:
            break
    return np.array(code)


def louvain(graph: Graph, rng: np.random.Generator) -> np.ndarray:
    """As many clusters as there are, by Louvain's method (Blondel and others, 2008)."""
    labels = np.arange(len(graph))
    while True:
        start = np.arange(len(graph))
        moved = single_moves(graph, start, rng, sweeps=50, may_empty=True)
        found, moved = np.unique(moved, return_inverse=True)
        if len(found) == len(graph):
            return labels
        labels, graph = moved[labels], graph.joined(moved)


def anneal(
    graph: Graph,
    k: int,
    rng: np.random.Generator,
    *,
    runs: int = 12,
    sweeps: int = 200,
) -> np.ndarray:
    """Label m nodes with k codes by simulated annealing of Q; the best run's labels.

    All runs advance together. One node a time draws its label with probability
    proportional to exp(gain / temperature), while the temperature falls.
    """
    matrix = graph.weights.toarray()
    matrix -= graph.resolution * np.outer(graph.degree, graph.degree)
    m = len(matrix)
    itself = np.diag(matrix).copy()
    labels = rng.integers(k, size=(runs, m))
    towards = np.einsum("ij,rjk->rik", matrix, np.eye(k)[labels])  # [runs, m, k]
    hottest = np.abs(matrix - np.diag(itself)).sum(1).mean() / 2
    for temperature in hottest * np.geomspace(1.0, 2e-3, sweeps * m):
        i = rng.integers(m, size=runs)
        run = np.arange(runs)
        old = labels[run, i]
        gain = 2 * towards[run, i]
        gain[run, old] -= 2 * itself[i]
        new = np.argmax(gain + temperature * rng.gumbel(size=gain.shape), axis=1)
        run = np.flatnonzero(new != old)
        if len(run):
            i, old, new = i[run], old[run], new[run]
            towards[run, :, old] -= matrix[i]
            towards[run, :, new] += matrix[i]
            labels[run, i] = new
    quality = np.einsum("rmk,rmk->r", towards, np.eye(k)[labels])
    return labels[np.argmax(quality)]
