"""Benchmarks whose fleets train nothing, and data sets for them."""

from pathlib import Path
from typing import Any

from manyhands import load, make, save
from manyhands.files import strict_json
from manyhands.sweep import preset as presets
from manyhands.sweep.benchmark import Outcome, benchmark
from manyhands.sweep.configs import config_of
from manyhands.sweep.making import place_of
from manyhands.sweep.plan import Fleet, Key
from manyhands.sweep.results import Results

BC = {"name": "bc", "steps": 5}
LBRAC_V = {"name": "lbrac_v", "k": [1, 2], "steps": 5}


class Untrained:
    """Leaves what a fleet would, and remembers what it was asked for."""

    def __init__(self):
        self.ran: list[Fleet] = []

    def run(self, folder, todo, data):
        for fleet in todo:
            data.wait(fleet)
            self.ran.append(fleet)
            yield Outcome(fleet, rows_of(folder, fleet))


def rows_of(folder: Path, fleet: Fleet) -> list[dict[str, Any]]:
    about = {name: getattr(fleet, name) for name in ("algo", "preset", "options")}
    rows = []
    for key in fleet.keys:
        data = load(place_of(folder, key.data))
        sizes = {"transitions": data.transitions, "fingerprint": data.fingerprint}
        names = ("env", "episodes", "evaluations")
        more = {name: getattr(fleet, name) for name in names}
        more["config"] = strict_json(config_of(fleet, data.transitions))
        more |= {"fleet_seconds": 1.0, "fleet_resumed": False}
        rows.append(key._asdict() | about | sizes | more)
    return rows


def preset(*algos: dict[str, Any], name: str = "mine", **changes) -> presets.Preset:
    content = {"data": ["d.npz"], "seeds": [0, 1], "episodes": 0}
    content["algo"] = [dict(algo) for algo in algos or (BC, LBRAC_V)]
    return presets.parse(name, content | changes)


def run(asked: presets.Preset, only: tuple[str, ...] = ()) -> list[Fleet]:
    engine = Untrained()
    assert not benchmark(asked, Path("out"), engine, resume=True, only=only)
    return engine.ran


def keys() -> set[Key]:
    return Results(Path("out")).keys()


def change_the_data() -> str:
    """The words that tell of it."""
    before, after = load("d.npz"), make("fork-2", 600)
    save(after, "d.npz")
    return (
        rf"^d.npz: has changed since its results were made \({before.transitions} "
        rf"transitions then, {after.transitions} now\); choose another directory$"
    )
