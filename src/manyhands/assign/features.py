"""Feature vectors of trajectories: every view whitened, of length one, side by side."""

from dataclasses import dataclass

import numpy as np

from manyhands.assign.inputs import Inputs
from manyhands.assign.views import VIEWS
from manyhands.assign.whiten import (
    Projection,
    block_means,
    context_means,
    fit_projection,
    length_one,
    project,
    whole_means,
)

MOST_COORDINATES = 40  # of a view; fewer where k is below half of it


@dataclass(frozen=True)
class FeatureMap:
    """What maps trajectories to vectors: each view's arrays and its projection."""

    views: dict[str, dict[str, np.ndarray]]
    projections: dict[str, Projection]


@dataclass(frozen=True)
class Vectors:
    """Vectors [M, d] of whole trajectories, and of blocks 1, 3 and 2, 4 of them."""

    whole: np.ndarray
    halves: tuple[np.ndarray, np.ndarray]


def fit_features(
    inputs: Inputs, k: int, seed: int, views: tuple[str, ...] = tuple(VIEWS)
) -> tuple[FeatureMap, Vectors]:
    """Fit all views that apply; min(2 k, 40) coordinates of each."""
    axes = min(2 * k, MOST_COORDINATES)
    parts, projections, means = {}, {}, {}
    for number, name in enumerate(views):
        view, rng = VIEWS[name], np.random.default_rng([seed, number])
        if not view.applies(inputs):
            continue
        own = parts[name] = view.fit(inputs, rng)
        blocks = block_means(inputs, lambda part, f=view.steps, own=own: f(part, own))
        projections[name] = fit_projection(*blocks, axes, inputs.context, inputs.group)
        means[name] = _parts_of(*blocks)
    features = FeatureMap(parts, projections)
    return features, _vectors(inputs, features, means)


def vectors(inputs: Inputs, features: FeatureMap) -> Vectors:
    """The same vectors for new trajectories."""
    means = {}
    for name, own in features.views.items():
        view = VIEWS[name]
        means[name] = _parts_of(
            *block_means(inputs, lambda part, f=view.steps, own=own: f(part, own))
        )
    return _vectors(inputs, features, means)


def _parts_of(blocks: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """Mean features of the whole, of blocks 1 and 3, of blocks 2 and 4: [M, F] each.

    A half without steps (of a trajectory of one step) is the whole.
    """
    whole = whole_means(blocks, counts)
    halves = []
    for some in (slice(0, None, 2), slice(1, None, 2)):
        empty = counts[:, some].sum(1) == 0
        count = np.where(empty[:, None], 1, counts[:, some])
        half = whole_means(blocks[:, some], count)
        halves.append(np.where(empty[:, None], whole, half))
    return [whole, *halves]


def _vectors(inputs: Inputs, features: FeatureMap, means: dict) -> Vectors:
    joined = []
    for part in range(3):
        rows = []
        for name, projection in features.projections.items():
            own = project(projection, means[name][part], inputs.context)
            if inputs.group is not None:
                own = context_means(own, inputs.group)[inputs.group]
            rows.append(length_one(own))
        joined.append(np.concatenate(rows, axis=1))
    return Vectors(joined[0], (joined[1], joined[2]))
