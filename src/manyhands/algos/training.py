"""The loop that trains policies: chunks of updates, evaluations beside them,
checkpoints.

All replicas train together. While the device goes on, processes evaluate what it had
learnt so far. Everything is decided by the step and the seed, so an interrupted run
goes on to the same bits.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyhands import fleet
from manyhands.algos.algorithm import Algorithm, Given
from manyhands.algos.evaluate import Evaluation
from manyhands.algos.watching import Queue, Watch, interval
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


class Snapshot(NamedTuple):
    """All that training carries from chunk to chunk; leaves lead with the replica."""

    state: Pytree
    waiting: list[Pytree]  # models that are to be evaluated yet


@dataclass
class Result:
    models: Pytree  # of all replicas
    history: list[dict[str, Any]]  # rows of metrics
    seconds: float  # until the last update, in all parts of an interrupted run
    compile_seconds: float


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
        inspect: Callable[[int, Pytree], None],
    ):
        self.algorithm, self.replicas, self.data = algorithm, replicas, data
        self.run, self.watch, self.progress = run, watch, progress
        self.checkpoint_seconds, self.inspect = checkpoint_seconds, inspect
        self.options = replicas[0].options  # what is no float is the same in all
        self.step, self.seconds, self.history = 0, 0.0, []
        self.fitted = _stack([algorithm.fitted(r.given, r.options) for r in replicas])
        self.config = _stack([_traced(r.options) for r in replicas])
        self.state = _stack([self._start(r) for r in replicas])
        self.queue = Queue(watch.look) if watch else None

    def _start(self, replica: Replica) -> Pytree:
        # Apart from the keys of steps, which count from 0.
        key = jax.random.fold_in(jax.random.key(replica.seed), 2**31 - 1)
        return self.algorithm.start(key, replica.given, replica.options)

    def _models(self, state: Pytree) -> Pytree:
        """Copies: a fleet gives its state up."""
        return _copies(self.algorithm.model, state, self.fitted)

    # The loop

    def train(self) -> Result:
        with stop_politely() as stopped, self.queue or nullcontext():
            return self._train(stopped)

    def _train(self, stopped: Callable[[], bool]) -> Result:
        started, compiling = time.perf_counter(), 0.0
        self._resume()
        first, last, self.saved = self.step, self.options.steps, time.perf_counter()
        started -= self.seconds  # of earlier parts
        self.seconds = time.perf_counter() - started
        if self.step == 0:
            self._evaluate()
        while self.step < last:
            before = time.perf_counter()
            metrics = self._advance()
            if self.step - first <= interval(last):
                compiling += time.perf_counter() - before
            self._log(metrics)
            self.seconds = time.perf_counter() - started
            if self.step < last:
                self._evaluate()
            self._keep(stopped(), ended=self.step == last)
        while self.queue and self.queue.waiting:
            left = float(len(self.queue.waiting))
            self.progress(self.step, {"evaluations left": left})
            self.queue.wait(0.2)
            self._note(self.queue.done())
            self._keep(stopped())
        models = self._models(self.state)
        return Result(models, self.history, self.seconds, compiling)

    def _advance(self) -> dict[str, np.ndarray]:
        every, options = interval(self.options.steps), self.options
        steps = min(options.steps, (self.step // every + 1) * every) - self.step
        rows = [replica.rows for replica in self.replicas]
        state, metrics = fleet.advance(
            self.algorithm.update,
            self.state,
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
        self.state = jax.block_until_ready(state)
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
        """Let one begin where it is time, and write down what others found."""
        if not (self.watch and self.queue):
            return
        if self.step % self.watch.every == 0:
            models = self._models(self.state)
            self.queue.add(self.step, models)
            self.inspect(self.step, models)
        self._note(self.queue.done())

    def _note(self, found: Iterable[tuple[int, list[Evaluation]]]) -> None:
        for step, evaluations in found:
            rows = [
                {f"evaluation/{k}": v for k, v in e.summary().items()}
                for e in evaluations
            ]
            self._write(step, rows)

    # Interruptions

    def _keep(self, stopped: bool, ended: bool = False) -> None:
        """Write a checkpoint where it is time, and stop if that was asked for."""
        now = time.perf_counter()
        if stopped or ended or now - self.saved > self.checkpoint_seconds:
            self._checkpoint()
            self.saved = now
        waiting = self.queue and self.queue.waiting
        if stopped and (self.step < self.options.steps or waiting):
            raise KeyboardInterrupt

    def _checkpoint(self) -> None:
        if self.run:
            waiting = list(self.queue.waiting) if self.queue else []
            about = {
                "step": self.step,
                "seconds": self.seconds,
                "waiting": [one.step for one in waiting],
                "history": self.history,
            }
            snapshot = Snapshot(self.state, [one.models for one in waiting])
            self.run.write_checkpoint(snapshot, about)

    def _resume(self) -> None:
        found = self.run.read_checkpoint(self._like) if self.run else None
        if found:
            (self.state, models), about = found
            self.step, self.seconds = about["step"], about["seconds"]
            self.history = about["history"]
            if self.queue:  # evaluations that were interrupted
                for step, one in zip(about["waiting"], models):
                    self.queue.add(step, one)
        if self.run:
            self.run.write_metrics(self.history)

    def _like(self, about: dict[str, Any]) -> Snapshot:
        """What the checkpoint looks like that says this about itself."""
        models = jax.eval_shape(self._models, self.state)
        return Snapshot(self.state, [models] * len(about["waiting"]))


def _traced(options: Any) -> Any:
    return jax.tree.map(jnp.float32, options)


# Compiled as a whole: an operation of its own for every array takes much longer.


@partial(jax.jit, static_argnums=0)
def _copies(model: Callable[[Pytree, Pytree], Pytree], state: Pytree, fitted: Pytree):
    return jax.tree.map(jnp.copy, jax.vmap(model)(state, fitted))


@jax.jit
def _stack(trees: list[Pytree]) -> Pytree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
