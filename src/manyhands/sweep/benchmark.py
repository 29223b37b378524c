"""`benchmark`: run all fleets of a preset, here or on a cluster."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from manyhands.errors import UserError
from manyhands.files import atomic_file, lock
from manyhands.sweep import making
from manyhands.sweep.continuing import PRESET, Held, look, placed
from manyhands.sweep.plan import Fleet
from manyhands.sweep.preset import Preset
from manyhands.sweep.results import Results
from manyhands.wording import counted

ATTEMPTS = 2  # of every fleet, in one call


@dataclass(frozen=True)
class Outcome:
    """Of one attempt at a fleet."""

    fleet: Fleet
    rows: list[dict[str, Any]] | None  # None: it failed
    error: str = ""


class Engine(Protocol):
    def run(
        self, folder: Path, todo: list[Fleet], ready: making.Ready
    ) -> Iterator[Outcome]:
        """Every fleet once, in the order in which they end."""
        ...


# finished, all, what to say of the last one
Progress = Callable[[int, int, str], None]


def benchmark(
    preset: Preset,
    folder: Path,
    engine: Engine,
    *,
    resume: bool = False,
    only: tuple[str, ...] = (),
    prepare: Callable[[list[Fleet]], list[Fleet]] = lambda todo: todo,
    progress: Progress = lambda done, of, words: None,
) -> list[Outcome]:
    """Run what is not done yet. Returns the fleets that failed, each at its last try.

    A fleet that fails does not stop the others; it is tried again after them.

    Args:
        prepare: what is to be done -> the same, in parts where one is too large.
    """
    results = Results(folder)
    if results.rows() and not resume:
        raise UserError(
            f"{folder}: holds results already; --resume goes on with what is missing"
        )
    held = look(folder, preset, only)
    making.check(held.todo)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as claim:
        if not lock(claim):
            raise UserError(f"{folder}: another benchmark is at work in it")
        return _run(preset, folder, engine, held, prepare, progress)


def _run(
    preset: Preset,
    folder: Path,
    engine: Engine,
    held: Held,
    prepare: Callable[[list[Fleet]], list[Fleet]],
    progress: Progress,
) -> list[Outcome]:
    """What is not done yet, by the only process that writes results."""
    results, todo = Results(folder), held.todo
    _remember(folder / PRESET, preset)
    results.mend()
    results.add(held.finished)
    done = sum(held.there.issuperset(fleet.keys) for fleet in held.chosen)
    if todo:
        todo = [f for f in prepare(todo) if not held.there.issuperset(f.keys)]
        todo = placed(folder, todo)
    many = done + len(todo)
    failed: list[Outcome] = []
    for _ in range(ATTEMPTS):
        failed = []
        with making.Making(folder, todo) as data:
            for outcome in engine.run(folder, todo, data.wait):
                name = outcome.fleet.name
                if outcome.rows is None:
                    failed.append(outcome)
                    _note_failure(folder, outcome)
                    progress(done, many, f"{name} failed: {outcome.error}")
                    continue
                results.add(outcome.rows)
                done += 1
                seconds = outcome.rows[0]["fleet_seconds"]
                words = f"{name}: {counted(len(outcome.rows), 'run')}, {seconds:.0f} s"
                progress(done, many, words)
        todo = [outcome.fleet for outcome in failed]
        if not todo:
            break
    return failed


def _remember(path: Path, preset: Preset) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(preset.config(), indent=2) + "\n")


def _note_failure(folder: Path, outcome: Outcome) -> None:
    about = {"fleet": outcome.fleet.name, "error": outcome.error, "time": time.time()}
    with (folder / "failures.jsonl").open("a") as file:
        file.write(json.dumps(about) + "\n")
