"""`train`: from a data set to a policy, without an environment."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from manyhands import hyper
from manyhands.algos import lbrac_v
from manyhands.algos.algorithm import Algorithm, Given, Setting, Stage
from manyhands.algos.evaluate import Evaluation, Players, behaviors_score, worth
from manyhands.algos.policy import Policy, load_policy
from manyhands.algos.registry import algorithm
from manyhands.algos.training import (
    Progress,
    Replica,
    Result,
    Training,
    Watch,
    interval,
)
from manyhands.behavior.estimate import Behavior
from manyhands.behavior.fit import check_k, fit
from manyhands.behavior.methods import METHODS
from manyhands.behavior.problem import Scaling
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError
from manyhands.fleet import Packed
from manyhands.runs import Run, environment, mean_and_std
from manyhands.types import Box, Pytree


def _silent(done: int, shown: dict[str, float]) -> None:
    """The default: nobody is watching."""


@overload
def train(  # pyright: ignore[reportOverlappingOverload]
    data: Trajectories, algo: str = ..., *, seed: int = ..., **options: Any
) -> Policy: ...


@overload
def train(
    data: Trajectories, algo: str = ..., *, seed: Any = ..., **options: Any
) -> list[Policy]: ...


def train(
    data: Trajectories,
    algo: str = "lbrac_v",
    *,
    behavior: Behavior | Sequence[Behavior] | None = None,
    k: int | str = 10,
    steps: int | None = None,
    seed: int | Sequence[int] = 0,
    preset: str = "default",
    out: str | Path | None = None,
    env: str | None = None,
    episodes: int = 20,
    evaluations: int = 0,
    workers: int | None = None,
    checkpoint_seconds: float = 60.0,
    progress: Progress = _silent,
    **changes: Any,
) -> Policy | list[Policy]:
    """Learn a policy from logged data.

    Args:
        data: what was logged.
        algo: `lbrac_v`, `brac_v`, ...; see `manyhands.algos.registry`.
        behavior: a behavior set to start from, for algorithms that need one, or one per
            seed; fitted first if None.
        k: how many behaviors to look for then.
        steps: updates; the preset's number if None.
        seed: a sequence trains one replica each, in one program; so do sequences of
            options that are floats (every one with every seed).
        preset: `default`, or `paper` for the printed hyper-parameters.
        out: a run directory to write to; an interrupted run there is continued.
        env: an environment's id to evaluate in; the data's own if None.
        episodes: of each evaluation; 0: never, nor at the end.
        evaluations: how many there are along the way, the first before any update.
        workers: processes for evaluations; as many as there are cores if None.
        checkpoint_seconds: how much work an interruption may cost.
        progress: called with the updates done and what there is to show.
        changes: single options, see the algorithm's `Options`.

    Returns:
        A `Policy`, or a list where `seed` or an option is a sequence.
    """
    learner = algorithm(algo)
    if steps is not None:
        changes["steps"] = steps
    seeds, several = _seeds(seed)
    options, many = _grid(learner, preset, changes)
    env = env or data.env_id
    if evaluations < 0 or episodes < 0:
        wrong = min(evaluations, episodes)
        raise UserError(f"evaluations, episodes: expected at least 0, got {wrong}")
    if evaluations and env is None:
        raise UserError("env: expected an environment's id to evaluate in, got none")
    given = _given(learner, data, len(seeds), behavior, k)
    setting = Setting(data, env, given is not None)
    options = [learner.settle(o, setting) for o in options]
    run = Run(out) if out is not None else None
    if run:
        run.check()
        run.begin(
            {
                "algo": algo,
                "seeds": seeds,
                "preset": preset,
                "k": k,
                "options": [asdict(o) for o in options],
                "behavior": None if behavior is None else "given",
                "data": {"name": data.name, "fingerprint": data.fingerprint},
                "env": env,
                "evaluations": [evaluations, episodes],
                "environment": environment(),
            },
            same=("algo", "seeds", "preset", "k", "options", "behavior", "data", "env"),
        )
    pairs = [(s, o) for o in options for s in seeds]
    first = _first(
        learner,
        data,
        pairs,
        given,
        k,
        run,
        preset=preset,
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
    )
    scaling = _scaling(data, pairs[0][1], first)
    dynamics: list[Any] = [None] * len(pairs)
    if learner.before:
        stage = Stage(
            data,
            scaling,
            [seed for seed, _ in pairs],
            [o for _, o in pairs],
            run,
            progress,
            checkpoint_seconds,
        )
        dynamics = learner.before(stage)
    replicas, packed = _prepare(data, learner, pairs, first, dynamics, scaling)
    box = replicas[0].given.box
    score = behaviors_score(data, env) if env else None
    judge = None
    if env and episodes:
        judge = Players(algo, box, scaling, env, episodes, workers, len(replicas))

    def look(models) -> list[Evaluation]:
        assert judge is not None
        assert env is not None
        return [worth(r, env, score) for r in judge.returns(models)]

    try:
        watch = None
        if judge and evaluations:
            every = interval(options[0].steps)
            apart = -(-options[0].steps // (evaluations * every)) * every
            watch = Watch(look, max(every, apart))
        training = Training(
            learner, replicas, packed, run, watch, progress, checkpoint_seconds
        )
        result = training.train()
        final = look(result.models) if judge else [None] * len(replicas)
    finally:
        if judge:
            judge.close()
    policies = [
        _policy(algo, data, replica, result, r, scaling, env, score, final[r], first)
        for r, replica in enumerate(replicas)
    ]
    if run:
        write(run, policies)
    return policies if several or many else policies[0]


# What was asked for


def _seeds(seed: int | Sequence[int]) -> tuple[list[int], bool]:
    several = not isinstance(seed, Integral)
    seeds = [int(s) for s in (seed if several else [seed])]  # pyright: ignore
    for number in seeds:
        if not 0 <= number < 2**31:
            raise UserError(f"seed: expected a number from 0 to 2^31 - 1, got {number}")
    if not seeds:
        raise UserError("seed: expected at least one, got none")
    return seeds, several


def _grid(
    learner: Algorithm, preset: str, changes: dict[str, Any]
) -> tuple[list[Any], bool]:
    """The options of every replica, and whether there are several."""
    default = next(iter(learner.presets.values()))
    floats = {field.name for field in fields(default) if field.type is float}
    lists = {
        name: list(value)
        for name, value in changes.items()
        if name in floats and isinstance(value, Sequence | np.ndarray)
    }
    rest = {name: value for name, value in changes.items() if name not in lists}
    grid = [
        hyper.resolve(learner.presets, preset, rest | dict(zip(lists, values)))
        for values in itertools.product(*lists.values())
    ]
    return grid, bool(lists)


# What is fitted first


def _first(
    learner: Algorithm,
    data: Trajectories,
    pairs: list[tuple[int, Any]],
    given: list[Behavior] | None,
    k: int | str,
    run: Run | None,
    **how: Any,
) -> list[Any]:
    """Of every replica: a `Behavior`, a `Policy` or None. Once per seed."""
    seeds = list(dict.fromkeys(seed for seed, _ in pairs))
    if given is not None:
        found = given
    elif learner.first is None:
        return [None] * len(pairs)
    elif run and (run.path / "behavior" / "summary.json").exists():
        found = _fitted_before(run.path / "behavior", learner.first, len(seeds))
    else:
        changes = learner.first_changes(pairs[0][1])
        out = run.path / "behavior" if run else None
        if learner.first in METHODS:
            found = fit(data, learner.first, k=k, seed=seeds, out=out, **how, **changes)
        else:
            found = train(
                data, learner.first, seed=seeds, out=out, episodes=0, **how, **changes
            )
    assert isinstance(found, list)
    by_seed = dict(zip(seeds, found))
    return [by_seed[seed] for seed, _ in pairs]


def _given(
    learner: Algorithm,
    data: Trajectories,
    seeds: int,
    behavior: Behavior | Sequence[Behavior] | None,
    k: int | str,
) -> list[Behavior] | None:
    """One for every seed, each fitted to this data by the right method."""
    if behavior is None:
        if learner.first == "vq":
            check_k(k, len(data))
        return None
    method = learner.first or learner.takes
    if method not in METHODS:
        raise UserError("behavior: expected none, this algorithm does not use one")
    given = [behavior] if isinstance(behavior, Behavior) else list(behavior)
    if len(given) not in (1, seeds):
        raise UserError(
            f"behavior: expected one, or one for each of the {seeds} seeds, got "
            f"{len(given)}"
        )
    for one in given:
        if one.method != method:
            raise UserError(f"behavior: expected method {method}, got {one.method}")
        if one.fingerprint != data.fingerprint:
            raise UserError("behavior: expected one fitted to this data set")
        if not all(map(np.array_equal, one.scaling, given[0].scaling)):
            raise UserError(
                "behavior: expected all to scale observations alike (their options "
                "standardise and holdout differ)"
            )
    return given * seeds if len(given) == 1 else given


def _fitted_before(folder: Path, first: str, many: int) -> list[Any]:
    """By a run that was interrupted later on."""
    read = Behavior.load if first in METHODS else load_policy
    # One replica stands at the top.
    places = [folder] if many == 1 else [folder / f"replica-{r}" for r in range(many)]
    return [read(place) for place in places]


def _scaling(data: Trajectories, options: Any, first: list[Any]) -> Scaling:
    """That which what was fitted first has been given, or the data's own."""
    if first[0] is not None:
        return first[0].scaling
    if options.standardise:
        return Scaling.of(data.observations)
    return Scaling.none(data.observation_size)


def _prepare(
    data: Trajectories,
    learner: Algorithm,
    pairs: list[tuple[int, Any]],
    first: list[Any],
    dynamics: list[Any],
    scaling: Scaling,
) -> tuple[list[Replica], Packed]:
    """What replicas start from, and the rows that they learn from, scaled."""
    data = data.renumbered()
    box = Box(jnp.asarray(data.action_low), jnp.asarray(data.action_high))
    starts: list[Any] = [None] * len(pairs)
    if isinstance(first[0], Behavior) and first[0].method == "vq":
        starts = lbrac_v.starts(first, data.returns)
    elif first[0] is not None:
        starts = [fitted.model for fitted in first]
    sizes = data.observation_size, data.action_size
    replicas = [
        Replica(seed, options, Given(*sizes, box, start, before, scaling))
        for (seed, options), start, before in zip(pairs, starts, dynamics)
    ]
    usable = data.bootstrappable()
    usable = replace(
        usable,
        observations=scaling(usable.observations),
        next_observations=scaling(usable.next_observations),
    )
    return replicas, Packed.of(usable)


# What came out


def _policy(
    algo: str,
    data: Trajectories,
    replica: Replica,
    result: Result,
    r: int,
    scaling: Scaling,
    env: str | None,
    score: float | None,
    final: Evaluation | None,
    first: list[Any],
) -> Policy:
    steps = replica.options.steps
    summary: dict[str, Any] = {
        "data": {
            "name": data.name,
            "transitions": data.transitions,
            "trajectories": len(data),
            "sources": len(data.source_names) or None,
        },
        "policy": {"algo": algo, "seed": replica.seed, "return_mean": None}
        | (final.summary() if final else {}),
        "behaviors": score,
        "timing": {
            "updates": steps,
            "seconds": result.seconds,
            "updates_per_second": steps / result.seconds,
            "compile_seconds": result.compile_seconds,
            "device": environment()["device"],
        },
    }
    if isinstance(first[r], Behavior):
        summary["behavior"] = first[r].summary.get("behavior")
    if isinstance(replica.given.behavior, lbrac_v.Start):
        summary["policy"]["best_code"] = replica.given.behavior.best
    if replica.given.dynamics is not None:
        summary["dynamics"] = replica.given.dynamics.report
    return Policy(
        algo=algo,
        options=replica.options,
        model=_one_of(result.models, r),
        box=replica.given.box,
        scaling=scaling,
        env_id=env,
        summary=summary,
    )


@jax.jit
def _one_of(models: Pytree, r: Any) -> Pytree:
    return jax.tree.map(lambda leaf: leaf[r], models)


def write(run: Run, policies: list[Policy]) -> None:
    """The first replica at the top, each of several in a folder of its own."""
    _write_one(run, policies[0])
    summary = dict(policies[0].summary)
    if len(policies) > 1:
        for r, policy in enumerate(policies):
            _write_one(Run(run.path / f"replica-{r}"), policy)
        summary["replicas"] = [p.summary["policy"] for p in policies]
        summary["mean"], summary["std"] = mean_and_std(summary["replicas"])
    run.write_json("summary.json", summary)
    run.remove_checkpoint()


def _write_one(run: Run, policy: Policy) -> None:
    policy.save(run.path)
    if isinstance(policy.model, lbrac_v.Model):
        W, E, e_pi = (
            np.asarray(lbrac_v.normalize(x))
            for x in (policy.model.W, policy.model.E, policy.model.e_pi)
        )
        run.write_embeddings(W=W, E=E, e_pi=e_pi)
