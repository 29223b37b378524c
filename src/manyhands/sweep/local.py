"""Fleets on this machine, each a process, some at a time."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from manyhands.envs.processes import cores, program
from manyhands.errors import UserError
from manyhands.files import atomic_file, file_inside, lock
from manyhands.sweep.benchmark import Outcome
from manyhands.sweep.continuing import FLEET
from manyhands.sweep.making import Making
from manyhands.sweep.plan import Fleet

PATIENCE = 120.0  # seconds, for an earlier attempt to end


class Live:
    """Processes at work, and an end to all of them, also to those that begin late."""

    def __init__(self) -> None:
        self.processes: set[subprocess.Popen] = set()
        self.ended = False

    def begin(self, process: subprocess.Popen) -> None:
        self.processes.add(process)
        if self.ended:
            process.terminate()

    def end(self) -> None:
        """Each at the end of its chunk."""
        self.ended = True
        for process in list(self.processes):
            process.terminate()


@dataclass(frozen=True)
class Local:
    jobs: int = 1

    def run(
        self, folder: Path, todo: list[Fleet], data: Making
    ) -> Generator[Outcome, None, None]:
        given, workers = environ(self.jobs), max(1, cores() // self.jobs)
        live = Live()

        def one(fleet: Fleet) -> Outcome:
            try:
                data.wait(fleet)
                return run_process(folder, fleet, given, workers, live)
            except (UserError, OSError) as error:
                return Outcome(fleet, None, str(error))

        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                for ended in as_completed([pool.submit(one, fleet) for fleet in todo]):
                    yield ended.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                data.give_up()
                live.end()
                raise


def environ(jobs: int) -> dict[str, str]:
    """Of every fleet: JAX takes most of a GPU at once, whoever else is there."""
    given = dict(os.environ)
    if jobs > 1:
        given.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 / jobs:.3f}")
    return given


def run_process(
    folder: Path,
    fleet: Fleet,
    environ: dict[str, str] | None = None,
    workers: int | None = None,
    live: "Live | None" = None,
) -> Outcome:
    """Run a fleet in a process of its own, which ends when this one does.

    Args:
        workers: processes for its evaluations; as many as there are cores if None.
        live: knows the process for as long as it runs, so that others may end it.
    """
    live = live or Live()
    place = folder / "runs" / fleet.name
    place.mkdir(parents=True, exist_ok=True)
    with file_inside(folder, place / "log.txt").open("ab") as log:
        if not _claim(log, live):
            return Outcome(
                fleet,
                None,
                f"{log.name}: another process is still at work on this fleet; if there "
                "is none, delete this file",
            )
        with atomic_file(place / FLEET) as temporary:
            temporary.write_text(fleet.to_json() + "\n")
        given = [] if workers is None else [workers]
        process = subprocess.Popen(
            program("manyhands.sweep.run_fleet", [str(folder), *map(str, given)]),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            env=environ,
        )
        assert process.stdin is not None
        live.begin(process)
        try:
            # One that has ended already says why by its exit code.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(fleet.to_json() + "\n")
                process.stdin.flush()
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            live.processes.discard(process)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
    if code:
        lines = (place / "log.txt").read_text(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "no message")
        if code > 0:
            return Outcome(fleet, None, last)
        return Outcome(fleet, None, f"killed by signal {-code}", killed=True)
    return Outcome(fleet, json.loads((place / "rows.json").read_text()))


def _claim(log: IO[bytes], live: Live) -> bool:
    """Lock the log, which the fleet's process inherits: free again when that has ended,
    however this one does. An earlier attempt, on a node that its cluster has given up,
    may go on for a moment; two must not write to one run."""
    until = time.monotonic() + PATIENCE
    while not lock(log):
        if time.monotonic() > until or live.ended:
            return False
        time.sleep(0.2)
    return True
