"""Everything that the page shows of one run, as one JSON object."""

from typing import Any, NamedTuple

import numpy as np

from manyhands.behavior.estimate import Behavior
from manyhands.data.card import card
from manyhands.files import strict_json
from manyhands.report import behavior_table, trajectory_map
from manyhands.report.curves import curves, groups
from manyhands.report.packing import floats
from manyhands.report.saved_run import SavedRun
from manyhands.runs import Run

GIVE_DATA = "Give it: manyhands report RUN --data DATA."


def payload(saved: SavedRun, most: int = trajectory_map.SHOWN) -> dict[str, Any]:
    """
    Args:
        most: how many trajectories to show on the map.
    """
    content: dict[str, Any] = {
        "name": saved.name,
        "kind": "train" if saved.trained else "fit",
        "config": saved.config,
        "summary": saved.summary,
        "card": None if saved.data is None else card(saved.data),
        "missing": f"{saved.no_data} {GIVE_DATA}" if saved.no_data else "",
    }
    if saved.data is not None:
        counts, edges = np.histogram(saved.data.returns, 30)
        content["returns"] = {"counts": counts, "edges": edges}
    if saved.fit is not None and saved.fit_top is not None:
        content["fit"] = _fit(saved, saved.fit, saved.fit_top, most)
    if saved.trained:
        content["policy"] = {
            "curves": curves(saved.run.metrics()),
            "groups": groups(saved.config),
            "rows": saved.summary.get("replicas") or [saved.summary["policy"]],
        }
    return strict_json(content)


class Assigned(NamedTuple):
    """assignments.csv as columns."""

    trajectory: np.ndarray
    code: np.ndarray
    probability: np.ndarray
    returns: np.ndarray
    length: np.ndarray
    source: np.ndarray

    @staticmethod
    def of(run: Run) -> "Assigned":
        table = run.assignments()

        def column(name: str, kind: type) -> np.ndarray:
            return np.array([row[name] for row in table], kind)

        return Assigned(
            column("trajectory", int),
            column("code", int),
            column("probability", float),
            column("return", float),
            column("length", int),
            column("source", str),
        )


def _fit(saved: SavedRun, run: Run, top: Run, most: int) -> dict[str, Any]:
    about = run.read_json("behavior.json")["summary"]
    assigned = Assigned.of(run)
    shown = trajectory_map.sample(assigned.code, assigned.length, most)
    embeddings = _embeddings(saved, run)
    config = top.read_json("config.json")
    content: dict[str, Any] = {
        "summary": about,
        "config": config,
        "replicas": top.read_json("summary.json").get("replicas", []),
        "curves": curves(top.metrics()),
        "groups": groups(config),
        "trajectories": len(assigned.code),
        "shown": _shown(assigned, shown),
        "certain": _certain(assigned),
        "confusion": _confusion(assigned),
    }
    distances = behavior_table.angles(embeddings["E"]) if embeddings else None
    content["distance"] = "angle"
    if embeddings and len(assigned.code) > 1:
        content["places"] = trajectory_map.places(embeddings, shown)
    if saved.data is not None:
        looked, distances = _looked_at(run, saved, shown)
        content |= looked
        used = [row["code"] for row in about["codes"]]
        content["histograms"] = behavior_table.action_histograms(
            saved.data, assigned.code, used
        )
        content["distance"] = "nats"
    content["behaviors"] = behavior_table.rows(
        about["codes"], assigned.code, assigned.returns, distances
    )
    return content


def _embeddings(saved: SavedRun, run: Run) -> dict[str, np.ndarray] | None:
    """Of the policy's run where it has some: with e_pi among them.

    Those of a learner that has diverged are no places on a map.
    """
    for place in (saved.run, run):
        there = place.embeddings()
        found = {k: v for k, v in there.items() if np.isfinite(v).all()}
        if {"W", "E"} <= set(found):
            return found
    return None


def _looked_at(
    run: Run, saved: SavedRun, shown: np.ndarray
) -> tuple[dict[str, Any], np.ndarray]:
    """What the model says of the trajectories shown, and what they do over time."""
    assert saved.data is not None
    behavior = Behavior.load(run.path)
    data = saved.data[shown]
    by_code = behavior.code_log_probs(data)
    sums = np.add.reduceat(by_code.astype(np.float64), data.offsets[:-1], axis=0)
    codes = behavior.codes[shown]
    return {
        "log_probs": floats(sums / data.lengths[:, None]),
        "k": behavior.k,
        "unexplained": np.flatnonzero(behavior.unexplained(data, by_code)),
        "over_time": trajectory_map.over_time(data),
    }, behavior_table.divergences(sums, codes, data.lengths)


def _shown(assigned: Assigned, shown: np.ndarray) -> dict[str, Any]:
    sources = sorted(set(assigned.source.tolist()) - {""})
    number = {name: i for i, name in enumerate(sources)}
    return {
        "trajectory": assigned.trajectory[shown],
        "code": assigned.code[shown],
        "probability": floats(assigned.probability[shown]),
        "return": floats(assigned.returns[shown]),
        "length": assigned.length[shown],
        "source": [number.get(name, -1) for name in assigned.source[shown].tolist()],
        "source_names": sources,
    }


def _certain(assigned: Assigned) -> dict[str, Any]:
    """How probable the behavior is that each trajectory was given to."""
    bins = np.linspace(0, 1, 21)
    return {
        "bins": bins.round(2),
        "counts": np.histogram(assigned.probability, bins)[0],
        "below_90": int((assigned.probability < 0.9).sum()),
        "least": float(assigned.probability.min()),
    }


def _confusion(assigned: Assigned) -> dict[str, Any] | None:
    """How many trajectories of each known source went to each behavior."""
    if not (assigned.source != "").any():
        return None
    sources = sorted(set(assigned.source.tolist()))
    codes = sorted(set(assigned.code.tolist()))
    counts = [
        [int(((assigned.source == s) & (assigned.code == c)).sum()) for c in codes]
        for s in sources
    ]
    return {"sources": sources, "codes": codes, "counts": counts}
