"""How many hands? A number where groups are known, an interval where they are not.

With groups: the silhouette of group vectors. Without: several signs of stability, each
with its own number; they name the strongest division of the data, which need not be the
finest, so that many hands are rarely found. What they allow is an interval.
"""

import math
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import adjusted_rand_score, silhouette_samples

from manyhands.assign import step_graph
from manyhands.assign.clustering import kmeans
from manyhands.assign.features import Vectors, fit_features
from manyhands.assign.inputs import Inputs
from manyhands.assign.rules import squared_distances
from manyhands.assign.whiten import context_means
from manyhands.errors import check_seed

TRIED = (*range(2, 11), 12, 14, 16, 18, 20, 22, 25, 28, 32)
AXES_FOR = 10  # hands for which features are fitted: 20 coordinates of each view
STARTS = 5
MOST = 1_000  # trajectories (or groups) that are looked at
# With groups
ONE_HAND_BELOW = 0.15  # greatest silhouette
PERHAPS_ONE_BELOW = 0.4
ENOUGH_GROUPS = 8  # for each hand, below which no single number is named
MARGIN = 1.25
# Without
STABLE_HALVES = 0.4
STABLE_DRAWS = 0.5
STABLE_STARTS = 0.85
PREDICTED = 0.8  # prediction strength of Tibshirani and Walther (2005)
GRAPH_SHARE, GRAPH_LEAST = 0.95, 0.9
REACH = 1.5


@dataclass(frozen=True)
class Number:
    """Between `low` and `high` hands; `best` is None where no number is to be named."""

    low: int
    high: int
    best: int | None
    why: str
    curves: dict[str, dict[int, float]]  # each sign at each number that was tried

    @property
    def guess(self) -> int:
        """A number to go on with: the best, or the interval's geometric middle."""
        return self.best or max(1, round(math.sqrt(self.low * self.high)))


def how_many(inputs: Inputs, seed: int = 0) -> Number:
    """Estimate the number of hands."""
    check_seed(seed)
    grouped = inputs.group is not None
    units = len(inputs) if inputs.group is None else int(inputs.group.max()) + 1
    tried = [k for k in TRIED if k <= units / (2 if grouped else 6)]
    if not tried:
        what = "groups" if grouped else "trajectories"
        return Number(
            1, max(units, 1), None, f"{units} {what} are too few to tell.", {}
        )
    _, found = fit_features(inputs, AXES_FOR, seed)
    if inputs.group is not None:
        return _from_groups(found.whole, inputs.group, tried, seed)
    some = np.random.default_rng(seed).permutation(units)[:MOST]
    halves = (found.halves[0][some], found.halves[1][some])
    signs = _signs(Vectors(found.whole[some], halves), tried, seed)
    if inputs.context is None:
        signs["graph"] = _graph_sign(inputs, tried, seed)
    return _from_signs(signs)


# --- With groups ---


def _from_groups(rows, group, tried, seed) -> Number:
    first = np.unique(group, return_index=True)[1]
    rows, size = rows[first], np.bincount(group)
    curve = {}
    for k in tried:
        labels = kmeans(rows, k, seed, STARTS, size)
        curve[k] = float(np.mean(np.asarray(silhouette_samples(rows, labels))))
    k = max(curve, key=curve.__getitem__)
    peak = curve[k]
    if peak < ONE_HAND_BELOW:
        why = f"Groups do not fall apart (silhouette {peak:.2f})."
        return Number(1, 1, 1, why, {"silhouette": curve})
    low, high = math.floor(k / MARGIN), math.ceil(k * MARGIN)
    low = 1 if peak < PERHAPS_ONE_BELOW else low
    why = f"Groups fall apart best into {k} (silhouette {peak:.2f})."
    few = len(first) < ENOUGH_GROUPS * k
    if few:
        why += f" {len(first)} groups are too few to name one number."
    return Number(low, high, None if few else k, why, {"silhouette": curve})


# --- Without groups ---


def _signs(found: Vectors, tried: list[int], seed: int) -> dict[str, dict[int, float]]:
    """Four signs of stability at each number.

    - halves: the two halves of every trajectory, clustered apart, agree;
    - draws: two halves of the data agree, each labelled by the other's centers;
    - strength: the least cluster's share of pairs that the other half keeps together;
    - starts: K-means from single starts agrees with itself.
    """
    signs: dict[str, dict[int, float]] = {
        name: {} for name in ("halves", "draws", "strength", "starts")
    }
    order = np.random.default_rng(seed).permutation(len(found.whole))
    one, other = (found.whole[part] for part in np.array_split(order, 2))
    for k in tried:
        apart = [kmeans(half, k, seed, STARTS) for half in found.halves]
        signs["halves"][k] = adjusted_rand_score(*apart)
        own = [kmeans(rows, k, seed, STARTS) for rows in (one, other)]
        crossed = [
            _nearest(rows, context_means(by, labels))
            for rows, by, labels in ((one, other, own[1]), (other, one, own[0]))
        ]
        pairs = list(zip(own, crossed))
        signs["draws"][k] = float(np.mean([adjusted_rand_score(*p) for p in pairs]))
        signs["strength"][k] = float(np.mean([_strength(*p) for p in pairs]))
        runs = [kmeans(found.whole, k, seed + n, 1) for n in range(STARTS)]
        signs["starts"][k] = float(
            np.mean([adjusted_rand_score(runs[0], run) for run in runs[1:]])
        )
    return signs


def _nearest(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    return squared_distances(rows, centers).argmin(1)


def _strength(labels: np.ndarray, crossed: np.ndarray) -> float:
    """min over clusters: the share of its pairs that are together when crossed."""
    shares = []
    for code in np.unique(labels):
        inside = crossed[labels == code]
        n = len(inside)
        if n > 1:
            together = (np.bincount(inside) ** 2).sum() - n
            shares.append(together / (n * (n - 1)))
    return float(min(shares, default=0.0))


def _graph_sign(inputs: Inputs, tried: list[int], seed: int) -> dict[int, float]:
    """The least inside share of the parts; 0 where too many votes cross the cut."""
    part = inputs
    if len(inputs) > MOST:
        some = np.random.default_rng(seed).permutation(len(inputs))[:MOST]
        part = inputs.take(np.sort(some))
    votes = step_graph.build(part).votes
    curve = {}
    for k in tried:
        labels = step_graph.cut_at_once(votes, k, seed)
        joined = votes.joined(labels)
        inside = joined.weights.diagonal() / np.maximum(joined.degree, 1e-12)
        curve[k] = float(inside.min())
        if votes.inside_share(labels) < GRAPH_SHARE:
            curve[k] = 0.0
            break  # finer cuts are crossed by more votes
    return curve


def _from_signs(signs: dict[str, dict[int, float]]) -> Number:
    def largest(name: str, least: float) -> int:
        return max((k for k, value in signs[name].items() if value >= least), default=1)

    def peak(name: str, least: float) -> int:
        k = max(signs[name], key=signs[name].__getitem__)
        return k if signs[name][k] >= least else 1

    numbers = {
        "halves": peak("halves", STABLE_HALVES),
        "draws": peak("draws", STABLE_DRAWS),
        "strength": largest("strength", PREDICTED),
        "starts": largest("starts", STABLE_STARTS),
    }
    graph = largest("graph", GRAPH_LEAST) if "graph" in signs else 1
    if graph > 1:
        low, high = math.floor(graph / MARGIN), math.ceil(graph * MARGIN)
        why = f"Single steps fall apart into at most {graph} groups that hold together."
        return Number(low, high, graph, why, signs)
    low, high = min(numbers.values()), math.ceil(REACH * max(numbers.values()))
    named = ", ".join(f"{name} {k}" for name, k in numbers.items())
    why = f"Signs of stability name different numbers of hands: {named}."
    if len(set(numbers.values())) == 1:
        why = f"All signs of stability name the same number of hands ({named})."
    if low == 1:
        why += " One hand is not excluded."
    best = round(float(np.median(list(numbers.values()))))
    return Number(low, high, best if high <= 2 * low else None, why, signs)
