"""Training agents, all of them in one program, and keeping them along the way.

An epoch is rlkit's: so many updates, and as many steps in the environment by the
policy as it was before. Processes step the environments while the device computes.
What an agent sees depends on its seed and the epoch alone, so a run that was killed
goes on as if it had not been.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyhands import fleet
from manyhands.agents.tasks import TASKS, task
from manyhands.envs.processes import how_many
from manyhands.errors import UserError
from manyhands.interrupts import stop_politely
from manyhands.options import choose
from manyhands.runs import Run, environment, flatten
from zoo import sac
from zoo.explorer import Agent, Shape
from zoo.explorers import Explorers, Replay
from zoo.options import PRESETS, Options

Progress = Callable[[int, dict[str, float]], None]  # updates done, what to show


def _silent(done: int, shown: dict[str, float]) -> None:
    """The default: nobody is watching."""


def train(
    tasks: Sequence[str],
    seeds: Sequence[int],
    out: str | Path,
    *,
    workers: int | None = None,
    checkpoint_seconds: float = 60.0,
    progress: Progress = _silent,
    **changes: Any,
) -> None:
    """Train an agent for every task and seed; write them to a run directory.

    Args:
        tasks: of `TASKS`.
        out: a run that was interrupted there is continued.
        workers: processes that step environments; as many as there are cores if None.
        checkpoint_seconds: how much work an interruption may cost.
        changes: single options, see `Options`.
    """
    options = choose(PRESETS, "default", changes)
    if not tasks or not seeds:
        raise UserError("tasks, seeds: expected at least one of each, got none")
    agents = [(name, seed) for name in tasks for seed in seeds]
    for name in tasks:
        task(name)
    workers = how_many(workers, len(agents))
    run = Run(out)
    run.check()
    run.begin(
        {
            "agents": agents,
            "options": asdict(options),
            "environment": environment(),
        },
        same=("agents", "options"),
    )
    Training(run, options, agents, progress, checkpoint_seconds).train(workers)


class Training:
    """One call of `train`."""

    def __init__(
        self,
        run: Run,
        options: Options,
        agents: list[tuple[str, int]],
        progress: Progress,
        checkpoint_seconds: float,
    ):
        self.run, self.options, self.agents = run, options, agents
        self.progress, self.checkpoint_seconds = progress, checkpoint_seconds
        self.epoch, self.epochs = 0, -(-options.steps // options.epoch)
        self.shape = Shape(
            agents=len(agents),
            capacity=options.first + self.epochs * options.epoch,
            # As if all tasks were there: an agent is the same whoever trains beside it.
            observations=max(t.observations for t in TASKS.values()),
            actions=max(t.actions for t in TASKS.values()),
        )
        self.replay = Replay(run.path / "replay.f32", self.shape)
        widest = np.arange(self.shape.actions)
        masks = [widest < task(name).actions for name, _ in agents]
        self.fitted = sac.Fitted(jnp.asarray(np.array(masks), jnp.float32))
        self.seeds = jnp.asarray([seed for _, seed in agents], jnp.uint32)
        self.state = jax.jit(jax.vmap(self._init))(self.seeds)
        config = sac.Config(
            jnp.float32(options.rate),
            jnp.float32(options.discount),
            jnp.float32(options.target_rate),
        )
        self.config = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (len(agents), *x.shape)), config
        )

    def _init(self, seed) -> sac.State:
        # Apart from the keys of steps, which count from 0.
        key = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
        shape, width = self.shape, self.options.width
        return sac.init(key, shape.observations, shape.actions, width)

    # The loop

    def train(self, workers: int) -> None:
        options, last = self.options, self.epochs
        self._resume()
        saved = time.perf_counter()
        with stop_politely() as stopped, self._explorers(workers) as explorers:
            if self.replay.filled == 0:
                self._keep(0)
                self._explore(explorers, options.first)
                explorers.finish()
                self.replay.take(options.first)
            while self.epoch < last:
                self._explore(explorers, options.epoch)
                state, metrics = self._learn()  # the device is busy from here on
                returns = explorers.finish()
                self.state = jax.block_until_ready(state)
                self.replay.take(self.replay.filled + options.epoch)
                self.epoch += 1
                self._log(returns, metrics)
                done = self.epoch * options.epoch
                if done % options.keep_every < options.epoch or self.epoch == last:
                    self._keep(done)
                late = time.perf_counter() - saved > self.checkpoint_seconds
                if stopped() or late or self.epoch == last:
                    self._checkpoint()
                    saved = time.perf_counter()
                if stopped() and self.epoch < last:
                    raise KeyboardInterrupt
        self.run.write_json("summary.json", {"steps": self.epoch * options.epoch})

    def _explorers(self, workers: int) -> Explorers:
        agents = [
            Agent(number, task(name).env_id, [seed, list(TASKS).index(name)])
            for number, (name, seed) in enumerate(self.agents)
        ]
        return Explorers(agents, self.replay, workers)

    def _explore(self, explorers: Explorers, steps: int) -> None:
        # The steps to begin with count as an epoch of their own.
        number = 0 if self.replay.filled == 0 else self.epoch + 1
        net = self.state.actor.tree().net
        explorers.begin(net, self.replay.filled, steps, number)

    def _learn(self) -> tuple[sac.State, dict[str, jax.Array]]:
        replay, many = self.replay, len(self.agents)
        start = jnp.arange(many, dtype=jnp.int32) * self.shape.capacity
        size = jnp.full(many, replay.filled, jnp.int32)
        return fleet.advance(
            sac.update,
            self.state,
            fleet.Replicas(self.seeds, start, size, self.config, self.fitted),
            fleet.Packed(replay.rows, self.shape.observations, self.shape.actions),
            first_step=self.epoch * self.options.epoch,
            steps=self.options.epoch,
            batch_size=self.options.batch_size,
        )

    # What is kept

    def _log(self, returns: list[list[float]], metrics: dict[str, jax.Array]) -> None:
        done = self.epoch * self.options.epoch
        values = {name: np.asarray(value) for name, value in metrics.items()}
        rows = [
            {
                "step": done,
                "replica": r,
                "task": name,
                "seed": seed,
                "return": float(np.mean(ended)) if ended else None,
                "episodes": len(ended),
                **{key: float(value[r]) for key, value in values.items()},
            }
            for r, ((name, seed), ended) in enumerate(zip(self.agents, returns))
        ]
        self.run.append_metrics(rows)
        shown = {
            f"{row['task']}-{row['seed']}": row["return"]
            for row in rows[:: max(1, len(rows) // 3)]
            if row["return"] is not None
        }
        self.progress(done, shown)

    def _keep(self, step: int) -> None:
        nets = flatten(self.state.actor.tree().net)
        small = {name: array.astype(np.float16) for name, array in nets.items()}
        self.run.write_arrays(policies_at(step), small)

    def _checkpoint(self) -> None:
        self.replay.flush()
        about = {"epoch": self.epoch, "filled": self.replay.filled}
        self.run.write_checkpoint(self.state, about)

    def _resume(self) -> None:
        found = self.run.read_checkpoint(lambda _: self.state)
        if found:
            self.state, about = found
            self.epoch = about["epoch"]
            self.replay.restore(about["filled"])
        self.run.rewind_metrics(self.epoch * self.options.epoch)


def policies_at(step: int) -> str:
    """The file in a run with all agents' policies after so many steps."""
    return f"policies/{step:08d}.safetensors"
