"""`benchmark`: run all fleets of a preset, here or on a cluster."""

import json
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from manyhands.errors import UserError
from manyhands.files import atomic_file, file_inside, lock
from manyhands.sweep import making
from manyhands.sweep.continuing import PRESET, Held, look, placed
from manyhands.sweep.plan import Fleet, apart
from manyhands.sweep.preset import Preset
from manyhands.sweep.results import Results
from manyhands.wording import counted

ATTEMPTS = 2  # of every fleet, in one call; then of its data sets, each for itself
LOCK = ".lock"


@dataclass(frozen=True)
class Outcome:
    """Of one attempt at a fleet."""

    fleet: Fleet
    rows: list[dict[str, Any]] | None  # None: it failed
    error: str = ""
    killed: bool = False  # by no error of its own


class Engine(Protocol):
    def run(
        self, folder: Path, todo: list[Fleet], data: making.Making
    ) -> Generator[Outcome, None, None]:
        """Every fleet once, in the order in which they end. Each begins when its data
        is there; closed before the end, they are ended."""
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

    A fleet that fails does not stop the others; it is tried again after them, from its
    last checkpoint. If several data sets fail again by an error of their own, then each
    for itself: it may be one of them.

    Args:
        prepare: what is to be done -> the same, in parts where one is too large.
    """
    results = Results(folder)
    if results.rows() and not resume:
        raise UserError(
            f"{folder}: holds results already; --resume goes on with what is missing"
        )
    here_before = (folder / LOCK).exists()
    if not here_before:  # refused before anything is written
        making.check(look(folder, preset, only).todo)
        folder.mkdir(parents=True, exist_ok=True)
    with file_inside(folder, folder / LOCK).open("w") as claim:
        if not lock(claim):
            raise UserError(f"{folder}: another benchmark is at work in it")
        held = look(folder, preset, only)  # now that nobody else changes it
        if here_before:
            making.check(held.todo)
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
    lost: list[Outcome] = []
    for attempt in range(ATTEMPTS + 1):
        failed = []
        with (
            making.Making(folder, todo) as data,
            closing(engine.run(folder, todo, data)) as outcomes,
        ):
            for outcome in outcomes:
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
        todo = [one.fleet for one in failed]
        if attempt + 1 >= ATTEMPTS:
            joint = [o for o in failed if len(o.fleet.data) > 1 and not o.killed]
            lost += [one for one in failed if one not in joint]
            todo = placed(folder, [f for one in joint for f in apart(one.fleet)])
            many += len(todo) - len(joint)
        if not todo:
            break
    return lost


def _remember(path: Path, preset: Preset) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(preset.config(), indent=2) + "\n")


def _note_failure(folder: Path, outcome: Outcome) -> None:
    about = {"fleet": outcome.fleet.name, "error": outcome.error, "time": time.time()}
    with file_inside(folder, folder / "failures.jsonl").open("a") as file:
        file.write(json.dumps(about) + "\n")
