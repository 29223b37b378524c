"""Many environments at once, stepped together by a few processes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.envs.worker import IDLE, RESET, STEP, Block
from manyhands.errors import UserError, require


@dataclass(frozen=True)
class Spaces:
    """What an environment takes and gives."""

    states: int
    actions: int
    low: np.ndarray
    high: np.ndarray


class Pool:
    """One slot per environment; the ids may differ.

    Rows of smaller environments are padded with zeros, all of them to `at_least` so
    many states and actions. Use as a context manager.
    """

    def __init__(
        self,
        ids: Sequence[str],
        workers: int | None = None,
        at_least: tuple[int, int] = (0, 0),
    ):
        require("gymnasium", extra="mujoco", purpose="an environment")
        if not ids:
            raise UserError("environments: expected at least one, got none")
        if workers is not None and workers < 1:
            raise UserError(f"workers: expected at least 1, got {workers}")
        self._folder = Path(tempfile.mkdtemp(prefix="manyhands-"))
        self._workers: list[subprocess.Popen[bytes]] = []
        try:
            self._start(ids, min(len(ids), workers or cores()), at_least)
        except BaseException:
            self.close()
            raise

    def _start(
        self, ids: Sequence[str], workers: int, at_least: tuple[int, int]
    ) -> None:
        parts = np.array_split(np.arange(len(ids)), workers)
        quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
        for number, part in enumerate(parts):
            names = json.dumps([ids[int(slot)] for slot in part])
            with (self._folder / f"log-{number}").open("wb") as log:
                worker = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "manyhands.envs.worker",
                        names,
                        str(part[0]),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=quiet,
                    bufsize=0,
                )
            self._workers.append(worker)
        self.spaces = [
            Spaces(s["states"], s["actions"], np.array(s["low"]), np.array(s["high"]))
            for number, part in enumerate(parts)
            for s in self._introduction(number, [ids[int(slot)] for slot in part])
        ]
        self.states = max(at_least[0], *(space.states for space in self.spaces))
        self.actions = max(at_least[1], *(space.actions for space in self.spaces))
        path, slots = self._folder / "block", len(ids)
        self._block = Block.create(path, slots, self.states, self.actions)
        shape = [str(path), slots, self.states, self.actions]
        for number in range(len(parts)):
            self._say(number, (json.dumps(shape) + "\n").encode())
        self._wait()

    def _introduction(self, number: int, ids: Sequence[str]) -> list[dict[str, Any]]:
        line = self._workers[number].stdout.readline()  # pyright: ignore
        if not line:
            raise self._died(number)
        said = json.loads(line)
        if "error" in said:
            names = ", ".join(dict.fromkeys(ids))
            raise UserError(f"{names}: {' '.join(said['error'].split())}")
        return said["spaces"]

    def __len__(self) -> int:
        return len(self.spaces)

    def reset(self, slots: np.ndarray, seeds: np.ndarray) -> None:
        """Mark slots that begin an episode in the next exchange."""
        self._block.command[slots] = RESET
        self._block.seed[slots] = seeds

    def step(self, slots: np.ndarray, actions: np.ndarray) -> None:
        """Mark slots that take a step in the next exchange."""
        self._block.command[slots] = STEP
        self._block.action[slots] = actions

    def exchange(self) -> Block:
        """Do what is marked; the rows of slots without a mark stay as they were."""
        for number in range(len(self._workers)):
            self._say(number, b".")
        self._wait()
        self._block.command[:] = IDLE
        return self._block

    def _say(self, number: int, message: bytes) -> None:
        try:
            self._workers[number].stdin.write(message)  # pyright: ignore
        except OSError:
            raise self._died(number) from None

    def _wait(self) -> None:
        for number, worker in enumerate(self._workers):
            if not worker.stdout.read(1):  # pyright: ignore
                raise self._died(number)

    def _died(self, number: int) -> UserError:
        log = (self._folder / f"log-{number}").read_text(errors="replace").split("\n")
        last = next((line for line in reversed(log) if line.strip()), "no message")
        return UserError(f"an environment's process ended: {last.strip()}")

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def cores() -> int:
    """As many as this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
