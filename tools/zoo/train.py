"""Training agents, all of them in one program, and keeping them along the way.

An epoch is rlkit's: so many updates, and as many steps in the environment by the
policy as it was before. Processes step the environments while the device computes.
What an agent sees depends on its seed and the epoch alone, so a run that was killed
goes on as if it had not been.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyhands.agents.tasks import TASKS, task
from manyhands.envs.processes import how_many
from manyhands.errors import UserError
from manyhands.fleet import Packed, Replicas
from manyhands.options import choose
from manyhands.runs import Run, environment, flatten
from manyhands.training import loop
from manyhands.training.loop import Chunk, Means, Progress, Row, Stage, silent
from manyhands.types import Pytree
from zoo import sac
from zoo.explorer import Agent, Shape
from zoo.explorers import Explorers, Replay
from zoo.options import PRESETS, Options


def train(
    tasks: Sequence[str],
    seeds: Sequence[int],
    out: str | Path,
    *,
    workers: int | None = None,
    checkpoint_seconds: float = 60.0,
    progress: Progress = silent,
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
    stage = AgentStage(run, options, agents, workers)
    loop.train(stage, run, progress, checkpoint_seconds)
    run.write_json("summary.json", {"steps": stage.steps})


class AgentStage(Stage):
    """Agents explore in processes while the device learns from what they saw before."""

    def __init__(
        self, run: Run, options: Options, agents: list[tuple[str, int]], workers: int
    ):
        self.run, self.options, self.agents = run, options, agents
        self.workers = workers
        epochs = -(-options.steps // options.epoch)
        self.steps = epochs * options.epoch
        self.shape = Shape(
            agents=len(agents),
            capacity=options.first + self.steps,
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
        self.returns: dict[str, float] = {}  # of some agents, in the last epoch

    def _init(self, seed) -> sac.State:
        # Apart from the keys of steps, which count from 0.
        key = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
        shape, width = self.shape, self.options.width
        return sac.init(key, shape.observations, shape.actions, width)

    def __enter__(self) -> "AgentStage":
        agents = [
            Agent(number, task(name).env_id, [seed, list(TASKS).index(name)])
            for number, (name, seed) in enumerate(self.agents)
        ]
        self.explorers = Explorers(agents, self.replay, self.workers)
        return self

    def __exit__(self, *error: object) -> None:
        self.explorers.__exit__(*error)

    def before(self) -> list[Row]:
        self._keep(0)
        self._explore(0, self.options.first)
        self.explorers.finish()
        self.replay.take(self.options.first)
        return []

    def chunk(self, step: int) -> Chunk:
        """An epoch, which the agents begin to explore as well."""
        replay, many = self.replay, len(self.agents)
        # The steps to begin with count as an epoch of their own.
        self._explore(step // self.options.epoch + 1, self.options.epoch)
        start = jnp.arange(many, dtype=jnp.int32) * self.shape.capacity
        size = jnp.full(many, replay.filled, jnp.int32)
        return Chunk(
            sac.update,
            Replicas(self.seeds, start, size, self.config, self.fitted),
            Packed(replay.rows, self.shape.observations, self.shape.actions),
            self.options.epoch,
            self.options.batch_size,
        )

    def _explore(self, epoch: int, steps: int) -> None:
        net = self.state.actor.tree().net
        self.explorers.begin(net, self.replay.filled, steps, epoch)

    def between(self, step: int, metrics: Means) -> list[Row]:
        returns = self.explorers.finish()
        self.replay.take(self.replay.filled + self.options.epoch)
        if step % self.options.keep_every < self.options.epoch or step == self.steps:
            self._keep(step)
        values = {name: np.asarray(value) for name, value in metrics.items()}
        rows = [
            {
                "step": step,
                "replica": r,
                "task": name,
                "seed": seed,
                "return": float(np.mean(ended)) if ended else None,
                "episodes": len(ended),
                **{key: float(value[r]) for key, value in values.items()},
            }
            for r, ((name, seed), ended) in enumerate(zip(self.agents, returns))
        ]
        self.returns = {
            f"{row['task']}-{row['seed']}": row["return"]
            for row in rows[:: max(1, len(rows) // 3)]
            if row["return"] is not None
        }
        return rows

    def shown(self) -> dict[str, float]:
        return self.returns

    def memory(self) -> tuple[Pytree, dict[str, Any]]:
        self.replay.flush()
        return (), {"filled": self.replay.filled}

    def restore(self, memory: Pytree, notes: dict[str, Any]) -> None:
        self.replay.restore(notes["filled"])

    def _keep(self, step: int) -> None:
        nets = flatten(self.state.actor.tree().net)
        small = {name: array.astype(np.float16) for name, array in nets.items()}
        self.run.write_arrays(policies_at(step), small)


def policies_at(step: int) -> str:
    """The file in a run with all agents' policies after so many steps."""
    return f"policies/{step:08d}.safetensors"
