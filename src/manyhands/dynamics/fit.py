"""Learning models of the dynamics: epochs, rows held out, the best of every member.

All replicas train together by the fleet, on one data set or several. After every epoch
of its data each member is judged on the rows held out, and kept if it is better than
ever by more than 1 %. A replica is done when none of its members has been for some
epochs: what it learns from then on is not looked at, so it does not feel how long
others take.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from manyhands.data.trajectories import Trajectories
from manyhands.dynamics import autoregressive, ensemble
from manyhands.dynamics.prediction import predict_all, targets_of
from manyhands.dynamics.report import judge, report
from manyhands.dynamics.rows import Rows, prepare
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.fleet import Packed, Replicas
from manyhands.runs import Run, environment, flatten, unflatten
from manyhands.training import loop
from manyhands.training.loop import Chunk, Means, Progress, Row, Stage
from manyhands.training.replicas import pick, stack
from manyhands.types import Batch, Pytree

BETTER = 0.01  # what counts: a share of the error, or nats for each target
# Updates at a time. An epoch is a multiple of it: of a small data set it would be over
# before it has begun, and data sets of several sizes share one compiled program.
CHUNK = 250
CALIBRATION = 20_000  # rows that quantiles of the disagreement are taken from
KINDS = {"gaussian": ensemble, "autoregressive": autoregressive}

Scale = Callable[[np.ndarray], np.ndarray]


class Dynamics(NamedTuple):
    """A fitted ensemble and what was measured of it."""

    members: Pytree  # with a leading member axis
    elites: Int[Array, " elite"]  # the best, by their held-out error
    quantiles: Float[Array, "101"]  # of the elites' disagreement in the data
    rewards: Float[Array, "2"]  # the lowest and the highest in the data
    inputs: Inputs
    report: dict[str, Any]


class Kept(NamedTuple):
    """The best members so far; leaves lead with the replica."""

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
    stage, run = DynamicsStage(rows, alone), Run(out) if out else None
    if run and (run.path / "summary.json").exists():
        fitted = _read(run, stage)
    else:
        if run:
            _begin_run(run, alone)
        stage.start()
        result = loop.train(stage, run, progress, checkpoint_seconds)
        fitted = [stage.judged(r, result.history) for r in range(len(alone))]
        if run:
            _write(run, fitted, result.seconds)
    found = dict(zip(alone, fitted))
    return [found[job] for job in jobs]


class DynamicsStage(Stage):
    """Epochs of every data set are judged between chunks."""

    def __init__(self, places: list[Rows], jobs: list[Job]):
        self.places, self.jobs = places, jobs
        self.settings = jobs[0].settings
        self.steps = self.settings.steps
        self.kind = KINDS[self.settings.kind]
        self.packed, ranges = Packed.join([rows.packed for rows in places])
        self.inputs = stack([places[job.place].inputs for job in jobs])
        batch = self.settings.batch_size
        self.epochs = [-(-len(r) // (batch * CHUNK)) * CHUNK for r in ranges]
        rows = [ranges[job.place] for job in jobs]
        configs = [jax.tree.map(jnp.float32, job.settings) for job in jobs]
        self.replicas = Replicas(
            seed=self._seeds(),
            start=jnp.asarray([r.start for r in rows], jnp.int32),
            size=jnp.asarray([len(r) for r in rows], jnp.int32),
            config=stack(configs),
            fitted=self.inputs,
        )
        self.errors: dict[int, float] = {}  # of the last epoch, by replica

    def started(self) -> tuple[Pytree, "Kept"]:
        state, members = _begin(
            self.kind.start,
            self.kind.members,
            self._seeds(),
            self.inputs,
            (self.packed.observation_size, self.packed.action_size),
            self.settings,
        )
        best = jax.tree.map(jnp.copy, members)
        shape = len(self.jobs), self.settings.members
        waited = jnp.zeros(len(self.jobs), jnp.int32)
        return state, Kept(best, jnp.full(shape, jnp.inf), waited)

    def start(self) -> None:
        self.state, self.kept = self.started()

    def _seeds(self) -> Array:
        """Apart from those of what is learnt later from the same ones, below 2^31."""
        return jnp.asarray([job.seed + 2**31 for job in self.jobs], jnp.uint32)

    def chunk(self, step: int) -> Chunk:
        """To the next place where epochs may end."""
        steps = min(self.steps - step, CHUNK)
        batch = self.settings.members * self.settings.batch_size
        return Chunk(self.kind.update, self.replicas, self.packed, steps, batch)

    # Hooks

    def between(self, step: int, metrics: Means) -> list[Row]:
        lines = []
        for place, epoch in enumerate(self.epochs):
            if step % epoch == 0 or step == self.steps:
                lines += self._end_epoch(place, step, metrics)
        return lines

    def done(self) -> bool:
        return bool(self._over().all())

    def shown(self) -> dict[str, float]:
        return {"held-out error": self.errors[0]} if 0 in self.errors else {}

    def memory(self) -> tuple[Pytree, dict[str, Any]]:
        return self.kept, {"errors": self.errors}

    def restore(self, memory: Pytree, notes: dict[str, Any]) -> None:
        self.kept = memory
        self.errors = {int(r): error for r, error in notes["errors"].items()}

    def _end_epoch(self, place: int, step: int, metrics: Means) -> list[Row]:
        """Judge those who learn from this data; the metrics are of the last updates."""
        mine = [r for r, job in enumerate(self.jobs) if job.place == place]
        over = self._over()
        found = self._keep_best(place, mine).mean(axis=1)
        lines = []
        for r, error in zip(mine, found):
            if over[r]:
                continue
            self.errors[r] = float(error)
            lines.append(
                {
                    "step": step,
                    "replica": r,
                    "seed": self.jobs[r].seed,
                    "dynamics/heldout_error": float(error),
                    "dynamics/waited": int(self.kept.waited[r]),
                    **{name: float(values[r]) for name, values in metrics.items()},
                }
            )
        return lines

    def _over(self) -> np.ndarray:
        """[replica] whether nothing got better for longer than its patience."""
        if not self.settings.patience:
            return np.zeros(len(self.jobs), bool)
        return np.asarray(self.kept.waited) > self.settings.patience

    def _keep_best(self, place: int, mine: list[int]) -> np.ndarray:
        before = self.kept
        best, error, found = _better(
            self.kind.members,
            (self.state, self.inputs, before.best, before.error, self._over()),
            np.asarray(mine),
            self.settings,
            self.places[place].held,
        )
        improved = (error < before.error).any(axis=1)
        waited = before.waited.at[np.asarray(mine)].add(1)
        self.kept = Kept(best, error, jnp.where(improved, 0, waited))
        return np.asarray(found)

    def judged(self, r: int, history: list[Row]) -> Dynamics:
        """What came out for one replica."""
        members, error = pick(self.kept.best, r), np.asarray(self.kept.error[r])
        elites = np.argsort(error, kind="stable")[: self.settings.elites]
        best = pick(members, elites)
        rows = self.places[self.jobs[r].place]
        some = rows.some(CALIBRATION)
        apart = judge(best, some.observations, some.actions).disagreement
        about = report(members, rows.held, rows.low, rows.high)
        updates = max((h["step"] for h in history if h["replica"] == r), default=0)
        return Dynamics(
            members,
            jnp.asarray(elites, jnp.int32),
            jnp.asarray(np.percentile(apart, np.arange(101)), jnp.float32),
            jnp.asarray(rows.rewards, jnp.float32),
            rows.inputs,
            about | {"elites": elites.tolist(), "updates": updates},
        )


# The run directory


def _begin_run(run: Run, jobs: list[Job]) -> None:
    config = {
        "seeds": [job.seed for job in jobs],
        "settings": [vars(job.settings) for job in jobs],
        "data": [job.place for job in jobs],
        "environment": environment(),
    }
    run.begin(config, same=("seeds", "settings", "data"))


def _write(run: Run, found: list[Dynamics], seconds: float) -> None:
    for r, one in enumerate(found):
        arrays = flatten(one._replace(report={}))
        run.write_arrays(f"dynamics-{r}.safetensors", arrays)
    reports = [one.report for one in found]
    run.write_summary({"replicas": reports, "seconds": seconds})
    run.remove_checkpoint()


def _read(run: Run, stage: DynamicsStage) -> list[Dynamics]:
    """What a run that was interrupted later on had fitted."""
    _, kept = jax.eval_shape(stage.started)
    about, many = run.read_json("summary.json"), stage.settings.elites
    numbers = jnp.zeros(101), jnp.zeros(2), stage.places[0].inputs
    members = _without_replicas(kept.best)
    like = Dynamics(members, jnp.zeros(many, jnp.int32), *numbers, {})
    return [
        unflatten(like, run.read_arrays(f"dynamics-{r}.safetensors"))._replace(
            report=about["replicas"][r]
        )
        for r in range(len(stage.jobs))
    ]


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


def _without_replicas(tree: Pytree) -> Pytree:
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree
    )
