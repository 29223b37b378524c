"""The loop that trains policies: chunks of updates, evaluations beside them,
checkpoints.

All replicas train together. While the device goes on, processes evaluate what it had
learnt so far. Everything is decided by the step and the seed, so an interrupted run
goes on to the same bits.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyhands import fleet
from manyhands.algos.algorithm import Algorithm, Given
from manyhands.algos.evaluate import Evaluation
from manyhands.fleet import Packed, Replicas
from manyhands.interrupts import stop_politely
from manyhands.runs import Run
from manyhands.types import Pytree

Progress = Callable[[int, dict[str, float]], None]  # updates done, what to show


class Replica(NamedTuple):
    """One of those that train together."""

    seed: int
    options: Any
    given: Given
    rows: range  # of the data, that it learns from


class Watch(NamedTuple):
    """Evaluations along the way."""

    # models of all replicas -> an evaluation of each
    look: Callable[[Pytree], list[Evaluation]]
    every: int  # updates; a multiple of the interval between log lines

    @staticmethod
    def of(
        look: Callable[[Pytree], list[Evaluation]], evaluations: int, steps: int
    ) -> "Watch":
        """As many along so many updates."""
        lines = -(-steps // (evaluations * interval(steps)))
        return Watch(look, max(1, lines) * interval(steps))


class Snapshot(NamedTuple):
    """All that training carries from chunk to chunk; leaves lead with the replica."""

    state: Pytree
    watched: Pytree  # the models that are being evaluated


@dataclass
class Result:
    models: Pytree  # of all replicas
    history: list[dict[str, Any]]  # rows of metrics
    seconds: float
    compile_seconds: float


def interval(steps: int) -> int:
    """Updates between log lines."""
    return max(1, min(1000, steps // 40))


class Training:
    """One call of `train`, from what is given to models."""

    def __init__(
        self,
        algorithm: Algorithm,
        replicas: list[Replica],
        data: Packed,
        run: Run | None,
        watch: Watch | None,
        progress: Progress,
        checkpoint_seconds: float,
    ):
        self.algorithm, self.replicas, self.data = algorithm, replicas, data
        self.run, self.watch, self.progress = run, watch, progress
        self.checkpoint_seconds = checkpoint_seconds
        self.options = replicas[0].options  # what is no float is the same in all
        self.step, self.history = 0, []
        self.fitted = _stack([algorithm.fitted(r.given, r.options) for r in replicas])
        self.config = _stack([_traced(r.options) for r in replicas])
        state = _stack([self._start(r) for r in replicas])
        self.snapshot = Snapshot(state, self._models(state))
        self.watched_step = 0  # 0: nothing is being evaluated
        self.watching: Future[list[Evaluation]] | None = None

    def _start(self, replica: Replica) -> Pytree:
        # Apart from the keys of steps, which count from 0.
        key = jax.random.fold_in(jax.random.key(replica.seed), 2**31 - 1)
        return self.algorithm.start(key, replica.given, replica.options)

    def _models(self, state: Pytree) -> Pytree:
        """Copies: a fleet gives its state up."""
        return _copies(self.algorithm.model, state, self.fitted)

    # The loop

    def train(self) -> Result:
        started, compiling = time.perf_counter(), 0.0
        self._resume()
        first, saved, last = self.step, time.perf_counter(), self.options.steps
        with stop_politely() as stopped, ThreadPoolExecutor(1) as self.aside:
            if self.watched_step:
                self._look()  # the evaluation that was interrupted
            elif self.watch and self.step == 0:
                self._evaluate()
            while self.step < last:
                before = time.perf_counter()
                metrics = self._advance()
                if self.step - first <= interval(last):
                    compiling += time.perf_counter() - before
                self._log(metrics)
                if self.watch and self.step < last and self._due():
                    self._evaluate()
                now = time.perf_counter()
                late = now - saved > self.checkpoint_seconds
                if stopped() or late or self.step == last:
                    self._checkpoint()
                    saved = now
                if stopped() and self.step < last:
                    raise KeyboardInterrupt
            self._collect()
        models = self._models(self.snapshot.state)
        seconds = time.perf_counter() - started
        return Result(models, self.history, seconds, compiling)

    def _due(self) -> bool:
        assert self.watch
        return self.step % self.watch.every == 0

    def _advance(self) -> dict[str, np.ndarray]:
        every, options = interval(self.options.steps), self.options
        steps = min(options.steps, (self.step // every + 1) * every) - self.step
        rows = [replica.rows for replica in self.replicas]
        state, metrics = fleet.advance(
            self.algorithm.update,
            self.snapshot.state,
            Replicas(
                seed=jnp.asarray([r.seed for r in self.replicas], jnp.uint32),
                start=jnp.asarray([r.start for r in rows], jnp.int32),
                size=jnp.asarray([len(r) for r in rows], jnp.int32),
                config=self.config,
                fitted=self.fitted,
            ),
            self.data,
            self.step,
            steps,
            options.batch_size,
        )
        self.snapshot = self.snapshot._replace(state=jax.block_until_ready(state))
        self.step += steps
        return {name: np.asarray(values) for name, values in metrics.items()}

    def _log(self, metrics: dict[str, np.ndarray]) -> None:
        rows = [
            {name: float(values[r]) for name, values in metrics.items()}
            for r in range(len(self.replicas))
        ]
        self._write(self.step, rows)
        shown = {name: row for name, row in rows[0].items() if name.endswith("/q")}
        self.progress(self.step, shown)

    def _write(self, step: int, rows: list[dict[str, Any]]) -> None:
        seeds = [replica.seed for replica in self.replicas]
        lines = [
            {"step": step, "replica": r, "seed": seeds[r], **row}
            for r, row in enumerate(rows)
        ]
        self.history += lines
        if self.run:
            self.run.append_metrics(lines)

    # Evaluations

    def _evaluate(self) -> None:
        """Begin one, when the last one has ended."""
        self._collect()
        self.snapshot = self.snapshot._replace(
            watched=self._models(self.snapshot.state)
        )
        self.watched_step = self.step or -1  # -1: before the first update
        self._look()

    def _look(self) -> None:
        assert self.watch
        self.watching = self.aside.submit(self.watch.look, self.snapshot.watched)

    def _collect(self) -> None:
        if self.watching is None:
            return
        found = self.watching.result()
        rows = [
            {f"evaluation/{k}": v for k, v in e.summary().items() if k != "returns"}
            for e in found
        ]
        self._write(max(0, self.watched_step), rows)
        self.watching, self.watched_step = None, 0

    # Interruptions

    def _checkpoint(self) -> None:
        if self.watching is not None and self.watching.done():
            self._collect()
        if self.run:
            about = {
                "step": self.step,
                "watched": self.watched_step,
                "history": self.history,
            }
            self.run.write_checkpoint(self.snapshot, about)

    def _resume(self) -> None:
        found = self.run.read_checkpoint(self.snapshot) if self.run else None
        if found:
            self.snapshot, about = found
            self.step, self.watched_step = about["step"], about["watched"]
            self.history = about["history"]
        if self.run:
            self.run.write_metrics(self.history)


def _traced(options: Any) -> Any:
    return jax.tree.map(jnp.float32, options)


# Compiled as a whole: an operation of its own for every array takes much longer.


@partial(jax.jit, static_argnums=0)
def _copies(model: Callable[[Pytree, Pytree], Pytree], state: Pytree, fitted: Pytree):
    return jax.tree.map(jnp.copy, jax.vmap(model)(state, fitted))


@jax.jit
def _stack(trees: list[Pytree]) -> Pytree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
