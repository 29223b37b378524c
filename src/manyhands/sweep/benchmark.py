"""`benchmark`: run all fleets of a preset, here or on a cluster."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from manyhands.errors import UserError
from manyhands.files import atomic_file
from manyhands.sweep import making
from manyhands.sweep.plan import Fleet, Key, fleets
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
    chosen = fleets(preset, only)
    results = Results(folder)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: expected a directory to write to, got a file")
    if results.rows() and not resume:
        raise UserError(
            f"{folder}: holds results already; --resume goes on with what is missing"
        )
    finished = _finished_but_not_written(folder, chosen)
    there = results.keys() | set(map(Key.of, finished))
    todo = [fleet for fleet in chosen if not there.issuperset(fleet.keys)]
    making.check(todo)
    _same_as_before(folder / "preset.json", preset)
    results.mend()
    results.add(finished)
    done = len(chosen) - len(todo)
    if todo:
        todo = [f for f in prepare(todo) if not there.issuperset(f.keys)]
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


def _same_as_before(path: Path, preset: Preset) -> None:
    content = json.loads(json.dumps(preset.config()))
    if path.exists():
        begun = json.loads(path.read_text())
        for key, value in content.items():
            if begun.get(key) != value:
                raise UserError(
                    f"{path.parent}: holds another benchmark: {key} is "
                    f"{begun.get(key)}, not {value}; choose another directory"
                )
        return
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def _finished_but_not_written(folder: Path, chosen: list[Fleet]) -> list[dict]:
    """By a benchmark that was killed in between, however it had put runs together."""
    wanted = {key for fleet in chosen for key in fleet.keys}
    rows = []
    for path in sorted((folder / "runs").rglob("rows.json")):
        rows += json.loads(path.read_text())
    return [row for row in rows if Key.of(row) in wanted]


def _note_failure(folder: Path, outcome: Outcome) -> None:
    about = {"fleet": outcome.fleet.name, "error": outcome.error, "time": time.time()}
    with (folder / "failures.jsonl").open("a") as file:
        file.write(json.dumps(about) + "\n")
