"""The loop that fits behaviors: stages, what happens between them, checkpoints.

Replicas (data sets, K, seeds) train together. Between chunks of steps, on the host:
trajectories are assigned, codes merged, the best parameters on held-out steps kept,
progress saved. All of it is decided by the step and the seed, so an interrupted run
goes on to the same bits.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from manyhands import fleet
from manyhands.behavior import quantise, vq, vq_learning
from manyhands.behavior.likelihoods import (
    heldout_log_probs,
    printed_codes,
    sums_by_code,
)
from manyhands.behavior.merging import Step
from manyhands.behavior.methods import METHODS
from manyhands.behavior.options import Options
from manyhands.behavior.problem import Problem
from manyhands.behavior.schedule import Stage, events, interval, plan
from manyhands.behavior.scores import recovery
from manyhands.fleet import Packed, Replicas
from manyhands.interrupts import stop_politely
from manyhands.nn.bundle import Bundle
from manyhands.runs import Run
from manyhands.types import Pytree

MOST_CODES = 64  # that "auto" starts from
NEVER = 1e30

Progress = Callable[[int, dict[str, float]], None]  # steps done, what to show


class Snapshot(NamedTuple):
    """All that training carries from chunk to chunk; leaves lead with the replica."""

    state: Pytree
    active: jax.Array  # [replica, code] which codes there are
    best: Pytree  # the model that did best on held-out steps
    best_score: jax.Array  # [replica]
    embedded: jax.Array  # [replica, trajectory, E] W before there were codes; or empty


@dataclass
class Result:
    """One replica's outcome."""

    model: Pytree
    values: vq.Values | None
    active: np.ndarray
    embedded: np.ndarray
    path: list[Step]  # of merges, the first time codes were compared
    metrics: list[dict[str, Any]]
    seconds: float
    compile_seconds: float


def codes_to_start_with(k: int | str, trajectories: int, options: Options) -> int:
    """More than asked for, where they can be merged: k-means may halve a source."""
    if k == "auto":
        return max(1, min(MOST_CODES, (trajectories + 1) // 2))
    assert isinstance(k, int)
    if options.init == "cluster" and options.merge:
        return min(trajectories, max(2 * k, k + 4))
    return k


class Fitting:
    """One call of `fit`, from the prepared data to fitted models."""

    def __init__(
        self,
        problems: list[Problem],  # one for each replica, as are `ks` and `seeds`
        method: str,
        options: Options,
        ks: list[int | str],
        seeds: list[int],
        run: Run | None,
        progress: Progress,
        checkpoint_seconds: float,
    ):
        self.problems, self.method, self.options = problems, method, options
        self.ks, self.seeds, self.run, self.progress = ks, seeds, run, progress
        self.checkpoint_seconds = checkpoint_seconds
        different = list({id(problem): problem for problem in problems}.values())
        self.packed, ranges = Packed.join([problem.packed for problem in different])
        rows = {id(problem): where for problem, where in zip(different, ranges)}
        self.rows = [rows[id(problem)] for problem in problems]
        # W of the smaller data sets is padded.
        self.trajectories = max(len(problem.data) for problem in problems)
        starts = [
            codes_to_start_with(k, len(problem.data), options)
            for k, problem in zip(ks, problems)
        ]
        self.starts = starts
        self.stages = plan(method, options)
        self.events = events(method, options, self.stages)
        self.paths: list[list[Step]] = [[] for _ in ks]
        self.history: list[dict[str, Any]] = []
        self.step = 0
        self.snapshot = self._start(max(starts))

    # Start

    def _start(self, codes: int) -> Snapshot:
        method, packed = METHODS[self.method], self.packed
        sizes = packed.observation_size, packed.action_size, codes, self.trajectories

        def one(seed):
            # Apart from the keys of steps, which count from 0.
            key = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
            return method.init(key, *sizes, self.options)

        # One by one: what is compiled serves any number of replicas.
        states = [one(jnp.uint32(seed)) for seed in self.seeds]
        state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        active = jnp.arange(codes) < jnp.asarray(self.starts)[:, None]
        model = jax.tree.map(jnp.copy, method.model(state))
        quantised = any(event == "quantise" for event in self.events.values())
        shape = len(self.seeds), self.trajectories if quantised else 0, vq.EMBEDDING
        lowest = jnp.full(len(self.seeds), -jnp.inf)
        return Snapshot(state, active, model, lowest, jnp.zeros(shape))

    def _replicas(self, stage: Stage) -> Replicas:
        many = len(self.seeds)
        options, length = self.options, stage.end - stage.first
        decays = options.rate_decay and stage is self.stages[-1]
        rates: dict[str, Any] = dict(
            policy_rate=options.policy_rate,
            embedding_rate=options.policy_rate * options.embedding_factor,
            critic_rate=options.critic_rate,
            commitment=options.commitment,
            target_rate=options.target_rate,
            discount=options.discount,
            weight_decay=[options.decay(p.transitions) for p in self.problems],
            decay_from=length / 2 if decays else 0.0,
            decay_to=float(length) if decays else NEVER,
        )
        config = {
            name: jnp.broadcast_to(jnp.asarray(rate, jnp.float32), many)
            for name, rate in rates.items()
        }
        boxes = [problem.box for problem in self.problems]
        return Replicas(
            seed=jnp.asarray(self.seeds, jnp.uint32),
            start=jnp.asarray([rows.start for rows in self.rows], jnp.int32),
            size=jnp.asarray([len(rows) for rows in self.rows], jnp.int32),
            config=vq_learning.Config(**config),
            fitted=vq_learning.Fitted(
                jax.tree.map(lambda *leaves: jnp.stack(leaves), *boxes),
                self.snapshot.active,
            ),
        )

    # The loop

    def train(self) -> list[Result]:
        started, compiling = time.perf_counter(), 0.0
        self._resume()
        saved = time.perf_counter()
        with stop_politely() as stopped:
            for stage in self.stages:
                while self.step < stage.end:
                    steps = self._chunk(stage)
                    before = time.perf_counter()
                    state, metrics = fleet.advance(
                        stage.update,
                        self.snapshot.state,
                        self._replicas(stage),
                        self.packed,
                        self.step,
                        steps,
                        self.options.batch_size,
                    )
                    jax.block_until_ready(state)
                    if self.step == stage.first:
                        compiling += time.perf_counter() - before
                    self.snapshot = self.snapshot._replace(state=state)
                    self.step += steps
                    self._between(stage, metrics)
                    now = time.perf_counter()
                    last = self.step == self.stages[-1].end
                    if stopped() or last or now - saved > self.checkpoint_seconds:
                        self._checkpoint()
                        saved = now
                    if stopped():
                        raise KeyboardInterrupt
        seconds = time.perf_counter() - started
        return [self._result(r, seconds, compiling) for r in range(len(self.seeds))]

    def _chunk(self, stage: Stage) -> int:
        """Steps until something is due; nearly always as many, so compiled once."""
        every = interval(self.options)
        return min(stage.end, (self.step // every + 1) * every) - self.step

    def _between(self, stage: Stage, metrics: dict[str, jax.Array]) -> None:
        scores = self._heldout(stage)
        self._keep_best(scores)
        if event := self.events.get(self.step):
            for r in range(len(self.seeds)):
                self._on_replica(r, event)
        rows = [
            {
                "step": self.step,
                "replica": r,
                "seed": self.seeds[r],
                "heldout_log_prob": float(scores[r]),
                "codes": int(self.snapshot.active[r].sum()),
                **{name: float(values[r]) for name, values in metrics.items()},
                **self._agreement(r, stage),
            }
            for r in range(len(self.seeds))
        ]
        self.history += rows
        if self.run:
            self.run.append_metrics(rows)
        shown = {"log-prob": rows[0]["heldout_log_prob"], "codes": rows[0]["codes"]}
        self.progress(self.step, shown)

    # What happens between chunks

    def _on_replica(self, r: int, event: str) -> None:
        """`quantise`, `assign` or `merge`: they change W, E and the active codes."""
        snapshot, problem = self.snapshot, self.problems[r]
        active = np.asarray(snapshot.active[r])
        if event == "quantise":
            policy = _cut(_row(snapshot.best, r), problem)
            embedded = snapshot.embedded.at[r, : len(policy.W)].set(
                vq.normalize(policy.W)
            )
            snapshot = snapshot._replace(embedded=embedded)
            policy, kept = quantise.start_codes(policy, self.starts[r], self.seeds[r])
            active = kept & active
            state = vq_learning.fresh(self._padded(policy), _row(snapshot.state, r))
        else:
            state = _row(snapshot.state, r)
            policy = _cut(state.policy.tree(), problem)
            train = sums_by_code(policy, problem, problem.train, active)
            if event == "merge":
                held = sums_by_code(policy, problem, problem.test, active)
                # Only the last merge is forced: until then more codes are purer ones.
                last = self.step == max(s for s, e in self.events.items() if e == event)
                at_most = self.ks[r] if last else self.starts[r]
                at_most = self.starts[r] if at_most == "auto" else at_most
                counts = problem.test.counts
                embedded = self._embedded(r)
                codes, active, path = quantise.merge(
                    active, train, held, counts, embedded, int(at_most)
                )
                self.paths[r] = self.paths[r] or path
            else:
                codes = quantise.by_likelihood(train, active)
                if not self.options.merge:  # as many as were asked for
                    policy, codes = quantise.revive(
                        policy,
                        codes,
                        train / problem.train.counts[:, None],
                        active,
                    )
            policy = quantise.move_to_codes(policy, codes, active)
            params = Bundle.of(self._padded(policy))
            state = state._replace(policy=state.policy._replace(params=params))
        self.snapshot = snapshot._replace(
            state=_put(snapshot.state, r, state),
            active=snapshot.active.at[r].set(active),
            best_score=(
                snapshot.best_score
                if event == "assign"
                else snapshot.best_score.at[r].set(-jnp.inf)
            ),
        )

    def _padded(self, policy: vq.Policy) -> vq.Policy:
        """With as many trajectories as all replicas have, see `_cut`."""
        more = self.trajectories - len(policy.W)
        # Nobody's, but no odd numbers either.
        W = jnp.concatenate([policy.W, jnp.repeat(policy.W[:1], more, axis=0)])
        return eqx.tree_at(lambda p: p.W, policy, W)

    def _embedded(self, r: int) -> np.ndarray:
        rows = self.snapshot.embedded[r, : len(self.problems[r].data)]
        return np.asarray(rows, np.float64)

    def _keep_best(self, score: np.ndarray) -> None:
        """Where data is small, more steps fit it worse: remember the best ones."""
        better = score > np.asarray(self.snapshot.best_score)
        model = METHODS[self.method].model(self.snapshot.state)

        def choose(new, old):
            mask = jnp.asarray(better).reshape(-1, *[1] * (new.ndim - 1))
            return jnp.where(mask, new, old)

        self.snapshot = self.snapshot._replace(
            best=jax.tree.map(choose, model, self.snapshot.best),
            best_score=jnp.maximum(jnp.asarray(score), self.snapshot.best_score),
        )

    def _heldout(self, stage: Stage) -> np.ndarray:
        """[replica] log-probability of held-out steps under their trajectory's code."""
        models = METHODS[self.method].model(self.snapshot.state)
        scores = [
            heldout_log_probs(
                self.method,
                _cut(_row(models, r), problem),
                problem,
                np.asarray(self.snapshot.active[r]),
                by_code=stage.update is not vq_learning.embed,
            ).mean()
            for r, problem in enumerate(self.problems)
        ]
        return np.array(scores, np.float32)

    def _agreement(self, r: int, stage: Stage) -> dict[str, float]:
        """How far codes agree with the sources by now, where these are known."""
        sources = self.problems[r].data.sources
        if sources is None or stage.update is not vq_learning.update:
            return {}
        policy = _row(self.snapshot.state.policy, r).tree()
        policy = _cut(policy, self.problems[r])
        codes = printed_codes(policy, np.asarray(self.snapshot.active[r]))
        return {"ari": recovery(sources, codes)["ari"]}

    # Interruptions

    def _checkpoint(self) -> None:
        if self.run:
            about = {"step": self.step, "paths": self.paths, "history": self.history}
            self.run.write_checkpoint(self.snapshot, about)

    def _resume(self) -> None:
        found = self.run.read_checkpoint(lambda _: self.snapshot) if self.run else None
        if self.run and found:
            self.snapshot, about = found
            self.step = about["step"]
            self.paths = [[Step(*s) for s in path] for path in about["paths"]]
            self.history = about["history"]
        if self.run:
            self.run.rewind_metrics(self.step)

    def _result(self, r: int, seconds: float, compiling: float) -> Result:
        values = None
        if self.method == "vq":
            values = vq_learning.values(_row(self.snapshot.state, r))
        return Result(
            _cut(_row(self.snapshot.best, r), self.problems[r]),
            values,
            np.asarray(self.snapshot.active[r]),
            self._embedded(r),
            self.paths[r],
            [row for row in self.history if row["replica"] == r],
            seconds,
            compiling,
        )


def _row(tree: Pytree, r: int) -> Pytree:
    return jax.tree.map(lambda leaf: leaf[r], tree)


def _cut(model: Pytree, problem: Problem) -> Pytree:
    """Without the trajectories that only larger data sets have."""
    if not isinstance(model, vq.Policy):
        return model
    return eqx.tree_at(lambda p: p.W, model, model.W[: len(problem.data)])


def _put(tree: Pytree, r: int, leaf: Pytree) -> Pytree:
    return jax.tree.map(lambda all_, one: all_.at[r].set(one), tree, leaf)
