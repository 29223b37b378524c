"""Results by data set, algorithm and K, in the units in which they are compared."""

import re
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from manyhands.errors import UserError
from manyhands.sweep.statistics import Interval, improvement, iqm_interval


def natural(name: str) -> list[str | int]:
    """heterogeneous-2 comes before heterogeneous-10."""
    parts = re.split(r"(\d+)", name)
    return [int(part) if part.isdecimal() else part for part in parts]


def evaluated(row: dict[str, Any]) -> bool:
    return row["return_mean"] is not None or diverged(row)


def diverged(row: dict[str, Any]) -> bool:
    """Played, and its return is no number."""
    value = row["return_mean"]
    played = value is None and bool(row["returns"])
    return played or (value is not None and not np.isfinite(value))


class Scores:
    """Results by data set and algorithm."""

    def __init__(self, rows: list[dict[str, Any]]):
        _check_data(rows)
        # Not as they came: which fleet ends first is chance.
        rows = sorted(rows, key=lambda row: row["seed"])
        self.rows = [row for row in rows if evaluated(row)]
        self.data = sorted({row["data"] for row in self.rows}, key=natural)
        self.units = {data: measure(data, self.rows) for data in self.data}
        self.labels = sorted({row["label"] for row in self.rows}, key=natural)
        self._found: dict[tuple, list[float]] = defaultdict(list)
        for row in self.rows:
            key = row["data"], row["label"], row["k"]
            self._found[key].append(self.score(row))

    def score(self, row: dict[str, Any]) -> float:
        """Minus infinity where it has diverged."""
        return -np.inf if diverged(row) else row[self.units[row["data"]]]

    def of(self, data: str, label: str, k: str | None) -> np.ndarray:
        return np.array(self._found.get((data, label, k), []))

    def ks(self, label: str) -> list[str | None]:
        found = {k for _, other, k in self._found if other == label}
        return sorted(found, key=lambda k: natural(str(k)))

    def best(self, data: str, label: str) -> tuple[np.ndarray, str | None]:
        """With the best K on average, as the paper reports it, and which that is."""
        tried = [(self.of(data, label, k), k) for k in self.ks(label)]
        tried = [(runs, k) for runs, k in tried if len(runs)]
        if not tried:
            return np.array([]), None
        return max(tried, key=lambda one: one[0].mean())


def _check_data(rows: list[dict[str, Any]]) -> None:
    """A mean over runs on different data would be none of either."""
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = first.setdefault(row["data"], row)
        if one["fingerprint"] != row["fingerprint"]:
            raise UserError(
                f"{row['data']}: expected results of one data set, got some of "
                f"{one['transitions']:,} transitions (fingerprint "
                f"{one['fingerprint']}) and some of {row['transitions']:,} "
                f"({row['fingerprint']})"
            )


def measure(data: str, rows: list[dict[str, Any]]) -> str:
    """Relative returns where several agents made the data, as in the paper; else
    normalised ones; else, without a reference, plain ones."""
    mine = [row for row in rows if row["data"] == data and not diverged(row)]
    names = ["normalized", "return_mean"]
    if "heterogeneous" in data:
        names.insert(0, "relative")
    return next(n for n in names if all(row[n] is not None for row in mine))


class Together(NamedTuple):
    """Over all data sets whose scores are of one kind."""

    kind: str
    sets: int
    names: list[str]  # of those who have been run on all of them
    middle: list[Interval]  # interquartile means
    better: list[list[Interval | None]]  # [one, other]; None: itself


def together(scores: Scores) -> list[Together]:
    """Every K is for itself, since the best of several on the episodes that are
    compared would seem better than it is."""
    made = []
    for kind in ("relative", "normalized"):
        mine = [data for data in scores.data if scores.units[data] == kind]
        runs = {
            f"{label} (K = {k})" if len(scores.ks(label)) > 1 else label: [
                scores.of(data, label, k) for data in mine
            ]
            for label in scores.labels
            for k in scores.ks(label)
        }
        whole = {
            name: found
            for name, found in runs.items()
            if found and all(len(one) for one in found)
        }
        if whole:
            better = [
                [None if a == b else improvement(whole[a], whole[b]) for b in whole]
                for a in whole
            ]
            middle = [iqm_interval(found) for found in whole.values()]
            made.append(Together(kind, len(mine), list(whole), middle, better))
    return made
