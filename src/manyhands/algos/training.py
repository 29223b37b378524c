"""Policies as a stage of the loop: updates, and evaluations beside them.

While the device goes on learning, processes evaluate what it had learnt so far.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyhands.algos.algorithm import Algorithm
from manyhands.algos.replicas import Replica
from manyhands.algos.watching import Queue, Watch
from manyhands.fleet import Packed, Replicas
from manyhands.training.loop import Chunk, Means, Row, Stage, interval
from manyhands.training.replicas import stack
from manyhands.types import Pytree


class PolicyStage(Stage):
    def __init__(
        self,
        algorithm: Algorithm,
        replicas: list[Replica],
        data: Packed,
        watch: Watch | None,
        inspect: Callable[[int, Pytree], None],
    ):
        self.algorithm, self.data = algorithm, data
        self.seeds = [replica.seed for replica in replicas]
        self.watch, self.inspect = watch, inspect
        self.queue = Queue(watch.look) if watch else None
        self.options = replicas[0].options  # all have the same but the traced ones
        self.steps = self.options.steps
        constants = [algorithm.fitted(r.given, r.options) for r in replicas]
        traced = [jax.tree.map(jnp.float32, r.options) for r in replicas]
        self.replicas = Replicas(
            seed=jnp.asarray(self.seeds, jnp.uint32),
            start=jnp.asarray([r.rows.start for r in replicas], jnp.int32),
            size=jnp.asarray([len(r.rows) for r in replicas], jnp.int32),
            config=stack(traced),
            fitted=stack(constants),
        )
        self.state = stack([self._start(replica) for replica in replicas])
        self.values: dict[str, float] = {}

    def _start(self, replica: Replica) -> Pytree:
        # Apart from the keys of steps, which count from 0.
        key = jax.random.fold_in(jax.random.key(replica.seed), 2**31 - 1)
        return self.algorithm.start(key, replica.given, replica.options)

    def models(self) -> Pytree:
        """Copies: the buffers of the state are donated to the next chunk."""
        return _copies(self.algorithm.model, self.state, self.replicas.fitted)

    def chunk(self, step: int) -> Chunk:
        every = interval(self.steps)
        end = min(self.steps, (step // every + 1) * every)
        batch = self.options.batch_size
        update = self.algorithm.update
        return Chunk(update, self.replicas, self.data, end - step, batch)

    # Hooks

    def before(self) -> Iterable[Row]:
        return self._evaluate(0)

    def between(self, step: int, metrics: Means) -> Iterable[Row]:
        values = {name: np.asarray(value) for name, value in metrics.items()}
        rows = [
            {name: float(value[r]) for name, value in values.items()}
            for r in range(len(self.seeds))
        ]
        self.values = {n: v for n, v in rows[0].items() if n.endswith("/q")}
        lines = self._lines(step, rows)
        return lines + (self._evaluate(step) if step < self.steps else [])

    def after(self) -> Iterator[Iterable[Row]]:
        """Wait for evaluations that are under way."""
        while self.queue and self.queue.waiting:
            self.values = {"evaluations left": float(len(self.queue.waiting))}
            yield ()
            self.queue.wait(0.2)
            yield self._evaluated(self.queue)

    def shown(self) -> dict[str, float]:
        return self.values

    def _evaluate(self, step: int) -> list[Row]:
        """Begin an evaluation where it is time; the results of those that ended."""
        if not (self.watch and self.queue):
            return []
        if step % self.watch.every == 0:
            models = self.models()
            self.queue.add(step, models)
            self.inspect(step, models)
        return self._evaluated(self.queue)

    def _evaluated(self, queue: Queue) -> list[Row]:
        lines = []
        for step, evaluations in queue.done():
            rows = [
                {f"evaluation/{k}": v for k, v in e.summary().items()}
                for e in evaluations
            ]
            lines += self._lines(step, rows)
        return lines

    def _lines(self, step: int, rows: list[dict[str, Any]]) -> list[Row]:
        return [
            {"step": step, "replica": r, "seed": self.seeds[r], **row}
            for r, row in enumerate(rows)
        ]

    # An interruption loses no evaluation: a checkpoint holds the models that wait

    def memory(self) -> tuple[Pytree, dict[str, Any]]:
        waiting = list(self.queue.waiting) if self.queue else []
        notes = {"waiting": [one.step for one in waiting]}
        return [one.models for one in waiting], notes

    def memory_like(self, notes: dict[str, Any]) -> Pytree:
        return [jax.eval_shape(self.models)] * len(notes["waiting"])

    def restore(self, memory: Pytree, notes: dict[str, Any]) -> None:
        if self.queue:
            for step, models in zip(notes["waiting"], memory):
                self.queue.add(step, models)

    def __exit__(self, *error: object) -> None:
        if self.queue:
            self.queue.close()


# Compiled as a whole: an operation of its own for every array takes much longer.
@partial(jax.jit, static_argnums=0)
def _copies(model: Callable[[Pytree, Pytree], Pytree], state: Pytree, fitted: Pytree):
    return jax.tree.map(jnp.copy, jax.vmap(model)(state, fitted))
