"""One fleet, in a process of its own: what it takes is given back when it ends.

python -m manyhands.sweep.run_fleet DIR [WORKERS] reads the fleet from the first line of
its standard input, and leaves DIR/runs/NAME/rows.json. When its standard input ends, so
does it: a benchmark that was killed leaves nobody behind to write where the next one
does.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyhands import datasets
from manyhands.algos import arenas
from manyhands.algos.policy import Policy
from manyhands.algos.registry import algorithm
from manyhands.algos.train import train
from manyhands.behavior.estimate import Behavior
from manyhands.behavior.fit import fit
from manyhands.data.trajectories import Trajectories
from manyhands.files import atomic_file, strict_json
from manyhands.runs import Run, environment
from manyhands.sweep.configs import config_of, options_of
from manyhands.sweep.making import end_with_the_caller, place_of
from manyhands.sweep.maps import Fitting, Learning, histogram, quality
from manyhands.sweep.plan import Fleet, Key


def run(folder: Path, fleet: Fleet, workers: int | None = None) -> list[dict[str, Any]]:
    """Train and evaluate; goes on where an earlier attempt was interrupted."""
    started = time.perf_counter()
    sets = [datasets.load(place_of(folder, name)) for name in fleet.data]
    place = folder / "runs" / fleet.name
    resumed = any(place.rglob("config.json"))
    shown = _shown(fleet, sets)
    found, maps = _behaviors(fleet, sets, place, shown) if fleet.k else (None, {})
    learning = Learning(shown, place / "maps_learning.json")
    policies = train(
        _one_or_all(sets),
        fleet.algo,
        behavior=found,
        seed=list(fleet.seeds),
        preset=fleet.preset,
        env=_env(fleet, sets),
        episodes=fleet.episodes,
        evaluations=fleet.evaluations,
        workers=workers,
        out=place,
        inspect=learning,
        retrain=False,  # the attempt before may have ended behind its last update
        **fleet.options,
    )
    metrics = Run(place).metrics()
    each = len(policies) // len(sets)
    about = [
        {**quality(data, fleet.env), "histogram": histogram(data)} for data in sets
    ]
    rows = []
    for r, (key, policy) in enumerate(zip(fleet.keys, policies, strict=True)):
        n, mine = r // each, [m for m in metrics if m["replica"] == r]
        row = _row(fleet, sets[n], key, policy, mine) | about[n]
        if r in maps:
            end = policy.options.steps
            row["maps"] = maps[r] | learning.maps(r, policy.model, end)
        rows.append(row)
    seconds = time.perf_counter() - started
    took = {"fleet_seconds": seconds, "fleet_resumed": resumed}
    # On a GPU the number of replicas may decide how products are computed.
    return [row | took | {"together": len(rows)} for row in rows]


def _env(fleet: Fleet, sets: list[Trajectories]) -> str | None:
    """Named, so that one that cannot be used is an error: a run that was not evaluated
    would count as finished. Several data sets may have several."""
    if fleet.env or not fleet.episodes or len(sets) > 1:
        return fleet.env
    return arenas.today(sets[0].env_id or "") or None


def _one_or_all(sets: list[Trajectories]) -> Any:
    """A run on one data set is what everybody else's is."""
    return sets[0] if len(sets) == 1 else sets


def _shown(fleet: Fleet, sets: list[Trajectories]) -> dict[int, Trajectories]:
    """On maps: the first seed's replica of every K and data set."""
    many = len(fleet.keys)
    firsts = range(0, many if fleet.k else 0, len(fleet.seeds))
    found = {r: sets[r * len(sets) // many] for r in firsts}
    return {r: data for r, data in found.items() if len(data) > 1}


def _behaviors(
    fleet: Fleet,
    sets: list[Trajectories],
    place: Path,
    shown: dict[int, Trajectories],
) -> tuple[list[Behavior], dict[int, dict[str, Any]]]:
    """The sets of every K and seed, and maps of those to show along the fit."""
    learner = algorithm(fleet.algo)
    need, done, many = learner.behavior_need, place / "behavior", len(fleet.keys)
    assert need is not None
    along = Fitting(shown, place / "maps.json")
    if (done / "summary.json").exists():
        found = [Behavior.load(one) for one in Run(done).replicas(many)]
    else:
        found = fit(
            _one_or_all(sets),
            k=list(fleet.k),
            seed=list(fleet.seeds),
            preset=learner.preset_before(fleet.preset),
            out=done,
            inspect=along,
            **need.changes(options_of(fleet)),  # as `train` would
        )
    maps = {r: along.maps(r, found[r]) for r in shown}
    return found, {r: one for r, one in maps.items() if one is not None}


def _row(
    fleet: Fleet,
    data: Trajectories,
    key: Key,
    policy: Policy,
    metrics: list[dict[str, Any]],
) -> dict[str, Any]:
    about: dict[str, Any] = {"return_std": None, "episodes": 0, "returns": []}
    about |= policy.summary["policy"]
    about.pop("algo")
    config, used = config_of(fleet, data.transitions), asdict(policy.options)
    along = [m for m in metrics if "evaluation/return_mean" in m]
    curve = [
        [m["step"], m["evaluation/return_mean"], m["evaluation/relative"]]
        for m in along
    ]
    return {
        "data": key.data,
        "label": fleet.label,
        **about,
        "k": key.k,
        "algo": fleet.algo,
        "preset": fleet.preset,
        "options": fleet.options,
        "config": config,
        "decided": {name: used[name] for name in used if used[name] != config[name]},
        "env": fleet.env,
        "evaluations": fleet.evaluations,
        "behaviors": policy.summary["behaviors"],
        "curve": curve,
        "curve_returns": [m["evaluation/returns"] for m in along],
        "codes_used": policy.summary.get("behavior", {}).get("codes_used"),
        "ari": policy.summary.get("behavior", {}).get("ari"),
        "transitions": data.transitions,
        "trajectories": len(data),
        "fingerprint": data.fingerprint,
        "timing": policy.summary["timing"],
        "environment": environment(),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else None
    fleet = Fleet.from_json(sys.stdin.readline())
    end_with_the_caller()
    rows = run(folder, fleet, workers)
    with atomic_file(folder / "runs" / fleet.name / "rows.json") as temporary:
        temporary.write_text(json.dumps(strict_json(rows)))


if __name__ == "__main__":
    main()
