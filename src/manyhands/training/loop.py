"""The loop that trains everything: chunks of updates, metrics, checkpoints, Ctrl-C.

A stage is what the loop trains: behavior sets, dynamics, policies, agents. All replicas
of a stage train together. The device makes a chunk of updates at a time; between chunks
the stage may act on the host (its hooks). Everything is decided by the step and the
seed, so an interrupted run goes on to the same bits.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float

from manyhands import fleet
from manyhands.fleet import Packed, Replicas, Update
from manyhands.interrupts import stop_politely
from manyhands.runs import Run
from manyhands.types import Pytree

Progress = Callable[[int, dict[str, float]], None]  # updates made, values to show
Row = dict[str, Any]  # a line of metrics.jsonl
Means = dict[str, Float[Array, " replica"]]  # of metrics over a chunk


def silent(done: int, shown: dict[str, float]) -> None:
    """The default progress: show nothing."""


def interval(steps: int) -> int:
    """Updates between lines of metrics."""
    return max(1, min(1000, steps // 40))


def along(steps: int, times: int) -> set[int]:
    """Evenly spread places in a training, at lines of metrics."""
    every = interval(steps)
    aims = [steps * (n + 0.5) / times for n in range(times)]
    return {max(1, round(aim / every)) * every for aim in aims}


class Chunk(NamedTuple):
    """Updates that the device makes without the host: the arguments of the fleet."""

    update: Update
    replicas: Replicas
    data: Packed
    steps: int
    batch_size: int


class Stage:
    """What the loop trains. A kind of stage says what a chunk is, and may have hooks.

    `steps` updates at most; `state` is what updates change, and its leaves lead with
    the replica.
    """

    steps: int
    state: Pytree

    def chunk(self, step: int) -> Chunk:
        """The updates after so many, until the hooks have something to do."""
        raise NotImplementedError

    # Hooks, on the host

    def before(self) -> Iterable[Row]:
        """Before the first update."""
        return ()

    def between(self, step: int, metrics: Means) -> Iterable[Row]:
        """After a chunk of updates."""
        raise NotImplementedError

    def done(self) -> bool:
        """Whether training may end before all steps are made."""
        return False

    def after(self) -> Iterator[Iterable[Row]]:
        """Behind the last update: work that takes a while, in pieces."""
        return iter(())

    def shown(self) -> dict[str, float]:
        """Values to show beside the progress."""
        return {}

    # What a checkpoint holds beside the state: arrays, and notes for JSON

    def memory(self) -> tuple[Pytree, dict[str, Any]]:
        return (), {}

    def memory_like(self, notes: dict[str, Any]) -> Pytree:
        """Arrays of the shapes that a checkpoint with these notes has."""
        return self.memory()[0]

    def restore(self, memory: Pytree, notes: dict[str, Any]) -> None:
        """Take back what `memory` gave."""

    # What must be closed again: processes, threads

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *error: object) -> None:
        pass


@dataclass
class Result:
    history: list[Row]
    seconds: float  # until the last update, in all parts of an interrupted run
    compile_seconds: float


_COLLECTED: ContextVar[list[Stage] | None] = ContextVar("collected", default=None)


@contextmanager
def collecting() -> Iterator[list[Stage]]:
    """Within it `train` makes no updates: it leaves every stage, ready to begin, in the
    list. So an estimate sees just the stages that a request trains."""
    stages: list[Stage] = []
    token = _COLLECTED.set(stages)
    try:
        yield stages
    finally:
        _COLLECTED.reset(token)


def train(
    stage: Stage, run: Run | None, progress: Progress, checkpoint_seconds: float
) -> Result:
    """Train a stage; its `state` is then the last one.

    Args:
        run: where metrics and checkpoints go, and where an interrupted stage is
            continued; None: nowhere.
        checkpoint_seconds: how much work an interruption may cost.
    """
    collected = _COLLECTED.get()
    if collected is not None:
        collected.append(stage)
        return Result([], 1.0, 0.0)
    loop = _Loop(stage, run, progress, checkpoint_seconds)
    with stop_politely() as stopped, stage:
        return loop.run(stopped)


class _Loop:
    def __init__(
        self,
        stage: Stage,
        run: Run | None,
        progress: Progress,
        checkpoint_seconds: float,
    ):
        self.stage, self.directory, self.progress = stage, run, progress
        self.checkpoint_seconds = checkpoint_seconds
        self.step, self.seconds, self.history = 0, 0.0, []
        self.compiled: set[tuple[Update, int]] = set()
        self.compile_seconds = 0.0

    def run(self, stopped: Callable[[], bool]) -> Result:
        stage = self.stage
        self._resume()
        started = time.perf_counter() - self.seconds
        self.saved = time.perf_counter()
        self.seconds = self.saved - started
        if self.step == 0:
            self._log(stage.before())
        while not self._ended():
            self._advance()
            self.seconds = time.perf_counter() - started
            if stopped() and not self._ended():
                self._checkpoint()
                raise KeyboardInterrupt
            if self._ended() or self._late():
                self._checkpoint()
        for rows in stage.after():
            self._log(rows)
            self.progress(self.step, stage.shown())
            if stopped() or self._late():
                self._checkpoint()
            if stopped():
                raise KeyboardInterrupt
        return Result(self.history, self.seconds, self.compile_seconds)

    def _ended(self) -> bool:
        return self.step >= self.stage.steps or self.stage.done()

    def _advance(self) -> None:
        chunk = self.stage.chunk(self.step)
        began = time.perf_counter()
        state, metrics = fleet.advance(
            chunk.update,
            self.stage.state,
            chunk.replicas,
            chunk.data,
            self.step,
            chunk.steps,
            chunk.batch_size,
        )
        self.stage.state = jax.block_until_ready(state)
        if (chunk.update, chunk.steps) not in self.compiled:
            self.compiled.add((chunk.update, chunk.steps))
            self.compile_seconds += time.perf_counter() - began
        self.step += chunk.steps
        self._log(self.stage.between(self.step, metrics))
        self.progress(self.step, self.stage.shown())

    def _log(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        self.history += rows
        if self.directory and rows:
            self.directory.append_metrics(rows)

    # Interruptions

    def _late(self) -> bool:
        return time.perf_counter() - self.saved > self.checkpoint_seconds

    def _checkpoint(self) -> None:
        if self.directory:
            arrays, notes = self.stage.memory()
            about = {
                "step": self.step,
                "seconds": self.seconds,
                "history": self.history,
                "notes": notes,
            }
            self.directory.write_checkpoint((self.stage.state, arrays), about)
        self.saved = time.perf_counter()

    def _resume(self) -> None:
        if self.directory is None:
            return
        found = self.directory.read_checkpoint(
            lambda about: (self.stage.state, self.stage.memory_like(about["notes"]))
        )
        if found:
            (self.stage.state, arrays), about = found
            self.step, self.seconds = about["step"], about["seconds"]
            self.history = about["history"]
            self.stage.restore(arrays, about["notes"])
        # Lines behind the checkpoint will be written again.
        self.directory.write_metrics(self.history)
