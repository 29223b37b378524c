"""`train`: from a data set to a policy, without an environment."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from manyhands.algos import asked, outcome, starting_sets
from manyhands.algos.algorithm import Given, Stage
from manyhands.algos.asked import Asked
from manyhands.algos.cases import Case, Place
from manyhands.algos.evaluate import Judge, behaviors_score
from manyhands.algos.policy import Policy, load_policy
from manyhands.algos.training import PolicyStage, Replica
from manyhands.algos.watching import Watch
from manyhands.behavior.estimate import Behavior
from manyhands.behavior.fit import fit, names_of
from manyhands.behavior.methods import METHODS
from manyhands.behavior.problem import Scaling
from manyhands.data.trajectories import Trajectories
from manyhands.fleet import Packed
from manyhands.runs import Run, environment
from manyhands.training import loop
from manyhands.training.loop import Progress, silent
from manyhands.types import Pytree


@overload
def train(  # pyright: ignore[reportOverlappingOverload]
    data: Trajectories,
    algo: str = ...,
    *,
    behavior: Behavior | None = ...,
    k: int | str | None = ...,
    seed: int = ...,
    **options: Any,
) -> Policy: ...


@overload
def train(
    data: Trajectories | Sequence[Trajectories],
    algo: str = ...,
    *,
    behavior: Any = ...,
    k: Any = ...,
    seed: Any = ...,
    **options: Any,
) -> list[Policy]: ...


def train(
    data: Trajectories | Sequence[Trajectories],
    algo: str = "lbrac_v",
    *,
    behavior: Behavior | Sequence[Behavior] | None = None,
    k: int | str | Sequence[int | str] | None = None,
    steps: int | None = None,
    seed: int | Sequence[int] = 0,
    preset: str = "default",
    out: str | Path | None = None,
    env: str | None = None,
    episodes: int = 20,
    evaluations: int = 0,
    workers: int | None = None,
    scale_actions: bool = False,
    checkpoint_seconds: float = 60.0,
    progress: Progress = silent,
    inspect: Callable[[int, list[Any]], None] | None = None,
    retrain: bool = True,
    **changes: Any,
) -> Policy | list[Policy]:
    """Learn a policy from logged data.

    Args:
        data: what was logged. A sequence of data sets of the same sizes trains one
            replica each, in one program.
        algo: `lbrac_v`, `brac_v`, ...; see `manyhands.algos.registry`.
        behavior: a behavior set to start from, for algorithms that need one, or one per
            seed, or those that `fit` returns for these data sets, several k and these
            seeds; fitted first if None.
        k: how many behaviors to look for then, or "auto". Likewise. If None: ten, or as
            many as there are trajectories.
        steps: updates; the preset's number if None.
        seed: likewise; so do sequences of options that are floats. Every data set comes
            with every k, that with every option, and that with every seed, in this
            order.
        preset: `default`, or `paper` for the printed hyper-parameters.
        out: a run directory to write to; an interrupted run there is continued.
        env: an environment's id to evaluate in; the data's own if None.
        episodes: of each evaluation; 0: never, nor at the end.
        evaluations: how many there are along the way, the first before any update.
        workers: processes for evaluations; as many as there are cores if None.
        scale_actions: stretch actions from the data's bounds to the environment's,
            where policies are evaluated.
        checkpoint_seconds: how much work an interruption may cost.
        progress: called with the updates done and what there is to show.
        inspect: called with the updates done and the models of all replicas, whenever
            these are evaluated along the way.
        retrain: train once more what is finished in `out`; if False, read it.
        changes: single options, see the algorithm's `Options`.

    Returns:
        A `Policy`, or a list where `data`, `behavior`, `k`, `seed` or an option is a
        sequence.
    """
    if steps is not None:
        changes["steps"] = steps
    wanted = asked.everything(
        data,
        algo,
        behavior,
        k,
        seed,
        preset,
        changes,
        env=env,
        episodes=episodes,
        evaluations=evaluations,
        scale_actions=scale_actions,
    )
    run = Run(out) if out is not None else None
    if run:
        config = {
            "algo": algo,
            "seeds": wanted.seeds,
            "preset": preset,
            "k": wanted.ks if len(wanted.ks) > 1 else wanted.ks[0],
            "options": asked.as_written(wanted.options, wanted.ks),
            "behavior": None if behavior is None else "given",
            "data": names_of(data),
            "env": wanted.envs[0] if isinstance(data, Trajectories) else wanted.envs,
        }
        more = {"evaluations": [evaluations, episodes], "scale_actions": scale_actions}
        finished = not retrain and (run.path / "summary.json").exists()
        _begin(run, config, more, finished)
        if finished:
            many = len(wanted.sets) * len(wanted.ks) * len(wanted.seeds)
            places = run.replicas(many * len(wanted.options[0]))
            policies = [load_policy(place) for place in places]
            return policies if wanted.several else policies[0]
    first = wanted.behaviors or _first(
        wanted,
        data,
        run,
        preset=wanted.learner.preset_first(preset),
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
    )
    cases, places = _cases(wanted, first), _places(wanted, first)
    dynamics: list[Any] = [None] * len(cases)
    if wanted.learner.before:
        before = Stage(
            [(place.data, place.scaling) for place in places],
            [(case.place, case.seed, case.options) for case in cases],
            run,
            progress,
            checkpoint_seconds,
        )
        dynamics = wanted.learner.before(before)
    replicas, packed = _prepare(places, cases, dynamics)
    judge = None
    if wanted.plays:
        seats = [places[case.place].seat for case in cases]
        judge = Judge(algo, seats, episodes, workers, scale_actions)
    try:
        watch = None
        if judge and evaluations:
            watch = Watch.of(judge.look, evaluations, cases[0].options.steps)

        def looked_at(step: int, models: Pytree) -> None:
            if inspect:
                inspect(step, outcome.models_of(models, replicas))

        stage = PolicyStage(wanted.learner, replicas, packed, watch, looked_at)
        result = loop.train(stage, run, progress, checkpoint_seconds)
        models = stage.models()
        final = judge.look(models) if judge else [None] * len(replicas)
    finally:
        if judge:
            judge.close()
    each = zip(cases, replicas, outcome.models_of(models, replicas), final)
    policies = [
        outcome.policy_of(algo, places[case.place], case, replica, model, result, last)
        for case, replica, model, last in each
    ]
    for policy in policies:
        policy.summary["policy"]["scale_actions"] = scale_actions
    if run:
        outcome.write(run, policies)
    return policies if wanted.several else policies[0]


def _begin(
    run: Run, config: dict[str, Any], more: dict[str, Any], finished: bool
) -> None:
    """
    Args:
        config: what decides the policies.
        more: what does not, but what is said of them.
    """
    run.check()
    # Where policies are played decides nothing else, until some have been.
    played = any("evaluation/return_mean" in row for row in run.metrics())
    same = [key for key in config if key != "env" or played or finished]
    same += more if finished else []
    run.begin(config | more | {"environment": environment()}, same)


def _cases(wanted: Asked, first: list[list[list[Any]]]) -> list[Case]:
    """All replicas, in their order."""
    return [
        Case(n, number, options, one)
        for n, of_set in enumerate(first)
        for of_k in of_set
        for options in wanted.options[n]
        for number, one in zip(wanted.seeds, of_k)
    ]


def _places(wanted: Asked, first: list[list[list[Any]]]) -> list[Place]:
    """One for every data set."""
    return [
        Place(one, e, _scaling(one, of_set[0], found[0][0]), behaviors_score(one, e))
        for one, e, of_set, found in zip(
            wanted.sets, wanted.envs, wanted.options, first
        )
    ]


# What is fitted first


def _first(
    wanted: Asked,
    data: Trajectories | Sequence[Trajectories],
    run: Run | None,
    **how: Any,
) -> list[list[list[Any]]]:
    """For every data set, k and seed a `Behavior`, a `Policy` or None: all in one
    program."""
    learner, ks, seeds = wanted.learner, wanted.ks, wanted.seeds
    many = len(wanted.sets) * len(ks) * len(seeds)
    out = run.path / "behavior" if run else None
    if learner.first is None:
        found = [None] * many
    elif out and (out / "summary.json").exists():
        found = _fitted_before(out, learner.first, many)
    else:
        changes = learner.first_changes(wanted.options[0][0])
        if learner.first in METHODS:
            k = ks if learner.first == "vq" else None
            found = fit(data, learner.first, k=k, seed=seeds, out=out, **how, **changes)
        else:
            found = train(
                data, learner.first, seed=seeds, out=out, episodes=0, **how, **changes
            )
    assert isinstance(found, list)
    return asked.in_rows(found, len(wanted.sets), len(seeds))


def _fitted_before(folder: Path, first: str, many: int) -> list[Any]:
    """By a run that was interrupted later on."""
    read = Behavior.load if first in METHODS else load_policy
    return [read(place) for place in Run(folder).replicas(many)]


def _scaling(data: Trajectories, options: Any, first: Any) -> Scaling:
    """That which what was fitted first has been given, or the data's own."""
    if first is not None:
        return first.scaling
    if options.standardise:
        return Scaling.of(data.observations)
    return Scaling.none(data.observation_size)


def _prepare(
    places: list[Place], cases: list[Case], dynamics: list[Any]
) -> tuple[list[Replica], Packed]:
    """What replicas start from, and the rows that they learn from, scaled."""
    firsts = [case.first for case in cases]
    starts: list[Any] = [None] * len(cases)
    if isinstance(firsts[0], Behavior) and firsts[0].method == "vq":
        data = [places[case.place].data for case in cases]
        starts = starting_sets.starts(firsts, data)
    elif firsts[0] is not None:
        starts = [fitted.model for fitted in firsts]
    packed, rows = Packed.join([_rows(place.data, place.scaling) for place in places])
    sizes = packed.observation_size, packed.action_size
    replicas = []
    for (n, seed, options, _), start, before in zip(cases, starts, dynamics):
        given = Given(*sizes, places[n].box, start, before, places[n].scaling)
        replicas.append(Replica(seed, options, given, rows[n]))
    return replicas, packed


def _rows(data: Trajectories, scaling: Scaling) -> Packed:
    usable = data.renumbered().bootstrappable()
    return Packed.of(
        replace(
            usable,
            observations=scaling(usable.observations),
            next_observations=scaling(usable.next_observations),
        )
    )
