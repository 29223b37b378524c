"""What tables and figures of a benchmark need besides scores, small enough for its
results: how good the data is, how returns are spread, and where trajectories lie by
what a behavior set has learnt.

Maps along a training are made at fixed steps: of a fit at those where it is inspected,
of policy learning at those where policies are evaluated.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.decomposition import PCA

from manyhands.algos.evaluate import by_source
from manyhands.behavior import schedule
from manyhands.behavior.estimate import Behavior
from manyhands.data.trajectories import Trajectories
from manyhands.envs.scores import normalized
from manyhands.files import atomic_file

BINS = 40  # of a histogram
SOURCES = 12  # that are told apart in it
SHOWN = 250  # trajectories on a map
POINTS = 3  # along training, besides the end
GRID = 999  # places are whole numbers from -GRID to GRID


def quality(data: Trajectories, env: str | None) -> dict[str, Any]:
    """Mean returns of all trajectories, and of every source where these are known and
    few: normalised, or plain where nobody has fixed a reference."""
    scores = normalized(data.returns, env or data.env_id or "")
    scores = data.returns if scores is None else scores
    few = data.sources is not None and len(data.source_names) <= SOURCES
    means = by_source(data, scores)
    sources = {name: means.get(name) for name in data.source_names if few}
    return {"data_score": float(scores.mean()), "source_scores": sources}


def histogram(data: Trajectories) -> dict[str, Any]:
    """Of returns, for every source where these are known and few."""
    low, high = float(data.returns.min()), float(data.returns.max())
    names = list(data.source_names) if data.sources is not None else []
    names = names if len(names) <= SOURCES else []
    whose = np.zeros(len(data), int) if not names else np.asarray(data.sources)

    def counts(source: int) -> list[int]:
        mine = data.returns[whose == source]
        return np.histogram(mine, BINS, (low, high))[0].tolist()

    every = [counts(source) for source in range(len(names) or 1)]
    return {"low": low, "high": high, "sources": names, "counts": every}


def chosen(trajectories: int) -> np.ndarray:
    """Which trajectories are on maps: the same on all of them."""
    order = np.random.default_rng(0).permutation(trajectories)
    return np.sort(order[:SHOWN])


def place(W: np.ndarray, E: np.ndarray, percentile: np.ndarray) -> dict[str, Any]:
    """The first two principal components of W (E in the same plane), as whole numbers;
    an axis points to where returns are higher, so that maps can be compared."""
    pca = PCA(n_components=min(2, *W.shape)).fit(W)
    shown = chosen(len(W))
    dots, centers = pca.transform(W[shown]), pca.transform(E)
    dots, centers = (np.pad(x, [(0, 0), (0, 2 - x.shape[1])]) for x in (dots, centers))
    signs = np.where((percentile[shown] - 50) @ dots < 0, -1, 1)
    unit = max(np.abs(dots).max(), np.abs(centers).max(initial=0), 1e-9) / GRID
    return {
        "xy": (signs * dots / unit).round().astype(int).T.tolist(),
        "behaviors": (signs * centers / unit).round().astype(int).T.tolist(),
        "variance": round(float(pca.explained_variance_ratio_.sum()), 3),
    }


def with_policy(model: Any, percentile: np.ndarray) -> dict[str, Any] | None:
    """The plane of a policy that has a place among behaviors, with the policy in it;
    None where learning has diverged."""
    W, E, e_pi = (_unit(np.asarray(x)) for x in (model.W, model.E, model.e_pi[None]))
    if not _finite(W, E, e_pi):
        return None
    found = place(W, np.concatenate([E, e_pi]), percentile)
    x, y = found["behaviors"]
    return found | {"behaviors": [x[:-1], y[:-1]], "policy": [x[-1:], y[-1:]]}


def percentiles(data: Trajectories) -> np.ndarray:
    return 100 * rankdata(data.returns) / len(data)


class Points:
    """Maps of some replicas, by the step, for as long as they may be needed in a
    file: an attempt that is killed leaves them to the next."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.by_step: dict[int, dict[int, Any]] = {}
        if file.exists():
            there = json.loads(file.read_text())
            self.by_step = {
                int(step): {int(r): one for r, one in maps.items()}
                for step, maps in there.items()
            }

    def add(self, step: int, maps: dict[int, Any]) -> None:
        """None is no map: that replica has diverged."""
        self.by_step[step] = {r: one for r, one in maps.items() if one is not None}
        with atomic_file(self.file) as temporary:
            temporary.write_text(json.dumps(self.by_step))

    def few(self, r: int, end: int) -> list[dict[str, Any]]:
        """A replica's, before the end."""
        before = [
            step for step, maps in self.by_step.items() if step < end and r in maps
        ]
        return [{"step": step, **self.by_step[step][r]} for step in spread(before, end)]


class Fitting:
    """Called with the models of all replicas along a fit: keeps maps of some."""

    def __init__(self, replicas: dict[int, Trajectories], file: Path) -> None:
        self.points = Points(file)
        self.percentile = {r: percentiles(data) for r, data in replicas.items()}

    def __call__(self, step: int, models: list[Any]) -> None:
        maps = {}
        for r, own in self.percentile.items():
            W, E = (_unit(np.asarray(x)) for x in (models[r].W, models[r].E))
            maps[r] = place(W, E, own) if _finite(W, E) else None
        self.points.add(step, maps)

    def maps(self, r: int, behavior: Behavior) -> dict[str, Any] | None:
        """Of one of these replicas: a few along training, and the last."""
        stages = schedule.plan("vq", behavior.options)
        end, coded = stages[-1].end, stages[-1].first
        points = [
            # Before there are codes, their places mean nothing.
            one | ({"behaviors": [[], []]} if one["step"] <= coded and coded else {})
            for one in self.points.few(r, end)
        ]
        W, E = (_unit(np.asarray(x)) for x in (behavior.model.W, behavior.model.E))
        if not _finite(W, E):
            return None
        own = self.percentile[r]
        shown = chosen(len(own))
        return {
            "percentile": own[shown].round().astype(int).tolist(),
            "codes": behavior.codes[shown].tolist(),
            "points": [*points, {"step": end, **place(W, E, own)}],
        }


class Learning:
    """Called with the models of all replicas as policies learn: keeps maps of some of
    them, where learners have a place for their policy among behaviors."""

    def __init__(self, replicas: dict[int, Trajectories], file: Path) -> None:
        self.points = Points(file)
        self.percentile = {r: percentiles(data) for r, data in replicas.items()}

    def __call__(self, step: int, models: list[Any]) -> None:
        if hasattr(models[0], "e_pi"):
            mine = self.percentile.items()
            self.points.add(step, {r: with_policy(models[r], own) for r, own in mine})

    def maps(self, r: int, model: Any, end: int) -> dict[str, Any]:
        """Of one of these replicas: a few along training, and the last."""
        if not hasattr(model, "e_pi"):
            return {}
        last = with_policy(model, self.percentile[r])
        learnt = {} if last is None else {"learnt": last}
        return {"learning": self.points.few(r, end)} | learnt


def spread(steps: list[int], end: int) -> list[int]:
    """Some of these steps, as evenly over the training as they allow."""
    aims = [end * (n + 0.5) / POINTS for n in range(POINTS)]
    near = [min(steps, key=lambda step: abs(step - aim)) for aim in aims if steps]
    return sorted(set(near))


def _finite(*arrays: np.ndarray) -> bool:
    return all(np.isfinite(array).all() for array in arrays)


def _unit(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.maximum(lengths, 1e-12)
