"""Fleets on this machine, each a process, some at a time."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from manyhands.sweep.benchmark import Outcome
from manyhands.sweep.plan import Fleet


@dataclass(frozen=True)
class Local:
    jobs: int = 1

    def run(self, folder: Path, todo: list[Fleet]) -> Iterator[Outcome]:
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                for ended in as_completed(
                    [pool.submit(run_process, folder, fleet) for fleet in todo]
                ):
                    yield ended.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def run_process(folder: Path, fleet: Fleet) -> Outcome:
    """Run a fleet in a process of its own, which ends when this one does."""
    place = folder / "runs" / fleet.name
    place.mkdir(parents=True, exist_ok=True)
    with (place / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "manyhands.sweep.run_fleet", str(folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None
        try:
            process.stdin.write(fleet.to_json() + "\n")
            process.stdin.flush()
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            process.stdin.close()
            process.wait()
    if code:
        lines = (place / "log.txt").read_text(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "no message")
        return Outcome(fleet, None, last if code > 0 else f"killed by signal {-code}")
    return Outcome(fleet, json.loads((place / "rows.json").read_text()))
