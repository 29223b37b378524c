"""`train`: from a data set to a policy, without an environment."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

from manyhands.algos import outcome
from manyhands.algos.evaluate import Judge
from manyhands.algos.policy import Policy, load_policy
from manyhands.algos.replicas import DataSet, Fitted, data_sets, replicas
from manyhands.algos.request import Request, in_rows, resolve
from manyhands.algos.training import PolicyStage
from manyhands.algos.watching import Watch
from manyhands.behavior.estimate import Behavior
from manyhands.behavior.fit import fit
from manyhands.behavior.methods import METHODS
from manyhands.data.trajectories import Trajectories
from manyhands.dynamics import fit as dynamics
from manyhands.runs import Run, environment
from manyhands.training import loop
from manyhands.training.loop import Progress, silent
from manyhands.training.planned import announce
from manyhands.types import Pytree

Inspect = Callable[[int, list[Any]], None]


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
    inspect: Inspect | None = None,
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
        seed: likewise; so do sequences of options that are traced. Every data set comes
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
        progress: called with the updates made and values to show. A `begin` that it
            may have is called with each stage (see `training.planned`).
        inspect: called with the updates done and the models of all replicas, whenever
            these are evaluated along the way.
        retrain: train once more what is finished in `out`; if False, read it.
        changes: single options, such as `steps`; see the algorithm's `Options`.

    Returns:
        A `Policy`, or a list where `data`, `behavior`, `k`, `seed` or an option is a
        sequence.
    """
    request = resolve(
        data,
        algo,
        behavior=behavior,
        k=k,
        seed=seed,
        preset=preset,
        env=env,
        episodes=episodes,
        evaluations=evaluations,
        scale_actions=scale_actions,
        **changes,
    )
    policies = carry_out(
        request,
        out,
        workers=workers,
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
        inspect=inspect,
        retrain=retrain,
    )
    return policies if request.several else policies[0]


def carry_out(
    request: Request,
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    checkpoint_seconds: float = 60.0,
    progress: Progress = silent,
    inspect: Inspect | None = None,
    retrain: bool = True,
) -> list[Policy]:
    """Train the stages of a request; the other arguments are those of `train`."""
    run = Run(out) if out is not None else None
    if run:
        finished = not retrain and (run.path / "summary.json").exists()
        _begin(run, request, finished)
        if finished:
            return [load_policy(place) for place in run.replicas(request.replicas)]
    how = checkpoint_seconds, progress
    behaviors = _behaviors(request, run, *how)
    sets = data_sets(request, behaviors)
    members, packed = replicas(
        request, sets, behaviors, _dynamics(request, sets, run, *how)
    )
    judge = None
    if request.plays:
        sources = [member.source for member in members]
        judge = Judge(
            request.algo, sources, request.episodes, workers, request.scale_actions
        )
    try:
        watch = None
        if judge and request.evaluations:
            steps = members[0].options.steps
            watch = Watch.of(judge.look, request.evaluations, steps)

        def inspected(step: int, models: Pytree) -> None:
            if inspect:
                inspect(step, outcome.models_of(request.learner, models, members))

        stage = PolicyStage(request.learner, members, packed, watch, inspected)
        announce(progress, request.stages[-1])
        result = loop.train(stage, run, progress, checkpoint_seconds)
        models = stage.models()
        final = judge.look(models) if judge else [None] * len(members)
    finally:
        if judge:
            judge.close()
    own = outcome.models_of(request.learner, models, members)
    policies = [
        outcome.policy_of(request, member, model, result, last)
        for member, model, last in zip(members, own, final)
    ]
    if run:
        outcome.write(run, policies)
    return policies


def _begin(run: Run, request: Request, finished: bool) -> None:
    run.check()
    config = request.config()
    origin = {"behavior_run": request.behavior_run} if request.given else {}
    # What does not decide the policies, but is said about them.
    more = {
        "evaluations": [request.evaluations, request.episodes],
        "scale_actions": request.scale_actions,
    }
    # Where policies are played decides nothing else, until some have been.
    played = any("evaluation/return_mean" in row for row in run.metrics())
    same = [key for key in config if key != "env" or played or finished]
    same += more if finished else []
    run.begin(config | more | origin | {"environment": environment()}, same)


# Stages before the policy


def _behaviors(
    request: Request, run: Run | None, checkpoint_seconds: float, progress: Progress
) -> Fitted:
    """For every data set, k and seed a `Behavior`, a `Policy` or None: all in one
    program."""
    if request.given is not None:
        return request.given
    need, sets, seeds = request.learner.behavior_need, request.sets, request.seeds
    many = len(sets) * len(request.ks) * len(seeds)
    if need is None or need.only_given:
        return in_rows([None] * many, len(sets), len(seeds))
    out = run.path / "behavior" if run else None
    if out and (out / "summary.json").exists():
        # By a run that was interrupted later on.
        read = Behavior.load if need.learner in METHODS else load_policy
        found: Any = [read(place) for place in Run(out).replicas(many)]
        return in_rows(found, len(sets), len(seeds))
    announce(progress, request.stages[0])

    def shown(done: int, values: dict[str, float]) -> None:
        progress(done, values)  # without `begin`: this stage has been announced

    how: dict[str, Any] = dict(
        seed=seeds,
        preset=request.learner.preset_before(request.preset),
        out=out,
        checkpoint_seconds=checkpoint_seconds,
        progress=shown,
        **need.changes(request.options[0][0]),
    )
    data = sets[0] if request.single else sets
    if need.learner in METHODS:
        how["steps"] = request.behavior_options.steps
        ks = request.ks if request.learner.fits_behavior_set else None
        found = fit(data, need.learner, k=ks, **how)
    else:
        found = train(data, need.learner, episodes=0, **how)
    return in_rows(found, len(sets), len(seeds))


def _dynamics(
    request: Request,
    sets: list[DataSet],
    run: Run | None,
    checkpoint_seconds: float,
    progress: Progress,
) -> list[Any]:
    """For every replica; kept in the run, in `dynamics`."""
    cells = list(request.cells())
    planned = [stage for stage in request.stages if stage.folder == "dynamics"]
    if not planned:
        return [None] * len(cells)
    announce(progress, planned[0])
    jobs = [
        dynamics.Job(
            cell.data,
            request.seeds[cell.seed],
            request.dynamics_settings(request.options[cell.data][cell.options]),
        )
        for cell in cells
    ]
    return dynamics.fit(
        [(one.data, one.scaling) for one in sets],
        jobs,
        run.path / "dynamics" if run else None,
        progress,
        checkpoint_seconds,
    )
