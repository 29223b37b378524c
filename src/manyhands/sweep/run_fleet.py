"""One fleet, in a process of its own: what it takes is given back when it ends.

python -m manyhands.sweep.run_fleet DIR reads the fleet from the first line of its
standard input, and leaves DIR/runs/NAME/rows.json. When its standard input ends, so
does it: a benchmark that was killed leaves nobody behind to write where the next one
does.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from manyhands import datasets
from manyhands.algos.policy import Policy
from manyhands.algos.registry import algorithm
from manyhands.algos.train import train
from manyhands.behavior.estimate import Behavior
from manyhands.behavior.fit import fit
from manyhands.data.trajectories import Trajectories
from manyhands.files import atomic_file
from manyhands.runs import Run, environment
from manyhands.sweep.maps import Along, histogram
from manyhands.sweep.plan import Fleet, safe

# Between checkpoints of a fit: maps along training are made of them.
MAP_SECONDS = 10.0


def data_file(folder: Path, fleet: Fleet) -> Path:
    return folder / "data" / f"{safe(fleet.data)}.npz"


def made_here(data: str) -> bool:
    return data.partition(":")[0] in datasets.MAKERS


def make_data(folder: Path, fleet: Fleet) -> None:
    """Data sets that are made here are made once, for all fleets."""
    place = data_file(folder, fleet)
    if made_here(fleet.data) and not place.exists():
        name = fleet.data.partition(":")[2]
        datasets.save(datasets.make(name, fleet.transitions), place)


def run(folder: Path, fleet: Fleet) -> list[dict[str, Any]]:
    """Train and evaluate; goes on where an earlier attempt was interrupted."""
    started = time.perf_counter()
    where = data_file(folder, fleet) if made_here(fleet.data) else fleet.data
    data, place = datasets.load(where), folder / "runs" / fleet.name
    resumed = any(place.rglob("config.json"))
    rows = []
    about = {"histogram": histogram(data)}
    for k, given, out, maps in _behaviors(fleet, data, place):
        policies = train(
            data,
            fleet.algo,
            behavior=given,
            seed=list(fleet.seeds),
            preset=fleet.preset,
            episodes=fleet.episodes,
            evaluations=fleet.evaluations,
            out=out,
            **fleet.options,
        )
        metrics = Run(out).metrics()
        for r, policy in enumerate(policies):
            mine = [m for m in metrics if m["replica"] == r]
            more = {"maps": maps} if maps and not r else {}  # of the first seed
            rows.append(_row(fleet, data, k, policy, mine) | about | more)
    seconds = time.perf_counter() - started
    took = {"fleet_seconds": seconds, "fleet_resumed": resumed}
    return [row | took for row in rows]


def _behaviors(
    fleet: Fleet, data: Trajectories, place: Path
) -> list[tuple[int | str | None, list[Behavior] | None, Path, dict[str, Any] | None]]:
    """For every K the behavior sets of all seeds, where to train, and maps of the first
    seed's. All of them are fitted in one program."""
    if not fleet.k:
        return [(None, None, place, None)]
    learner = algorithm(fleet.algo)
    done, many = place / "behavior", len(fleet.seeds)
    pairs = [(k, seed) for k in fleet.k for seed in fleet.seeds]
    firsts = list(range(0, len(pairs), many))
    along = Along(done, firsts, data, place / "maps.json")
    if (done / "summary.json").exists():
        places = [done / f"replica-{r}" for r in range(len(pairs))]
        places = [done] if len(pairs) == 1 else places
        sets = [Behavior.load(one) for one in places]
    else:
        options = learner.presets[fleet.preset]
        changes = learner.first_changes(
            type(options)(**vars(options) | fleet.options)  # as `train` would
        )
        sets = fit(
            data,
            k=list(fleet.k),
            seed=list(fleet.seeds),
            preset=fleet.preset,
            out=done,
            checkpoint_seconds=MAP_SECONDS,
            progress=along,
            **changes,
        )
    return [
        (
            k,
            sets[first : first + many],
            place / f"k-{k}",
            along.maps(n, sets[first], data),
        )
        for n, (k, first) in enumerate(zip(fleet.k, firsts))
    ]


def _row(
    fleet: Fleet,
    data: Trajectories,
    k: int | str | None,
    policy: Policy,
    metrics: list[dict[str, Any]],
) -> dict[str, Any]:
    about = dict(policy.summary["policy"])
    about.pop("algo")
    curve = [
        [m["step"], m["evaluation/return_mean"], m["evaluation/relative"]]
        for m in metrics
        if "evaluation/return_mean" in m
    ]
    return {
        "data": fleet.data,
        "label": fleet.label,
        "k": None if k is None else str(k),
        **about,
        "algo": fleet.algo,
        "preset": fleet.preset,
        "options": fleet.options,
        "behaviors": policy.summary["behaviors"],
        "curve": curve,
        "codes_used": policy.summary.get("behavior", {}).get("codes_used"),
        "ari": policy.summary.get("behavior", {}).get("ari"),
        "transitions": data.transitions,
        "trajectories": len(data),
        "fingerprint": data.fingerprint,
        "timing": policy.summary["timing"],
        "environment": environment(),
    }


def _end_with_the_caller() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    folder = Path(sys.argv[1])
    fleet = Fleet.from_json(sys.stdin.readline())
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    rows = run(folder, fleet)
    with atomic_file(folder / "runs" / fleet.name / "rows.json") as temporary:
        temporary.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
