"""The data sets of a benchmark that are made here: once, for all fleets, while the
first of these are training already.

python -m manyhands.sweep.making DIR, a process of its own, so that it can be stopped at
any moment: reads names and sizes from the first line of its standard input, and makes
DIR/data/NAME.npz, one after another. When its standard input ends, so does it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from manyhands import datasets
from manyhands.envs.processes import program
from manyhands.errors import UserError
from manyhands.files import atomic_file, check_inside, file_inside, sweep
from manyhands.sweep.plan import Fleet, safe

GRACE = 60.0  # seconds, for a process to save its work when its caller has ended


def data_file(folder: Path, data: str) -> Path:
    return folder / "data" / f"{safe(data)}.npz"


def _trouble(folder: Path, data: str) -> Path:
    """Why one could not be made; there from the beginning, as nobody else would say
    that its maker was killed."""
    return folder / "data" / f"{safe(data)}.error"


def made_here(data: str) -> bool:
    return data.partition(":")[0] in datasets.MAKERS


def place_of(folder: Path, data: str) -> str | Path:
    """Where to read it from."""
    if not made_here(data):
        return data
    return file_inside(folder, data_file(folder, data))


def check(fleets: list[Fleet]) -> None:
    """Complain of unknown names, files that cannot be read, more behaviors than there
    are trajectories, and environments that cannot be made or are others, before
    anything is written."""
    # JAX, which makers of data do without.
    from manyhands.algos import arenas
    from manyhands.behavior.fit import check_k

    sizes: dict[str, Sizes] = {}
    spaces: dict[str, Any] = {}
    for fleet in fleets:
        for data in fleet.data:
            if made_here(data):
                datasets.usual_size(data.partition(":")[2])
                continue
            if data not in sizes:
                sizes[data] = _look(data)
            about = sizes[data]
            for k in fleet.k:
                _told_where(data, check_k, k, about.trajectories)
            if not fleet.episodes:
                continue
            env = fleet.env or arenas.today(about.env or "")
            if not env:
                raise UserError(
                    f"{data}: expected an environment's id to evaluate in, got none: "
                    "add env = ... to the preset, or episodes = 0"
                )
            if env not in spaces:
                spaces[env] = arenas.spaces_of(env)
            mine = about.observations, about.actions
            _told_where(data, arenas.check_sizes, env, spaces[env], *mine)


class Sizes(NamedTuple):
    observations: int
    actions: int
    trajectories: int
    env: str | None


def _look(data: str) -> Sizes:
    found = datasets.load(data)
    sizes = found.observation_size, found.action_size
    return Sizes(*sizes, len(found), found.env_id)


def _told_where(data: str, check: Callable[..., None], *given: Any) -> None:
    try:
        check(*given)
    except UserError as error:
        raise UserError(f"{data}: {error}") from None


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
        check_inside(folder, folder / "data")
        sweep(folder / "data")
        # What its maker has failed at comes last: it may be killed by it again.
        needed = dict(
            sorted(needed.items(), key=lambda one: _trouble(folder, one[0]).exists())
        )
        for data in needed:
            _trouble(folder, data).unlink(missing_ok=True)
        self.log = folder / "data" / "log.txt"
        # A GPU is for those who learn.
        alone = {**os.environ, "JAX_PLATFORMS": "cpu"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                program("manyhands.sweep.making", [str(folder)]),
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
                ended = self.process is None or self.process.poll() is not None
                try:
                    words = _trouble(self.folder, data).read_text()
                except FileNotFoundError:  # it is not its turn, or it has been made
                    words = ""
                # It may have been made in between.
                if (ended or words) and not data_file(self.folder, data).exists():
                    words = words or "the process that makes data was killed"
                    raise UserError(f"{data}: could not be made: {words}")
                time.sleep(0.1)

    def give_up(self) -> None:
        """Whoever waits is told at once that there will be no more."""
        if self.process is None:
            return
        assert self.process.stdin is not None
        at_work = self.process.poll() is None
        self.process.stdin.close()
        self.process.wait()
        if at_work:  # it was not killed by what it was making
            for path in (self.folder / "data").glob("*.error"):
                if not path.read_text():
                    path.unlink()

    def __exit__(self, *error: Any) -> None:
        self.give_up()


def end_with_the_caller() -> None:
    """Of a process whose standard input its caller holds, for as long as it lives.
    What learns saves its work first, which must not take long: the next one waits."""

    def wait() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    folder = Path(sys.argv[1])
    needed = json.loads(sys.stdin.readline())
    end_with_the_caller()
    takes: dict = {}
    for data, transitions in needed:
        trouble = _trouble(folder, data)
        trouble.touch()
        try:
            made = datasets.make(data.partition(":")[2], transitions, takes=takes)
            datasets.save(made, data_file(folder, data))
        except Exception as error:  # of this one; there are others
            traceback.print_exc()
            words = str(error) or type(error).__name__
            with atomic_file(trouble) as temporary:
                temporary.write_text(words)
        else:
            trouble.unlink()


if __name__ == "__main__":
    main()
