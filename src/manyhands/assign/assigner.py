"""`fit_who`: which hand made which trajectory, by the assigner that suits the data.

1. No context declared, and at least .9 of the votes of neighboring steps lie inside k
   parts: the step graph answers.
2. Contexts declared, or found in the paths (.9 of the edges between like paths lie
   inside kinds of movement, and linking beats chance by 3 deviations): small clusters
   inside contexts are linked.
3. Otherwise, and with groups: K-means of whitened feature vectors.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.assign import hidden_contexts, linking, step_graph, store
from manyhands.assign.clustering import kmeans, polish
from manyhands.assign.features import fit_features
from manyhands.assign.inputs import Inputs, Scaling
from manyhands.assign.rules import (
    CellRule,
    CenterRule,
    OneRule,
    Rule,
    VoteRule,
    halves_temperature,
    responsibilities,
    temperature,
)
from manyhands.assign.views import VIEWS
from manyhands.assign.whiten import context_means
from manyhands.errors import UserError, check_seed

MOST_FITTED = 3_000  # trajectories; of more a random part is fitted, the rest assigned
ENOUGH_INSIDE_KINDS = 0.9
ENOUGH_TRANSFER = 3.0
STARTS = 20
PARTS = (
    "graph",
    "alike",
    "link",
    "hidden",
    "polish",
    *VIEWS,
)  # what `without` can leave out


@dataclass(frozen=True)
class Assignment:
    """Codes of the trajectories, and the rule for new ones."""

    codes: np.ndarray  # [M]
    responsibilities: np.ndarray  # [M, k] of the found codes, not of true sources
    embedding: np.ndarray  # [M, d]: coordinates for a map
    centers: np.ndarray  # [k, d]: the mean of each code there
    how: str  # the assigner that answered: "step graph", "linked contexts", ...
    why: str  # a sentence
    evidence: dict[str, Any]  # the numbers that decided, for a report
    context: np.ndarray | None  # [M]: contexts declared or found, where there are any
    scaling: Scaling
    rule: Rule
    heat: float

    @property
    def k(self) -> int:
        return len(self.centers)

    def assign(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Codes [M] and responsibilities [M, k] of new trajectories.

        Prepare them with `scaling=assignment.scaling`.
        """
        distances, _ = self.rule.place(inputs)
        return distances.argmin(1), responsibilities(distances, self.heat)

    def embed(self, inputs: Inputs) -> np.ndarray:
        """Coordinates [M, d] of new trajectories."""
        return self.rule.place(inputs)[1]

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Named arrays, and what JSON can hold."""
        return store.flatten(self)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], about: dict) -> "Assignment":
        return store.rebuild(cls, arrays, about)

    def save(self, path: str | Path) -> None:
        """One NumPy archive, without pickles."""
        store.write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Assignment":
        return store.read(cls, Path(path))


def fit_who(
    inputs: Inputs, k: int, seed: int = 0, *, without: Collection[str] = ()
) -> Assignment:
    """Divide the trajectories among k hands.

    Args:
        inputs: from `prepare`.
        k: number of hands.
        seed: of every random choice; the same seed gives the same answer.
        without: parts to leave out, of `PARTS`: to measure what each is worth.
    """
    check_seed(seed)
    _check(inputs, k, without)
    rng = np.random.default_rng(seed)
    if k == 1:
        return _one_hand(inputs)
    fitted = _some(inputs, k, rng)
    part = inputs if fitted is None else inputs.take(fitted)
    found = _fit(part, k, seed, frozenset(without))
    if fitted is None:
        return found
    return _extended(found, inputs, fitted)


def _fit(inputs: Inputs, k: int, seed: int, without: frozenset[str]) -> Assignment:
    evidence: dict[str, Any] = {}
    if inputs.context is None and "graph" not in without:
        graph = step_graph.build(inputs)
        labels, share = step_graph.find_sources(
            inputs, graph, k, seed, alike="alike" not in without
        )
        evidence["inside_share"] = share
        if share >= step_graph.ENOUGH_INSIDE:
            return _by_votes(inputs, graph, labels, k, evidence)
    views = tuple(name for name in VIEWS if name not in without)
    kinds = None
    if inputs.group is None and "link" not in without:
        if inputs.context is not None:
            return _by_linking(inputs, k, seed, views, evidence, None)
        moving = inputs.observations.shape[1] > 0 and len(inputs) >= 4 * k
        if "hidden" not in without and moving:
            rng = np.random.default_rng([seed, 1])
            kinds = hidden_contexts.find(inputs, k, rng)
            evidence["inside_share_of_paths"] = kinds.share
            if kinds.share >= ENOUGH_INSIDE_KINDS and kinds.labels.max() > 0:
                found = replace(inputs, context=kinds.labels)
                linked = _by_linking(found, k, seed, views, evidence, kinds)
                if linked.evidence["transfer"] >= ENOUGH_TRANSFER:
                    return linked
                evidence["transfer"] = linked.evidence["transfer"]
    return _by_features(inputs, k, seed, views, evidence, without)


# --- Three assigners ---


def _by_votes(inputs, graph, labels, k, evidence) -> Assignment:
    codes = labels if inputs.group is None else labels[inputs.group]
    rows = step_graph.spectrum(graph.votes, k)[1]
    rows = rows if inputs.group is None else rows[inputs.group]
    rule = VoteRule(graph.cloud, codes, rows, k)
    distances, _ = rule.place(inputs, known=True)
    heat = temperature(distances, codes)
    share = evidence["inside_share"]
    why = (
        f"Single steps betray their source: they fall apart into {k} groups, and "
        f"{share:.2f} of the votes of neighboring steps stay inside them."
    )
    return _assignment(inputs, codes, distances, rows, rule, heat, why, evidence)


def _by_features(inputs, k, seed, views, evidence, without) -> Assignment:
    features, found = fit_features(inputs, k, seed, views)
    if inputs.group is None:
        codes = kmeans(found.whole, k, seed, STARTS)
        if "polish" not in without:
            codes = polish(found.whole, codes, k)
    else:
        first = np.unique(inputs.group, return_index=True)[1]
        size = np.bincount(inputs.group)
        codes = kmeans(found.whole[first], k, seed, STARTS, size)[inputs.group]
    rule = CenterRule(features, context_means(found.whole, codes))
    heat = halves_temperature([rule.distances(half) for half in found.halves], codes)
    distances = rule.distances(found.whole)
    why = (
        "Single steps do not betray their source, so trajectories were compared by "
        f"what they do on the whole: {len(features.views)} views of their actions."
    )
    rows = found.whole
    return _assignment(inputs, codes, distances, rows, rule, heat, why, evidence)


def _by_linking(inputs, k, seed, views, evidence, kinds) -> Assignment:
    features, found = fit_features(inputs, k, seed, views)
    context = inputs.context
    codes, cells = linking.find_hands(found.whole, context, k, seed)
    rng = np.random.default_rng([seed, 2])
    evidence = {
        **evidence,
        "contexts": int(context.max()) + 1,
        "clusters": len(cells.sizes),
        "transfer": linking.transfer(cells, k, rng),
    }
    # What a hand does in a context, for new trajectories.
    pairs, cell = np.unique(context * k + codes, return_inverse=True)
    rule = CellRule(
        features=features,
        kinds=kinds,
        centers=context_means(found.whole, codes),
        cell_means=context_means(found.whole, cell),
        cell_sizes=np.bincount(cell),
        cell_contexts=pairs // k,
        cell_codes=pairs % k,
    )
    heat = halves_temperature(
        [rule.distances(half, context) for half in found.halves], codes
    )
    distances = rule.distances(found.whole, context)
    number = evidence["contexts"]
    source = "were declared" if kinds is None else "were found in the paths"
    why = (
        f"{number} contexts {source}; {evidence['clusters']} small clusters inside "
        f"them were linked into {k} hands, different clusters of a context being "
        f"different hands."
    )
    rows = found.whole
    return _assignment(inputs, codes, distances, rows, rule, heat, why, evidence)


def _assignment(inputs, codes, distances, rows, rule, heat, why, evidence):
    return Assignment(
        codes=codes,
        responsibilities=responsibilities(distances, heat, codes),
        embedding=rows,
        centers=context_means(rows, codes),
        how=rule.kind,
        why=why,
        evidence=evidence,
        context=inputs.context,
        scaling=inputs.scaling,
        rule=rule,
        heat=heat,
    )


# --- Edge cases ---


def _check(inputs: Inputs, k: int, without: Collection[str]) -> None:
    unknown = sorted(set(without) - set(PARTS))
    if unknown or set(VIEWS) <= set(without):
        raise UserError(
            f"without: expected some of {', '.join(PARTS)}, and not every view; got "
            f"{', '.join(unknown or without)}"
        )
    what, count = "trajectories", len(inputs)
    if inputs.group is not None:
        what, count = "groups", int(inputs.group.max()) + 1
    if not 1 <= k <= count:
        raise UserError(
            f"k: expected between 1 and the number of {what}, {count}; got {k}"
        )


def _one_hand(inputs: Inputs) -> Assignment:
    rows = np.zeros((len(inputs), 2))
    codes = np.zeros(len(inputs), int)
    rule = OneRule()
    why = "One hand was asked for."
    return _assignment(inputs, codes, rows[:, :1], rows, rule, 1.0, why, {})


def _some(inputs: Inputs, k: int, rng: np.random.Generator) -> np.ndarray | None:
    """Numbers of the trajectories to fit, None for all."""
    most = max(MOST_FITTED, 4 * k)
    if len(inputs) <= most:
        return None
    return np.sort(rng.choice(len(inputs), most, replace=False))


def _extended(found: Assignment, inputs: Inputs, fitted: np.ndarray) -> Assignment:
    """The same assignment for all trajectories: those not fitted go by the rule."""
    others = np.setdiff1d(np.arange(len(inputs)), fitted)
    distances, rows = found.rule.place(inputs.take(others))
    if isinstance(found.rule, CellRule) and found.rule.kinds is not None:
        context = hidden_contexts.kinds_of(inputs, found.rule.kinds)
    else:
        context = inputs.context
    codes = np.empty(len(inputs), int)
    shares = np.empty((len(inputs), found.k))
    embedding = np.empty((len(inputs), rows.shape[1]))
    for which, part in (
        (fitted, (found.codes, found.responsibilities, found.embedding)),
        (others, (distances.argmin(1), responsibilities(distances, found.heat), rows)),
    ):
        codes[which], shares[which], embedding[which] = part
    if inputs.group is not None:  # a group keeps the code of its fitted trajectories
        first = np.unique(inputs.group[fitted], return_index=True)
        of_group = np.full(int(inputs.group.max()) + 1, -1)
        of_group[first[0]] = found.codes[first[1]]
        known = of_group[inputs.group] >= 0
        codes[known] = of_group[inputs.group][known]
    return replace(
        found,
        codes=codes,
        responsibilities=shares,
        embedding=embedding,
        context=context,
        why=f"{found.why} {len(fitted):,} trajectories, drawn at random, were fitted; "
        "the others were assigned by the same rule.",
    )
