"""Learning models of the dynamics: epochs, rows held out, the best of every member.

All replicas train together by the fleet, on one data set or several. After every epoch
of its data each member is judged on the rows held out, and kept if it is better than
ever by more than 1 %. A replica is done when none of its members has been for some
epochs: what it learns from then on is not looked at, so it does not feel how long
others take.
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
from manyhands.fleet import Packed, Replicas
from manyhands.interrupts import stop_politely
from manyhands.runs import Run, environment, flatten, unflatten
from manyhands.types import Batch, Pytree

BETTER = 0.01  # what counts: a share of the error, or nats for each target
# Updates at a time. An epoch is a multiple of it: of a small data set it would be over
# before it has begun, and data sets of several sizes share one compiled program.
CHUNK = 250
CALIBRATION = 20_000  # rows that quantiles of the disagreement are taken from
KINDS = {"gaussian": ensemble, "autoregressive": autoregressive}

Progress = Callable[[int, dict[str, float]], None]  # updates done, what to show
Scale = Callable[[np.ndarray], np.ndarray]


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


class Job(NamedTuple):
    place: int  # which data set it learns from
    seed: int
    settings: Settings


def fit(
    places: list[tuple[Trajectories, Scale]],
    jobs: list[Job],
    out: Path | None,
    progress: Progress,
    checkpoint_seconds: float,
) -> list[Dynamics]:
    """One for each job; their settings agree in all that is no float.

    Args:
        places: data sets of the same sizes, and how observations are standardised.
        out: a run directory; what was fitted there before is read, what was begun is
            continued.
    """
    alone = list(dict.fromkeys(jobs))
    unit = alone[0].settings.unit_rewards
    rows = [prepare(data, scale, unit) for data, scale in places]
    fitting = Fitting(rows, alone, out, progress, checkpoint_seconds)
    found = dict(zip(alone, fitting.result()))
    return [found[job] for job in jobs]


class Fitting:
    def __init__(
        self,
        places: list[Rows],
        jobs: list[Job],
        out: Path | None,
        progress: Progress,
        checkpoint_seconds: float,
    ):
        self.places, self.jobs, self.progress = places, jobs, progress
        self.run = Run(out) if out else None
        self.checkpoint_seconds = checkpoint_seconds
        self.settings = jobs[0].settings
        self.kind = KINDS[self.settings.kind]
        self.packed, self.ranges = Packed.join([rows.packed for rows in places])
        self.inputs = _stack([places[job.place].inputs for job in jobs])
        batch = self.settings.batch_size
        self.epochs = [-(-len(r) // (batch * CHUNK)) * CHUNK for r in self.ranges]
        self.step, self.history = 0, []

    def result(self) -> list[Dynamics]:
        if self.run and (self.run.path / "summary.json").exists():
            return self._read(self.run)
        self.snapshot = self._start()
        if self.run:
            config = {
                "seeds": [job.seed for job in self.jobs],
                "settings": [vars(job.settings) for job in self.jobs],
                "data": [job.place for job in self.jobs],
                "environment": environment(),
            }
            self.run.begin(config, same=("seeds", "settings", "data"))
        started = time.perf_counter()
        self._train()
        found = [self._judged(r) for r in range(len(self.jobs))]
        if self.run:
            self._write(self.run, found, time.perf_counter() - started)
        return found

    def _start(self) -> Snapshot:
        sizes = self.packed.observation_size, self.packed.action_size
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
        return jnp.asarray([job.seed + 2**31 for job in self.jobs], jnp.uint32)

    # The loop

    def _train(self) -> None:
        self._resume()
        saved = time.perf_counter()
        with stop_politely() as stopped:
            while self.step < self.settings.steps and not self._done().all():
                self._advance()
                late = time.perf_counter() - saved > self.checkpoint_seconds
                if stopped() or late:
                    self._checkpoint()
                    saved = time.perf_counter()
                if stopped():
                    raise KeyboardInterrupt

    def _advance(self) -> None:
        """To the next place where epochs may end."""
        settings, rows = self.settings, [self.ranges[job.place] for job in self.jobs]
        steps = min(settings.steps - self.step, CHUNK)
        configs = [jax.tree.map(jnp.float32, job.settings) for job in self.jobs]
        state, metrics = fleet.advance(
            self.kind.update,
            self.snapshot.state,
            Replicas(
                seed=self._seeds(),
                start=jnp.asarray([r.start for r in rows], jnp.int32),
                size=jnp.asarray([len(r) for r in rows], jnp.int32),
                config=_stack(configs),
                fitted=self.inputs,
            ),
            self.packed,
            self.step,
            steps,
            settings.members * settings.batch_size,
        )
        self.step += steps
        self.snapshot = self.snapshot._replace(state=state)
        for place, epoch in enumerate(self.epochs):
            if self.step % epoch == 0 or self.step == settings.steps:
                self._end_epoch(place, metrics)
        self.progress(self.step, self._shown())

    def _end_epoch(self, place: int, metrics: dict[str, Array]) -> None:
        """Judge those who learn from this data; the metrics are of the last updates."""
        mine = [r for r, job in enumerate(self.jobs) if job.place == place]
        done = self._done()
        errors = self._keep_best(place, mine)
        lines = [
            {
                "step": self.step,
                "replica": r,
                "seed": self.jobs[r].seed,
                "dynamics/heldout_error": float(error.mean()),
                "dynamics/waited": int(self.snapshot.waited[r]),
                **{name: float(values[r]) for name, values in metrics.items()},
            }
            for r, error in zip(mine, errors)
            if not done[r]
        ]
        self.history += lines
        if self.run:
            self.run.append_metrics(lines)

    def _lines(self, r: int) -> list[dict[str, Any]]:
        return [line for line in self.history if line["replica"] == r]

    def _shown(self) -> dict[str, float]:
        mine = self._lines(0)
        return {"held-out error": mine[-1]["dynamics/heldout_error"]} if mine else {}

    def _done(self) -> np.ndarray:
        """[replica] whether nothing got better for longer than its patience."""
        if not self.settings.patience:
            return np.zeros(len(self.jobs), bool)
        return np.asarray(self.snapshot.waited) > self.settings.patience

    def _keep_best(self, place: int, mine: list[int]) -> np.ndarray:
        before = self.snapshot
        best, error, found = _better(
            self.kind.members,
            (before.state, self.inputs, before.best, before.error, self._done()),
            np.asarray(mine),
            self.settings,
            self.places[place].held,
        )
        kept = (error < before.error).any(axis=1)
        waited = before.waited.at[np.asarray(mine)].add(1)
        waited = jnp.where(kept, 0, waited)
        self.snapshot = Snapshot(before.state, best, error, waited)
        return np.asarray(found)

    # What came out

    def _judged(self, r: int) -> Dynamics:
        members, error = pick(self.snapshot.best, r), np.asarray(self.snapshot.error[r])
        elites = np.argsort(error, kind="stable")[: self.settings.elites]
        best = pick(members, elites)
        rows = self.places[self.jobs[r].place]
        some = rows.some(CALIBRATION)
        apart = judge(best, some.observations, some.actions).disagreement
        about = report(members, rows.held, rows.low, rows.high)
        return Dynamics(
            members,
            jnp.asarray(elites, jnp.int32),
            jnp.asarray(np.percentile(apart, np.arange(101)), jnp.float32),
            jnp.asarray(rows.rewards, jnp.float32),
            rows.inputs,
            about | {"elites": elites.tolist(), "updates": self._lines(r)[-1]["step"]},
        )

    def _write(self, run: Run, found: list[Dynamics], seconds: float) -> None:
        for r, one in enumerate(found):
            arrays = flatten(one._replace(report={}))
            run.write_arrays(f"dynamics-{r}.safetensors", arrays)
        reports = [one.report for one in found]
        run.write_summary({"replicas": reports, "seconds": seconds})
        run.remove_checkpoint()

    def _read(self, run: Run) -> list[Dynamics]:
        """What a run that was interrupted later on had fitted."""
        like = jax.eval_shape(self._start).best
        about, many = run.read_json("summary.json"), self.settings.elites
        numbers = jnp.zeros(101), jnp.zeros(2), self.places[0].inputs
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
        found = self.run.read_checkpoint(lambda _: self.snapshot) if self.run else None
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


def gained(
    error: Float[Array, " member"],
    known: Float[Array, " member"],
    judge: str,
    targets: int,
) -> Bool[Array, " member"]:
    """Whether errors are enough below those known; what is not a number never is.

    Units move a log-density: a share of it would mean nothing.
    """
    least = BETTER * (known if judge == "error" else targets)
    return jnp.where(jnp.isinf(known), jnp.isfinite(error), known - error > least)


@partial(jax.jit, static_argnames="members")
def _better(
    members: Callable[[Pytree, Inputs, Settings], Pytree],
    everyone: tuple,  # state, inputs, best, its error, whether it is done; by replica
    mine: Int[Array, " judged"],
    settings: Settings,
    held: Batch,
) -> tuple[Pytree, Float[Array, "replica member"], Float[Array, "judged member"]]:
    """Members and their errors after a look at some replicas' new ones, whose errors
    come last."""

    def one(state, inputs, old, known, done):
        new = members(state, inputs, settings)
        said = predict_all(new, held.observations, held.actions)
        if settings.judge == "error":
            error = jnp.mean((said.mean - targets_of(held)) ** 2, axis=(1, 2))
        else:
            error = -said.log_prob(jnp.broadcast_to(targets_of(held), said.mean.shape))
            error = error.mean(axis=1)
        better = gained(error, known, settings.judge, said.mean.shape[-1]) & ~done

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        best = jax.tree.map(choose, new, old)
        return best, jnp.where(better, error, known), error

    # One replica after the other: the same bits whoever else is there.
    some = jax.tree.map(lambda leaf: jnp.asarray(leaf)[mine], everyone)
    *kept, errors = jax.lax.map(lambda part: one(*part), some)
    _, _, *before, _ = everyone
    best, error = jax.tree.map(lambda o, n: o.at[mine].set(n), tuple(before), (*kept,))
    return best, error, errors


def _stack(trees: list[Pytree]) -> Pytree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _without_replicas(tree: Pytree) -> Pytree:
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree
    )
