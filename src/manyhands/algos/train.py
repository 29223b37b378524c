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
    data: Trajectories,
    algo: str = ...,
    *,
    behavior: Behavior | None = ...,
    k: int | str = ...,
    seed: int = ...,
    **options: Any,
) -> Policy: ...


@overload
def train(
    data: Trajectories,
    algo: str = ...,
    *,
    behavior: Any = ...,
    k: Any = ...,
    seed: Any = ...,
    **options: Any,
) -> list[Policy]: ...


def train(
    data: Trajectories,
    algo: str = "lbrac_v",
    *,
    behavior: Behavior | Sequence[Behavior] | None = None,
    k: int | str | Sequence[int | str] = 10,
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
            seed, or those that `fit` returns for several k and these seeds; fitted
            first if None.
        k: how many behaviors to look for then, or "auto". A sequence trains one replica
            each, in one program.
        steps: updates; the preset's number if None.
        seed: likewise; so do sequences of options that are floats. Every k comes with
            every option, and that with every seed, in this order.
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
        A `Policy`, or a list where `behavior`, `k`, `seed` or an option is a sequence.
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
    ks, more = _ks(learner, data, behavior, k)
    given = _given(learner, data, len(seeds), behavior)
    if given is not None:
        ks = [_k_of(of_k[0]) for of_k in given]
        more = more or not isinstance(behavior, Behavior)
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
                "k": ks if len(ks) > 1 else ks[0],
                # Of all that differ by more than their seed.
                "options": [
                    asdict(o) | ({"k": k} if len(ks) > 1 else {})
                    for k in ks
                    for o in options
                ],
                "behavior": None if behavior is None else "given",
                "data": {"name": data.name, "fingerprint": data.fingerprint},
                "env": env,
                "evaluations": [evaluations, episodes],
                "environment": environment(),
            },
            same=("algo", "seeds", "preset", "k", "options", "behavior", "data", "env"),
        )
    pairs = [(s, o) for _ in ks for o in options for s in seeds]
    found = given or _first(
        learner,
        data,
        ks,
        seeds,
        options[0],
        run,
        preset=preset,
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
    )
    first = [one for of_k in found for _ in options for one in of_k]
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
    return policies if several or many or more else policies[0]


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


def _ks(
    learner: Algorithm, data: Trajectories, behavior: Any, k: Any
) -> tuple[list[int | str], bool]:
    several = not isinstance(k, Integral | str)
    # NumPy's integers are as good as Python's.
    ks = [int(v) if isinstance(v, Integral) else v for v in (k if several else [k])]
    if not ks:
        raise UserError("k: expected at least one, got none")
    if behavior is None and learner.first == "vq":
        for value in ks:
            check_k(value, len(data))
    elif len(ks) > 1:
        raise UserError(
            f"k: expected one, for no behavior set is fitted here, got {len(ks)}"
        )
    return ks, several


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
    ks: list[int | str],
    seeds: list[int],
    options: Any,
    run: Run | None,
    **how: Any,
) -> list[list[Any]]:
    """For every k and seed a `Behavior`, a `Policy` or None: all in one program."""
    many = len(ks) * len(seeds)
    out = run.path / "behavior" if run else None
    if learner.first is None:
        found = [None] * many
    elif out and (out / "summary.json").exists():
        found = _fitted_before(out, learner.first, many)
    else:
        changes = learner.first_changes(options)
        if learner.first in METHODS:
            found = fit(
                data, learner.first, k=ks, seed=seeds, out=out, **how, **changes
            )
        else:
            found = train(
                data, learner.first, seed=seeds, out=out, episodes=0, **how, **changes
            )
    assert isinstance(found, list)
    return _rows(found, len(seeds))


def _rows(found: list[Any], seeds: int) -> list[list[Any]]:
    """Of each k, for every seed."""
    return [found[n : n + seeds] for n in range(0, len(found), seeds)]


def _given(
    learner: Algorithm,
    data: Trajectories,
    seeds: int,
    behavior: Behavior | Sequence[Behavior] | None,
) -> list[list[Behavior]] | None:
    """For every k and seed, each fitted to this data by the right method."""
    if behavior is None:
        return None
    method = learner.first or learner.takes
    if method not in METHODS:
        raise UserError("behavior: expected none, this algorithm does not use one")
    given = [behavior] if isinstance(behavior, Behavior) else list(behavior)
    if len(given) == 1:
        given *= seeds
    if not given or len(given) % seeds:
        raise UserError(
            f"behavior: expected one, or one for each of the {seeds} seeds (and each "
            f"k), got {len(given)}"
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
    return _rows(given, seeds)


def _k_of(behavior: Behavior) -> int | str:
    """As it was asked for."""
    return behavior.summary.get("behavior", {}).get("k", behavior.k)


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
    model = _one_of(result.models, r)
    if isinstance(replica.given.behavior, lbrac_v.Start):
        summary["policy"]["k"] = _k_of(first[r])
        summary["policy"]["best_code"] = replica.given.behavior.best
    if isinstance(model, lbrac_v.Model):
        model = lbrac_v.unpadded(model, replica.given.behavior)
    if replica.given.dynamics is not None:
        summary["dynamics"] = replica.given.dynamics.report
    return Policy(
        algo=algo,
        options=replica.options,
        model=model,
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
