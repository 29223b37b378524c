"""Several runs: how alike are their answers?"""

from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from manyhands.report.saved_run import SavedRun


def agreement(runs: list[SavedRun]) -> list[list[float | None]]:
    """[run, run] adjusted Rand index of who made what; None where it means nothing.

    That is where a run has no behaviors, or the two were fitted to different data.
    """
    codes = [
        None
        if one.fit is None
        else np.array([int(row["code"]) for row in one.fit.assignments()])
        for one in runs
    ]
    data = [one.config["data"]["fingerprint"] for one in runs]

    def pair(i: int, j: int) -> float | None:
        a, b = codes[i], codes[j]
        if a is None or b is None or data[i] != data[j]:
            return None
        return float(adjusted_rand_score(a, b))

    return [[pair(i, j) for j in range(len(runs))] for i in range(len(runs))]


def names(runs: list[SavedRun]) -> list[str]:
    """Short, and different from each other."""
    short = [one.name for one in runs]
    if len(set(short)) == len(short):
        return short
    longer = ["/".join(one.run.path.resolve().parts[-2:]) for one in runs]
    if len(set(longer)) == len(longer):
        return longer
    return [f"{name} ({i + 1})" for i, name in enumerate(longer)]


def comparison(runs: list[SavedRun]) -> dict[str, Any]:
    return {"names": names(runs), "agreement": agreement(runs)}
