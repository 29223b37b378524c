"""Stored rules: what is kept of a fit to assign trajectories, old and new.

Every rule measures a distance [M, k] from trajectories to codes, and places them in the
space of its map. Which code a trajectory has is the least distance; how sure that is,
softmax(-distance / temperature).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from manyhands.assign.features import FeatureMap, vectors
from manyhands.assign.hidden_contexts import Kinds, with_kinds
from manyhands.assign.inputs import Inputs
from manyhands.assign.step_graph import Cloud, voted_for
from manyhands.assign.whiten import context_means

FIRM = (
    8.0  # trajectories of a code in a context whose mean counts as much as the center
)


class Rule(Protocol):
    kind: ClassVar[str]

    def place(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Distances [M, k] to the codes and coordinates [M, d] of new trajectories."""
        ...


@dataclass(frozen=True)
class OneRule:
    """One hand made everything."""

    kind: ClassVar[str] = "one hand"

    def place(self, inputs: Inputs):
        return np.zeros((len(inputs), 1)), np.zeros((len(inputs), 2))


@dataclass(frozen=True)
class VoteRule:
    """Steps vote: the distance to a code is the share of votes for other codes."""

    cloud: Cloud
    codes: np.ndarray  # [M] of the cloud's trajectories
    rows: np.ndarray  # [M, d]: their coordinates
    k: int
    kind: ClassVar[str] = "step graph"

    def place(self, inputs: Inputs, known: bool = False):
        near, owner = voted_for(self.cloud, inputs, known)
        counts = np.zeros((len(inputs), self.k))
        sums = np.zeros((len(inputs), self.rows.shape[1]))
        for vote in near.T:
            np.add.at(counts, (owner, self.codes[vote]), 1.0)
            np.add.at(sums, owner, self.rows[vote])
        shares = counts / counts.sum(1, keepdims=True)
        rows = sums / counts.sum(1, keepdims=True)
        if inputs.group is not None:
            shares, rows = (
                context_means(x, inputs.group)[inputs.group] for x in (shares, rows)
            )
        return 1 - shares, rows


@dataclass(frozen=True)
class CenterRule:
    """The nearest center in the space of whitened features."""

    features: FeatureMap
    centers: np.ndarray  # [k, d]
    kind: ClassVar[str] = "features"

    def place(self, inputs: Inputs):
        rows = vectors(inputs, self.features).whole
        return self.distances(rows), rows

    def distances(self, rows: np.ndarray) -> np.ndarray:
        return squared_distances(rows, self.centers)


@dataclass(frozen=True)
class CellRule:
    """The nearest code, by what each code does in the trajectory's own context.

    A code with n trajectories in a context is expected at (n mean + 8 center) / (n + 8)
    there, and at its center in contexts where it has none and in unknown contexts.
    """

    features: FeatureMap
    kinds: Kinds | None  # where contexts were found, not declared
    centers: np.ndarray  # [k, d]
    cell_means: np.ndarray  # [n, d]
    cell_sizes: np.ndarray  # [n]
    cell_contexts: np.ndarray  # [n]
    cell_codes: np.ndarray  # [n]
    kind: ClassVar[str] = "linked contexts"

    def place(self, inputs: Inputs):
        if self.kinds is not None:
            inputs = with_kinds(inputs, self.kinds)
        rows = vectors(inputs, self.features).whole
        return self.distances(rows, inputs.context), rows

    def distances(self, rows: np.ndarray, context: np.ndarray | None) -> np.ndarray:
        weight = self.cell_sizes[:, None] / (self.cell_sizes[:, None] + FIRM)
        means = weight * self.cell_means + (1 - weight) * self.centers[self.cell_codes]
        result = squared_distances(rows, self.centers)
        if context is None:
            return result
        for c, code, mean in zip(self.cell_contexts, self.cell_codes, means):
            inside = np.flatnonzero(context == c)
            result[inside, code] = squared_distances(rows[inside], mean[None])[:, 0]
        return result


def squared_distances(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """[M, k]"""
    square = (rows**2).sum(1)[:, None] - 2 * rows @ centers.T + (centers**2).sum(1)
    return np.maximum(square, 0)


def temperature(distances: np.ndarray, codes: np.ndarray) -> float:
    """The temperature at which softmax(-distance / T) predicts the codes best.

    Distances of halves of trajectories, or of votes without one's own, are to be given:
    those of what the codes were fitted to would promise too much.
    """

    def surprise(log_t: float) -> float:
        logs = log_softmax(-distances / np.exp(log_t), axis=1)
        return -float(logs[np.arange(len(codes)), codes].mean())

    scale = max(float(distances.std()), 1e-6)
    bounds = (np.log(scale * 1e-2), np.log(scale * 1e2))
    found: Any = minimize_scalar(surprise, bounds=bounds, method="bounded")
    return float(np.exp(found.x))


def responsibilities(
    distances: np.ndarray, heat: float, codes: np.ndarray | None = None
) -> np.ndarray:
    """softmax(-distance / T) [M, k]; a given code is never less likely than another."""
    if codes is not None:
        distances = distances.copy()
        distances[np.arange(len(codes)), codes] = distances.min(1)
    result = softmax(-distances / heat, axis=1)
    if codes is not None:  # ties go to the code
        result[np.arange(len(codes)), codes] *= 1 + 1e-9
    return result / result.sum(1, keepdims=True)


def halves_temperature(halves: list[np.ndarray], codes: np.ndarray) -> float:
    """The temperature from distances of the two halves of each trajectory."""
    return temperature(np.concatenate(halves), np.concatenate([codes, codes]))
