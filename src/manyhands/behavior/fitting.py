"""Behaviors as a stage of the loop: phases of training, and the work between chunks.

Replicas (data sets, K, seeds) train together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

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
from manyhands.behavior.schedule import Phase, events, interval, plan
from manyhands.behavior.scores import recovery
from manyhands.fleet import Packed, Replicas
from manyhands.nn.bundle import Bundle
from manyhands.training.loop import Chunk, Means, Row, Stage, along
from manyhands.training.replicas import put, stack, take
from manyhands.types import Pytree

INSPECTIONS = 3  # along a fit
MOST_CODES = 64  # that "auto" starts from
NEVER = 1e30


class Memory(NamedTuple):
    """What a fit carries beside the state; leaves lead with the replica."""

    active: jax.Array  # [replica, code] which codes there are
    best: Pytree  # the model that did best on held-out steps
    best_score: jax.Array  # [replica]
    embedded: jax.Array  # [replica, trajectory, E] W before there were codes; or empty


@dataclass
class Fitted:
    """One replica's outcome."""

    model: Pytree
    values: vq.Values | None
    active: np.ndarray
    embedded: np.ndarray
    path: list[Step]  # of merges, the first time codes were compared


def codes_to_start_with(k: int | str, trajectories: int, options: Options) -> int:
    """More than asked for, where they can be merged: k-means may halve a source."""
    if k == "auto":
        return max(1, min(MOST_CODES, (trajectories + 1) // 2))
    assert isinstance(k, int)
    if options.init == "cluster" and options.merge:
        return min(trajectories, max(2 * k, k + 4))
    return k


class BehaviorStage(Stage):
    """Between chunks trajectories are assigned, codes merged, and the best parameters
    on held-out steps kept."""

    def __init__(
        self,
        problems: list[Problem],  # one for each replica, as are `ks` and `seeds`
        method: str,
        options: Options,
        ks: list[int | str],
        seeds: list[int],
        inspect: Callable[[int, list[Any]], None] | None = None,
    ):
        self.problems, self.method, self.options = problems, method, options
        self.inspect = inspect
        self.ks, self.seeds, self.steps = ks, seeds, options.steps
        different = list({id(problem): problem for problem in problems}.values())
        self.packed, ranges = Packed.join([problem.packed for problem in different])
        rows = {id(problem): where for problem, where in zip(different, ranges)}
        self.rows = [rows[id(problem)] for problem in problems]
        # W of the smaller data sets is padded.
        self.trajectories = max(len(problem.data) for problem in problems)
        self.starts = [
            codes_to_start_with(k, len(problem.data), options)
            for k, problem in zip(ks, problems)
        ]
        self.phases = plan(method, options)
        self.events = events(method, options, self.phases)
        self.paths: list[list[Step]] = [[] for _ in ks]
        self.state, self.kept = self._start(max(self.starts))
        self.values: dict[str, float] = {}

    # Start

    def _start(self, codes: int) -> tuple[Pytree, Memory]:
        method, packed = METHODS[self.method], self.packed
        sizes = packed.observation_size, packed.action_size, codes, self.trajectories

        def one(seed):
            # Apart from the keys of steps, which count from 0.
            key = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
            return method.init(key, *sizes, self.options)

        # One by one: what is compiled serves any number of replicas.
        states = [one(jnp.uint32(seed)) for seed in self.seeds]
        state = stack(states)
        active = jnp.arange(codes) < jnp.asarray(self.starts)[:, None]
        model = jax.tree.map(jnp.copy, method.model(state))
        quantised = any(event == "quantise" for event in self.events.values())
        shape = len(self.seeds), self.trajectories if quantised else 0, vq.EMBEDDING
        lowest = jnp.full(len(self.seeds), -jnp.inf)
        return state, Memory(active, model, lowest, jnp.zeros(shape))

    def _replicas(self, phase: Phase) -> Replicas:
        many = len(self.seeds)
        options, length = self.options, phase.end - phase.first
        decays = options.rate_decay and phase is self.phases[-1]
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
                stack(boxes),
                self.kept.active,
            ),
        )

    def _phase(self, step: int) -> Phase:
        """The one that makes the update after so many."""
        return next(phase for phase in self.phases if step < phase.end)

    def chunk(self, step: int) -> Chunk:
        """To the next line of metrics: nearly always as many, so compiled once."""
        phase, every = self._phase(step), interval(self.options)
        steps = min(phase.end, (step // every + 1) * every) - step
        batch = self.options.batch_size
        return Chunk(phase.update, self._replicas(phase), self.packed, steps, batch)

    # Hooks

    def between(self, step: int, metrics: Means) -> list[Row]:
        phase = self._phase(step - 1)
        scores = self._heldout(phase)
        self._keep_best(scores)
        if event := self.events.get(step):
            for r in range(len(self.seeds)):
                self._on_replica(r, event, step)
        rows = [
            {
                "step": step,
                "replica": r,
                "seed": self.seeds[r],
                "heldout_log_prob": float(scores[r]),
                "codes": int(self.kept.active[r].sum()),
                **{name: float(values[r]) for name, values in metrics.items()},
                **self._agreement(r, phase),
            }
            for r in range(len(self.seeds))
        ]
        if self.inspect and step in along(self.steps, INSPECTIONS):
            self.inspect(step, [self._best(r) for r in range(len(self.seeds))])
        first = rows[0]
        self.values = {"log-prob": first["heldout_log_prob"], "codes": first["codes"]}
        return rows

    def shown(self) -> dict[str, float]:
        return self.values

    def memory(self) -> tuple[Memory, dict[str, Any]]:
        return self.kept, {"paths": self.paths}

    def restore(self, memory: Memory, notes: dict[str, Any]) -> None:
        self.kept = memory
        self.paths = [[Step(*step) for step in path] for path in notes["paths"]]

    # What happens between chunks

    def _on_replica(self, r: int, event: str, step: int) -> None:
        """`quantise`, `assign` or `merge`: they change W, E and the active codes."""
        kept, problem = self.kept, self.problems[r]
        active = np.asarray(kept.active[r])
        if event == "quantise":
            policy = _cut(take(kept.best, r), problem)
            embedded = kept.embedded.at[r, : len(policy.W)].set(vq.normalize(policy.W))
            kept = kept._replace(embedded=embedded)
            policy, used = quantise.start_codes(policy, self.starts[r], self.seeds[r])
            active = used & active
            state = vq_learning.fresh(self._padded(policy), take(self.state, r))
        else:
            state = take(self.state, r)
            policy = _cut(state.policy.tree(), problem)
            train = sums_by_code(policy, problem, problem.train, active)
            if event == "merge":
                held = sums_by_code(policy, problem, problem.test, active)
                # Only the last merge is forced: until then more codes are purer ones.
                last = step == max(s for s, e in self.events.items() if e == event)
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
        self.state = put(self.state, r, state)
        score = kept.best_score
        self.kept = kept._replace(
            active=kept.active.at[r].set(active),
            best_score=score if event == "assign" else score.at[r].set(-jnp.inf),
        )

    def _best(self, r: int) -> Pytree:
        """The best model so far, without padding and codes that are not used."""
        model = _cut(take(self.kept.best, r), self.problems[r])
        if not isinstance(model, vq.Policy):
            return model
        E = model.E[np.asarray(self.kept.active[r])]
        return eqx.tree_at(lambda p: p.E, model, E)

    def _padded(self, policy: vq.Policy) -> vq.Policy:
        """With as many trajectories as all replicas have, see `_cut`."""
        more = self.trajectories - len(policy.W)
        # Nobody's, but no odd numbers either.
        W = jnp.concatenate([policy.W, jnp.repeat(policy.W[:1], more, axis=0)])
        return eqx.tree_at(lambda p: p.W, policy, W)

    def _embedded(self, r: int) -> np.ndarray:
        rows = self.kept.embedded[r, : len(self.problems[r].data)]
        return np.asarray(rows, np.float64)

    def _keep_best(self, score: np.ndarray) -> None:
        """Where data is small, more steps fit it worse: remember the best ones."""
        better = score > np.asarray(self.kept.best_score)
        model = METHODS[self.method].model(self.state)

        def choose(new, old):
            mask = jnp.asarray(better).reshape(-1, *[1] * (new.ndim - 1))
            return jnp.where(mask, new, old)

        self.kept = self.kept._replace(
            best=jax.tree.map(choose, model, self.kept.best),
            best_score=jnp.maximum(jnp.asarray(score), self.kept.best_score),
        )

    def _heldout(self, phase: Phase) -> np.ndarray:
        """[replica] log-probability of held-out steps under their trajectory's code."""
        models = METHODS[self.method].model(self.state)
        scores = [
            heldout_log_probs(
                self.method,
                _cut(take(models, r), problem),
                problem,
                np.asarray(self.kept.active[r]),
                by_code=phase.update is not vq_learning.embed,
            ).mean()
            for r, problem in enumerate(self.problems)
        ]
        return np.array(scores, np.float32)

    def _agreement(self, r: int, phase: Phase) -> dict[str, float]:
        """How far codes agree with the sources by now, where these are known."""
        sources = self.problems[r].data.sources
        if sources is None or phase.update is not vq_learning.update:
            return {}
        policy = take(self.state.policy, r).tree()
        policy = _cut(policy, self.problems[r])
        codes = printed_codes(policy, np.asarray(self.kept.active[r]))
        return {"ari": recovery(sources, codes)["ari"]}

    def result(self, r: int) -> Fitted:
        values = None
        if self.method == "vq":
            values = vq_learning.values(take(self.state, r))
        return Fitted(
            _cut(take(self.kept.best, r), self.problems[r]),
            values,
            np.asarray(self.kept.active[r]),
            self._embedded(r),
            self.paths[r],
        )


def _cut(model: Pytree, problem: Problem) -> Pytree:
    """Without the trajectories that only larger data sets have."""
    if not isinstance(model, vq.Policy):
        return model
    return eqx.tree_at(lambda p: p.W, model, model.W[: len(problem.data)])
