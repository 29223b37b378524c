"""Training agents, all of them in one program, and keeping them along the way.

An epoch is rlkit's: so many updates, and as many steps in the environment by the
policy as it was before. Processes step the environments while the device computes.
What an agent sees depends on its seed and the epoch alone, so a run that was killed
goes on as if it had not been.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyhands import fleet, hyper
from manyhands.envs.pool import Pool
from manyhands.envs.rollout import Act, episode_seeds
from manyhands.errors import UserError
from manyhands.interrupts import stop_politely
from manyhands.nn.networks import MLP
from manyhands.runs import Run, environment, flatten
from manyhands.zoo import sac
from manyhands.zoo.collect import Steps, collect
from manyhands.zoo.options import PRESETS, Options
from manyhands.zoo.tasks import TASKS, task

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
    options = hyper.resolve(PRESETS, "default", changes)
    if not tasks or not seeds:
        raise UserError("tasks, seeds: expected at least one of each, got none")
    agents = [(name, seed) for name in tasks for seed in seeds]
    env_ids = [task(name).env_id for name, _ in agents]
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
    # Padded as if all tasks were there: an agent is the same whoever trains beside it.
    sizes = [(t.observations, t.actions) for t in TASKS.values()]
    with Pool(env_ids, workers, at_least=max(sizes)) as pool:
        Training(run, options, agents, pool, progress, checkpoint_seconds).train()


class Training:
    """One call of `train`."""

    def __init__(
        self,
        run: Run,
        options: Options,
        agents: list[tuple[str, int]],
        pool: Pool,
        progress: Progress,
        checkpoint_seconds: float,
    ):
        self.run, self.options, self.agents, self.pool = run, options, agents, pool
        self.progress, self.checkpoint_seconds = progress, checkpoint_seconds
        seeds = jnp.asarray([seed for _, seed in agents], jnp.uint32)
        masks = [np.arange(pool.actions) < task(name).actions for name, _ in agents]
        self.fitted = sac.Fitted(jnp.asarray(np.array(masks), jnp.float32))
        self.state = jax.jit(jax.vmap(self._init))(seeds)
        config = sac.Config(
            jnp.float32(options.rate),
            jnp.float32(options.discount),
            jnp.float32(options.target_rate),
        )
        self.config = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (len(agents), *x.shape)), config
        )
        self.seeds = seeds
        self.epoch, self.epochs = 0, -(-options.steps // options.epoch)
        self.replay = Replay(
            run.path / "replay.f32",
            len(agents),
            options.first + self.epochs * options.epoch,
            columns=2 * pool.states + pool.actions + 3,
        )

    def _init(self, seed) -> sac.State:
        # Apart from the keys of steps, which count from 0.
        key = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
        return sac.init(key, self.pool.states, self.pool.actions, self.options.width)

    # The loop

    def train(self) -> None:
        options, epochs = self.options, self.epochs
        self._resume()
        saved = time.perf_counter()
        with stop_politely() as stopped:
            if self.replay.filled == 0:
                self._keep(0)
                self.replay.add(self._collect(options.first).rows())
            while self.epoch < epochs:
                act = self._act()
                state, metrics = self._learn()  # the device is busy from here on
                steps = self._collect(options.epoch, act)
                self.state = jax.block_until_ready(state)
                self.replay.add(steps.rows())
                self.epoch += 1
                self._log(steps, metrics)
                done = self.epoch * options.epoch
                if done % options.keep_every < options.epoch or self.epoch == epochs:
                    self._keep(done)
                now = time.perf_counter()
                last = self.epoch == epochs
                if stopped() or last or now - saved > self.checkpoint_seconds:
                    self._checkpoint()
                    saved = now
                if stopped() and not last:
                    raise KeyboardInterrupt
        self.run.write_json("summary.json", {"steps": self.epoch * options.epoch})

    def _learn(self) -> tuple[sac.State, dict[str, jax.Array]]:
        replay, many = self.replay, len(self.agents)
        start = jnp.arange(many, dtype=jnp.int32) * replay.capacity
        size = jnp.full(many, replay.filled, jnp.int32)
        return fleet.advance(
            sac.update,
            self.state,
            fleet.Replicas(self.seeds, start, size, self.config, self.fitted),
            fleet.Packed(replay.rows, self.pool.states, self.pool.actions),
            first_step=self.epoch * self.options.epoch,
            steps=self.options.epoch,
            batch_size=self.options.batch_size,
        )

    def _act(self) -> Act:
        return Explorers(self.state.actor.tree().net, self.fitted.mask)

    def _collect(self, steps: int, act: Act | None = None) -> Steps:
        # The steps to begin with count as an epoch of their own.
        number = 0 if act is None else self.epoch + 1
        seeds = [
            episode_seeds(seed, list(TASKS).index(name), number)
            for name, seed in self.agents
        ]
        return collect(self.pool, act or self._act(), seeds, steps)

    # What is kept

    def _log(self, steps: Steps, metrics: dict[str, jax.Array]) -> None:
        done = self.epoch * self.options.epoch
        values = {name: np.asarray(value) for name, value in metrics.items()}
        rows = [
            {
                "step": done,
                "replica": r,
                "task": name,
                "seed": seed,
                "return": float(np.mean(returns)) if returns else None,
                "episodes": len(returns),
                **{key: float(value[r]) for key, value in values.items()},
            }
            for r, ((name, seed), returns) in enumerate(zip(self.agents, steps.returns))
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
        found = self.run.read_checkpoint(self.state)
        if found:
            self.state, about = found
            self.epoch = about["epoch"]
            self.replay.restore(about["filled"])
        self.run.rewind_metrics(self.epoch * self.options.epoch)


def policies_at(step: int) -> str:
    """The file in a run with all agents' policies after so many steps."""
    return f"policies/{step:08d}.safetensors"


class Explorers:
    """The policies as they are now, one environment each, for `collect`.

    On the host, because the device has work to do, and in NumPy: products this small
    take less time than a call of JAX.
    """

    def __init__(self, nets: MLP, mask: jax.Array):
        # Copies: learning gives up the arrays of the state.
        self.layers = [
            (np.array(layer.w), np.array(layer.b)[:, None]) for layer in nets.layers
        ]
        self.mask = np.array(mask)
        self.drawn: dict[tuple[int, int], np.ndarray] = {}

    def __call__(
        self, observations: np.ndarray, seeds: np.ndarray, times: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        x = observations[:, None]  # [agent, 1, S]
        for w, b in self.layers[:-1]:
            x = np.maximum(x @ w + b, 0)
        w, b = self.layers[-1]
        mean, log_std = np.split((x @ w + b)[:, 0], 2, axis=-1)
        noise = [self._noise(s, t) for s, t in zip(seeds.tolist(), times.tolist())]
        u = mean + np.exp(np.clip(log_std, *sac.LOG_STD)) * np.array(noise)
        return np.tanh(u) * self.mask, np.full(len(u), np.nan, np.float32)

    def _noise(self, seed: int, time: int) -> np.ndarray:
        key = (seed, time // 128)
        if key not in self.drawn:
            size = (128, self.mask.shape[1])
            draw = np.random.default_rng(key).standard_normal(size, np.float32)
            self.drawn[key] = draw
        return self.drawn[key][time % 128]


class Replay:
    """All that the agents have seen: on the device, and on disk for a run that goes on.

    Nothing is forgotten: rlkit's million is as much as the default run sees.
    """

    def __init__(self, path: Path, agents: int, capacity: int, columns: int):
        self.capacity, self.filled = capacity, 0  # of each agent
        self.rows = jnp.zeros((agents * capacity, columns), jnp.float32)
        shape, mode = (agents, capacity, columns), "r+" if path.exists() else "w+"
        self.file = np.memmap(path, np.float32, mode, shape=shape)

    def add(self, new: np.ndarray) -> None:
        """[agent, step, column]"""
        end = self.filled + new.shape[1]
        self.file[:, self.filled : end] = new
        self.rows = _insert(self.rows, jnp.asarray(new), self.filled)
        self.filled = end

    def flush(self) -> None:
        self.file.flush()

    def restore(self, filled: int) -> None:
        """Rows written after the checkpoint are there too: they will come again."""
        self.filled = filled
        self.rows = jnp.asarray(self.file.reshape(self.rows.shape))


@partial(jax.jit, donate_argnames="rows")
def _insert(rows, new, start):
    by_agent = rows.reshape(len(new), -1, rows.shape[-1])
    return jax.lax.dynamic_update_slice(by_agent, new, (0, start, 0)).reshape(
        rows.shape
    )
