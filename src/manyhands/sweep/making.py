"""The data sets of a benchmark that are made here: once, for all fleets, while the
first of these are training already.

python -m manyhands.sweep.making DIR, a process of its own, so that it can be stopped at
any moment: reads names and sizes from the first line of its standard input, and makes
DIR/data/NAME.npz, one after another. When its standard input ends, so does it.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from manyhands import datasets
from manyhands.errors import UserError
from manyhands.files import sweep
from manyhands.sweep.plan import Fleet, safe


def data_file(folder: Path, data: str) -> Path:
    return folder / "data" / f"{safe(data)}.npz"


def made_here(data: str) -> bool:
    return data.partition(":")[0] in datasets.MAKERS


def place_of(folder: Path, data: str) -> str | Path:
    """Where to read it from."""
    return data_file(folder, data) if made_here(data) else data


def check(fleets: list[Fleet]) -> None:
    """Complain of unknown names, files that cannot be read, and environments that
    cannot be made, before anything is written."""
    from manyhands.algos import arenas  # JAX, which makers of data do without

    envs: dict[str, str | None] = {}
    there: set[str] = set()
    for fleet in fleets:
        for data in fleet.data:
            if made_here(data):
                datasets.usual_size(data.partition(":")[2])
                continue
            if data not in envs:
                envs[data] = datasets.load(data).env_id
            if not fleet.episodes:
                continue
            env = fleet.env or arenas.today(envs[data] or "")
            if not env:
                raise UserError(
                    f"{data}: expected an environment's id to evaluate in, got none: "
                    "add env = ... to the preset, or episodes = 0"
                )
            if env not in there:
                arenas.spaces_of(env)
                there.add(env)


class Making(AbstractContextManager):
    """Makes what fleets need, in their order, and knows when it is there."""

    def __init__(self, folder: Path, fleets: list[Fleet]):
        self.folder = folder
        needed = {
            data: fleet.transitions
            for fleet in fleets
            for data in fleet.data
            if made_here(data) and not data_file(folder, data).exists()
        }
        self.process: subprocess.Popen | None = None
        if not needed:
            return
        (folder / "data").mkdir(parents=True, exist_ok=True)
        sweep(folder / "data")
        self.log = folder / "data" / "log.txt"
        # A GPU is for those who learn.
        alone = {**os.environ, "JAX_PLATFORMS": "cpu"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "manyhands.sweep.making", str(folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=alone,
            )
        self._tell(self.process, needed)

    def _tell(self, process: subprocess.Popen, needed: dict[str, int | None]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(list(needed.items())).encode() + b"\n")
        process.stdin.flush()

    def wait(self, fleet: Fleet) -> None:
        """Until all of its data is there."""
        for data in fleet.data:
            while made_here(data) and not data_file(self.folder, data).exists():
                if self.process is None or self.process.poll() is not None:
                    # It may have ended in between.
                    if data_file(self.folder, data).exists():
                        break
                    raise UserError(f"{data}: could not be made: {self._last_words()}")
                time.sleep(0.1)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "no message")

    def __exit__(self, *error: Any) -> None:
        if self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()


Ready = Callable[[Fleet], None]  # returns when a fleet's data is there


def end_with_the_caller() -> None:
    """Of a process whose standard input its caller holds, for as long as it lives."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    folder = Path(sys.argv[1])
    needed = json.loads(sys.stdin.readline())
    end_with_the_caller()
    takes: dict = {}
    for data, transitions in needed:
        made = datasets.make(data.partition(":")[2], transitions, takes=takes)
        datasets.save(made, data_file(folder, data))


if __name__ == "__main__":
    main()
