"""Programs of our own, started beside the caller, that are told what to do by line.

Not forks of the caller: JAX's threads do not survive a fork, and scripts need no main
guard. When the caller goes away, their standard input ends, and so do they.
"""

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from manyhands.errors import UserError


class Processes:
    """Some processes of one module, and a folder for files they share with us.

    Args:
        module: a name, or the path of a file outside the package.
    """

    def __init__(self, module: str | Path):
        self.module = module
        self.folder = Path(tempfile.mkdtemp(prefix="manyhands-"))
        self.all: list[subprocess.Popen[bytes]] = []
        self._ears = selectors.DefaultSelector()

    def __len__(self) -> int:
        return len(self.all)

    def start(self, arguments: Sequence[str]) -> None:
        with self._log(len(self)).open("wb") as log:
            process = subprocess.Popen(
                program(self.module, arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # One core is a process's share: there are as many as cores.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                bufsize=0,
            )
        self._ears.register(process.stdout, selectors.EVENT_READ, len(self))  # pyright: ignore
        self.all.append(process)

    def tell(self, message: bytes) -> None:
        """All of them."""
        for number in range(len(self)):
            self._write(number, message)

    def tell_one(self, number: int, line: bytes) -> None:
        self._write(number, line + b"\n")

    def _write(self, number: int, message: bytes) -> None:
        try:
            self.all[number].stdin.write(message)  # pyright: ignore
        except OSError:
            raise self._died(number) from None

    def hear(self) -> list[bytes]:
        """A line of every one."""
        return [self._read_line(number) for number in range(len(self))]

    def hear_one(self) -> int:
        """Wait until one has said a line; which."""
        key, _ = self._ears.select()[0]
        self._read_line(key.data)
        return key.data

    def _read_line(self, number: int) -> bytes:
        line = self.all[number].stdout.readline()  # pyright: ignore
        if not line:
            raise self._died(number)
        return line

    def wait(self) -> None:
        """For a byte of every one: a line takes a call for each of its bytes."""
        for number, process in enumerate(self.all):
            if not process.stdout.read(1):  # pyright: ignore
                raise self._died(number)

    def _died(self, number: int) -> UserError:
        log = self._log(number).read_text(errors="replace").split("\n")
        last = next((line for line in reversed(log) if line.strip()), "no message")
        return UserError(f"an environment's process ended: {last.strip()}")

    def _log(self, number: int) -> Path:
        return self.folder / f"log-{number}"

    def close(self) -> None:
        self._ears.close()
        for process in self.all:
            process.kill()
            process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


def program(module: str | Path, arguments: Sequence[str] = ()) -> list[str]:
    """The command for a module of ours: by its name, or by the path of its file.

    Without the working directory on its path (-P): a file that lies there must not be
    imported in place of a library.
    """
    named = [str(module)] if isinstance(module, Path) else ["-m", module]
    return [sys.executable, "-P", *named, *arguments]


def cores() -> int:
    """As many as this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def how_many(workers: int | None, jobs: int | None = None) -> int:
    """Processes for some jobs; as many as there are cores if `workers` is None."""
    if workers is not None and workers < 1:
        raise UserError(f"workers: expected at least 1, got {workers}")
    workers = workers or cores()
    return workers if jobs is None else min(jobs, workers)
