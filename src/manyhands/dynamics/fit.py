"""Learning models of the dynamics: epochs, rows held out, the best of every member.

All replicas train together by the fleet. After every epoch each member is judged on the
rows held out, and kept if it is better than ever by more than 1 %.
A replica is done when none of its members has been for some epochs: what it learns from
then on is not looked at, so it does not feel how long others take.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from manyhands import fleet
from manyhands.data.trajectories import Trajectories
from manyhands.dynamics import autoregressive, ensemble
from manyhands.dynamics.prediction import pick, predict_all, targets_of
from manyhands.dynamics.report import judge, report
from manyhands.dynamics.rows import Rows, prepare
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.fleet import Replicas
from manyhands.interrupts import stop_politely
from manyhands.runs import Run, environment, flatten, unflatten
from manyhands.types import Batch, Pytree

BETTER = 0.01  # a relative improvement that counts
LEAST_EPOCH = 250  # updates: an epoch of a small data set is over before it has begun
CALIBRATION = 20_000  # rows that quantiles of the disagreement are taken from
KINDS = {"gaussian": ensemble, "autoregressive": autoregressive}

Progress = Callable[[int, dict[str, float]], None]  # updates done, what to show


class Dynamics(NamedTuple):
    """A fitted ensemble and what was measured of it."""

    members: Pytree  # with a leading member axis
    elites: Int[Array, " elite"]  # the best, by their held-out error
    quantiles: Float[Array, "101"]  # of the elites' disagreement in the data
    rewards: Float[Array, "2"]  # the lowest and the highest in the data
    inputs: Inputs
    report: dict[str, Any]


class Snapshot(NamedTuple):
    """All that training carries from epoch to epoch; leaves lead with the replica."""

    state: Pytree
    best: Pytree  # [replica, member, ...]
    error: Float[Array, "replica member"]  # of `best` on rows held out, or less its
    # log-likelihood, as `Settings.judge` says
    waited: Int[Array, " replica"]  # epochs since a member was last kept


def fit(
    data: Trajectories,
    scale: Callable[[np.ndarray], np.ndarray],
    jobs: list[tuple[int, Settings]],
    out: Path | None,
    progress: Progress,
    checkpoint_seconds: float,
) -> list[Dynamics]:
    """One for each (seed, settings), which agree in all that is no float.

    Args:
        scale: how observations are standardised.
        out: a run directory; what was fitted there before is read, what was begun is
            continued.
    """
    alone = list(dict.fromkeys(jobs))
    rows = prepare(data, scale, alone[0][1].unit_rewards)
    fitting = Fitting(rows, alone, out, progress, checkpoint_seconds)
    found = dict(zip(alone, fitting.result()))
    return [found[job] for job in jobs]


class Fitting:
    def __init__(
        self,
        rows: Rows,
        jobs: list[tuple[int, Settings]],
        out: Path | None,
        progress: Progress,
        checkpoint_seconds: float,
    ):
        self.rows, self.jobs, self.progress = rows, jobs, progress
        self.run = Run(out) if out else None
        self.checkpoint_seconds = checkpoint_seconds
        self.settings = jobs[0][1]
        self.kind = KINDS[self.settings.kind]
        self.inputs = _repeat(rows.inputs, len(jobs))
        self.step, self.history = 0, []

    def result(self) -> list[Dynamics]:
        if self.run and (self.run.path / "summary.json").exists():
            return self._read(self.run)
        self.snapshot = self._start()
        if self.run:
            config = {
                "seeds": [seed for seed, _ in self.jobs],
                "settings": [vars(settings) for _, settings in self.jobs],
                "environment": environment(),
            }
            self.run.begin(config, same=("seeds", "settings"))
        started = time.perf_counter()
        self._train()
        found = [self._judged(r) for r in range(len(self.jobs))]
        if self.run:
            self._write(self.run, found, time.perf_counter() - started)
        return found

    def _start(self) -> Snapshot:
        sizes = self.rows.packed.observation_size, self.rows.packed.action_size
        state, members = _begin(
            self.kind.start,
            self.kind.members,
            self._seeds(),
            self.inputs,
            sizes,
            self.settings,
        )
        best = jax.tree.map(jnp.copy, members)
        shape = len(self.jobs), self.settings.members
        waited = jnp.zeros(len(self.jobs), jnp.int32)
        return Snapshot(state, best, jnp.full(shape, jnp.inf), waited)

    def _seeds(self) -> Array:
        """Apart from those of what is learnt later from the same ones, below 2^31."""
        return jnp.asarray([seed + 2**31 for seed, _ in self.jobs], jnp.uint32)

    # The loop

    def _train(self) -> None:
        self._resume()
        saved = time.perf_counter()
        with stop_politely() as stopped:
            while self.step < self.settings.steps and not self._done().all():
                self._epoch()
                late = time.perf_counter() - saved > self.checkpoint_seconds
                if stopped() or late:
                    self._checkpoint()
                    saved = time.perf_counter()
                if stopped():
                    raise KeyboardInterrupt

    def _epoch(self) -> None:
        settings, rows = self.settings, self.rows.packed.rows.shape[0]
        many, length = len(self.jobs), max(LEAST_EPOCH, -(-rows // settings.batch_size))
        steps = min(settings.steps - self.step, length)
        floats = [jax.tree.map(jnp.float32, settings) for _, settings in self.jobs]
        state, metrics = fleet.advance(
            self.kind.update,
            self.snapshot.state,
            Replicas(
                seed=self._seeds(),
                start=jnp.zeros(many, jnp.int32),
                size=jnp.full(many, rows, jnp.int32),
                config=jax.tree.map(lambda *leaves: jnp.stack(leaves), *floats),
                fitted=self.inputs,
            ),
            self.rows.packed,
            self.step,
            steps,
            settings.members * settings.batch_size,
        )
        self.step += steps
        self.snapshot = self.snapshot._replace(state=state)
        errors = self._keep_best()
        lines = [
            {
                "step": self.step,
                "replica": r,
                "seed": self.jobs[r][0],
                "dynamics/heldout_error": float(errors[r].mean()),
                "dynamics/waited": int(self.snapshot.waited[r]),
                **{name: float(values[r]) for name, values in metrics.items()},
            }
            for r in range(many)
        ]
        self.history += lines
        if self.run:
            self.run.append_metrics(lines)
        self.progress(self.step, {"held-out error": lines[0]["dynamics/heldout_error"]})

    def _done(self) -> np.ndarray:
        """[replica] whether nothing got better for longer than its patience."""
        if not self.settings.patience:
            return np.zeros(len(self.jobs), bool)
        return np.asarray(self.snapshot.waited) > self.settings.patience

    def _keep_best(self) -> np.ndarray:
        before = self.snapshot
        best, error, found = _better(
            self.kind.members,
            before.state,
            self.inputs,
            self.settings,
            self.rows.held,
            (before.best, before.error),
            jnp.asarray(self._done()),
        )
        waited = jnp.where((error < before.error).any(axis=1), 0, before.waited + 1)
        self.snapshot = Snapshot(before.state, best, error, waited)
        return np.asarray(found)

    # What came out

    def _judged(self, r: int) -> Dynamics:
        members, error = pick(self.snapshot.best, r), np.asarray(self.snapshot.error[r])
        elites = np.argsort(error, kind="stable")[: self.settings.elites]
        best = pick(members, elites)
        some = self.rows.some(CALIBRATION)
        apart = judge(best, some.observations, some.actions).disagreement
        about = report(members, self.rows.held, self.rows.low, self.rows.high)
        return Dynamics(
            members,
            jnp.asarray(elites, jnp.int32),
            jnp.asarray(np.percentile(apart, np.arange(101)), jnp.float32),
            jnp.asarray(self.rows.rewards, jnp.float32),
            self.rows.inputs,
            about | {"elites": elites.tolist(), "updates": self.step},
        )

    def _write(self, run: Run, found: list[Dynamics], seconds: float) -> None:
        for r, one in enumerate(found):
            arrays = flatten(one._replace(report={}))
            run.write_arrays(f"dynamics-{r}.safetensors", arrays)
        run.write_json(
            "summary.json",
            {"replicas": [one.report for one in found], "seconds": seconds},
        )
        run.remove_checkpoint()

    def _read(self, run: Run) -> list[Dynamics]:
        """What a run that was interrupted later on had fitted."""
        like = jax.eval_shape(self._start).best
        about, many = run.read_json("summary.json"), self.settings.elites
        numbers = jnp.zeros(101), jnp.zeros(2), self.rows.inputs
        return [
            unflatten(
                Dynamics(
                    _without_replicas(like), jnp.zeros(many, jnp.int32), *numbers, {}
                ),
                run.read_arrays(f"dynamics-{r}.safetensors"),
            )._replace(report=about["replicas"][r])
            for r in range(len(self.jobs))
        ]

    # Interruptions

    def _checkpoint(self) -> None:
        if self.run:
            about = {"step": self.step, "history": self.history}
            self.run.write_checkpoint(self.snapshot, about)

    def _resume(self) -> None:
        found = self.run.read_checkpoint(self.snapshot) if self.run else None
        if found:
            self.snapshot, about = found
            self.step, self.history = about["step"], about["history"]
        if self.run:
            self.run.write_metrics(self.history)


@partial(jax.jit, static_argnames=("start", "members", "sizes"))
def _begin(start, members, seeds, inputs, sizes, settings) -> tuple[Pytree, Pytree]:
    """Compiled as one: hundreds of small operations take longer on their own."""

    def one(seed: Array, inputs: Inputs) -> tuple[Pytree, Pytree]:
        # Apart from the keys of steps, which count from 0.
        key = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
        state = start(key, *sizes, settings)
        return state, members(state, inputs, settings)

    return jax.vmap(one)(seeds, inputs)


@partial(jax.jit, static_argnames="members")
def _better(
    members: Callable[[Pytree, Inputs, Settings], Pytree],
    state: Pytree,
    inputs: Inputs,
    settings: Settings,
    held: Batch,
    known: tuple[Pytree, Float[Array, "replica member"]],
    done: Bool[Array, " replica"],
) -> tuple[Pytree, Float[Array, "replica member"], Float[Array, "replica member"]]:
    """Members and their errors after a look at the new ones, whose errors come last."""

    def one(state, inputs, old, known, done):
        new = members(state, inputs, settings)
        said = predict_all(new, held.observations, held.actions)
        if settings.judge == "error":
            error = jnp.mean((said.mean - targets_of(held)) ** 2, axis=(1, 2))
        else:
            error = -said.log_prob(jnp.broadcast_to(targets_of(held), said.mean.shape))
            error = error.mean(axis=1)
        # What is not a number is never better.
        gain = known - error > BETTER * jnp.abs(known)
        better = jnp.where(jnp.isinf(known), jnp.isfinite(error), gain) & ~done

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        best = jax.tree.map(choose, new, old)
        return best, jnp.where(better, error, known), error

    # One replica after the other: the same bits whoever else is there.
    parts = state, inputs, *known, done
    return jax.lax.map(lambda part: one(*part), parts)


def _repeat(tree: Pytree, many: int) -> Pytree:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (many, *leaf.shape)), tree)


def _without_replicas(tree: Pytree) -> Pytree:
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree
    )
