"""Many environments at once, stepped together by a few processes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.envs.processes import Processes, how_many
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

    Rows of smaller environments are padded with zeros. Use as a context manager.
    """

    def __init__(self, ids: Sequence[str], workers: int | None = None):
        require("gymnasium", extra="mujoco", purpose="an environment")
        if not ids:
            raise UserError("environments: expected at least one, got none")
        workers = how_many(workers, len(ids))
        self._processes = Processes("manyhands.envs.worker")
        try:
            self._start(ids, workers)
        except BaseException:
            self.close()
            raise

    def _start(self, ids: Sequence[str], workers: int) -> None:
        parts = np.array_split(np.arange(len(ids)), workers)
        for part in parts:
            names = json.dumps([ids[int(slot)] for slot in part])
            self._processes.start([names, str(part[0])])
        self.spaces = [
            Spaces(s["states"], s["actions"], np.array(s["low"]), np.array(s["high"]))
            for part, line in zip(parts, self._processes.hear())
            for s in _introduction(line, [ids[int(slot)] for slot in part])
        ]
        self.states = max(space.states for space in self.spaces)
        self.actions = max(space.actions for space in self.spaces)
        path, slots = self._processes.folder / "block", len(ids)
        self._block = Block.create(path, slots, self.states, self.actions)
        shape = [str(path), slots, self.states, self.actions]
        self._processes.tell((json.dumps(shape) + "\n").encode())
        self._processes.wait()

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
        self._processes.tell(b".")
        self._processes.wait()
        self._block.command[:] = IDLE
        return self._block

    def close(self) -> None:
        self._processes.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _introduction(line: bytes, ids: Sequence[str]) -> list[dict[str, Any]]:
    said = json.loads(line)
    if "error" in said:
        names = ", ".join(dict.fromkeys(ids))
        raise UserError(f"{names}: {' '.join(said['error'].split())}")
    return said["spaces"]
