"""`fit`: from a data set to its behaviors."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, overload

import numpy as np

from manyhands.behavior import vq
from manyhands.behavior.estimate import Behavior
from manyhands.behavior.finishing import finish
from manyhands.behavior.fitting import BehaviorStage
from manyhands.behavior.likelihoods import log_probs
from manyhands.behavior.methods import METHODS
from manyhands.behavior.options import Options, resolve
from manyhands.behavior.problem import Problem, prepare
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError, check_seed
from manyhands.runs import Run, environment, mean_and_std
from manyhands.training import loop
from manyhands.training.loop import Progress, silent

USUAL_K = 10


@overload
def fit(  # pyright: ignore[reportOverlappingOverload]
    data: Trajectories,
    method: str = ...,
    *,
    k: int | str | None = ...,
    seed: int = ...,
    **options: Any,
) -> Behavior: ...


@overload
def fit(
    data: Trajectories | Sequence[Trajectories],
    method: str = ...,
    *,
    k: Any = ...,
    seed: Any = ...,
    **options: Any,
) -> list[Behavior]: ...


def fit(
    data: Trajectories | Sequence[Trajectories],
    method: str = "vq",
    *,
    k: int | str | Sequence[int | str] | None = None,
    steps: int | None = None,
    seed: int | Sequence[int] = 0,
    preset: str = "default",
    out: str | Path | None = None,
    compare: bool = False,
    checkpoint_seconds: float = 20.0,
    progress: Progress = silent,
    inspect: Callable[[int, list[Any]], None] | None = None,
    **changes: Any,
) -> Behavior | list[Behavior]:
    """Estimate the behaviors that made a data set, and which trajectory each one made.

    Args:
        data: what was logged. A sequence of data sets of the same sizes trains one
            replica each.
        method: `vq` (a set of behaviors), `gaussian` (one policy), `vae`.
        k: how many behaviors there are at most, or "auto". Likewise. If None: ten, or
            as many as there are trajectories. Only for `vq`.
        steps: updates; the preset's number if None, which for `default` depends on how
            much data there is (in the largest of several sets).
        seed: likewise. All replicas train in one program: every data set comes with
            every k, and that with every seed, in this order.
        preset: `default`, `large` (better probabilities, for much data and a GPU), or
            `paper` for the printed hyper-parameters and start.
        out: a run directory to write to; an interrupted run there is continued.
        compare: fit a single Gaussian too and report its held-out log-probability.
        checkpoint_seconds: how much work an interruption may cost.
        progress: called with the updates made and values to show.
        inspect: called with the updates made and the best models so far of all
            replicas, at three fixed steps along the way.
        changes: single options, see `Options`.

    Returns:
        A `Behavior`, or a list where `data`, `k` or `seed` is a sequence.
    """
    if method not in METHODS:
        raise UserError(f"method: expected one of {', '.join(METHODS)}, got {method}")
    if steps is not None:
        changes["steps"] = steps
    sets = as_list(data)
    options = resolve(preset, changes, max(one.transitions for one in sets))
    usual = usual_k(sets) if method == "vq" else 1
    ks, seeds = _replicas(usual if k is None else k, seed)
    if method != "vq" and ks != [1]:
        raise UserError(f"k: expected none, {method} is one behavior, got {listed(ks)}")
    for one, value in itertools.product(sets, ks):
        check_k(value, len(one))
    run = Run(out) if out is not None else None
    if run:
        run.check()
    problems = [prepare(d, options.holdout, options.standardise, seed=0) for d in sets]
    if run:
        config = {
            "method": method,
            "k": [value for value in ks for _ in seeds],
            "seeds": seeds * len(ks),
            "preset": preset,
            "options": asdict(options),
            "data": names_of(data),
            "environment": environment(),
        }
        run.begin(config, same=("method", "k", "seeds", "options", "data"))
    replicas = list(itertools.product(problems, ks, seeds))
    stage = BehaviorStage(
        [problem for problem, _, _ in replicas],
        method,
        options,
        [value for _, value, _ in replicas],
        [number for _, _, number in replicas],
        inspect,
    )
    result = loop.train(stage, run, progress, checkpoint_seconds)
    single = {}
    if compare and method != "gaussian":
        single = {id(p): _single_gaussian(p, options, seeds[0]) for p in problems}
    fitted = [
        finish(
            *replica,
            method,
            options,
            stage.result(r),
            result,
            single.get(id(replica[0])),
        )
        for r, replica in enumerate(replicas)
    ]
    if run:
        write(run, [one for one in sets for _ in ks for _ in seeds], fitted)
        places = run.replicas(len(fitted))
        fitted = [replace(b, run=str(p.resolve())) for b, p in zip(fitted, places)]
    several = not (isinstance(data, Trajectories) and _single(k) and _single(seed))
    return fitted if several else fitted[0]


# What was asked for


def as_list(data: Trajectories | Sequence[Trajectories]) -> list[Trajectories]:
    """Data sets that can train in one program."""
    sets = [data] if isinstance(data, Trajectories | str | Path) else list(data)
    if not sets:
        raise UserError("data: expected at least one data set, got none")
    for one in sets:
        if not isinstance(one, Trajectories):
            raise UserError(f"data: expected a data set (mh.load), got {one!r}")
    sizes = {(one.observation_size, one.action_size) for one in sets}
    if len(sizes) > 1:
        shown = "; ".join(f"{s} and {a}" for s, a in sorted(sizes))
        raise UserError(
            "data: expected sets with as many numbers in observations and actions, got "
            f"{shown}"
        )
    return sets


def names_of(data: Trajectories | Sequence[Trajectories]) -> Any:
    """For config.json: of one data set, or a list."""
    if isinstance(data, Trajectories):
        return {"name": data.name, "fingerprint": data.fingerprint}
    return [names_of(one) for one in data]


def _replicas(k: Any, seed: Any) -> tuple[list, list[int]]:
    # NumPy's integers are as good as Python's.
    ks = [_plain(v) for v in ([k] if _single(k) else k)]
    seeds = [_plain(v) for v in ([seed] if _single(seed) else seed)]
    for number in seeds:
        check_seed(number)
    if not ks or not seeds:
        raise UserError("k, seed: expected at least one of each, got none")
    check_different("k", ks)
    check_different("seed", seeds)
    return ks, seeds


def usual_k(sets: list[Trajectories]) -> int:
    """Where nobody asked for a number."""
    return min(USUAL_K, *(len(one) for one in sets))


def listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))


def check_different(name: str, values: Sequence[Any]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise UserError(f"{name}: expected different ones, got {value} twice")


def check_k(k: Any, trajectories: int) -> None:
    if k != "auto" and not (isinstance(k, int) and 1 <= k <= trajectories):
        raise UserError(
            f"k: expected a number from 1 to the {trajectories} trajectories, or auto, "
            f"got {k}"
        )


def _single(value: Any) -> bool:
    return value is None or isinstance(value, Real | str)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Integral) else value


def _single_gaussian(problem: Problem, options: Options, seed: int) -> float:
    """Trained as long, so that the comparison is fair."""
    stage = BehaviorStage([problem], "gaussian", options, [1], [seed])
    loop.train(stage, None, silent, np.inf)
    model = stage.result(0).model
    return float(log_probs("gaussian", model, problem, problem.test).mean())


# The run directory


def write(run: Run, sets: list[Trajectories], fitted: list[Behavior]) -> None:
    """The (first) data set's best replica on held-out steps at the top, each in a
    folder of its own."""
    scores = [
        b.summary["behavior"]["heldout_log_prob"]
        for data, b in zip(sets, fitted)
        if data is sets[0]
    ]
    best = fitted[int(np.argmax(scores))]
    _write_one(run, sets[0], best)
    summary = dict(best.summary)
    if len(fitted) > 1:
        for r, (data, behavior) in enumerate(zip(sets, fitted)):
            _write_one(Run(run.path / f"replica-{r}"), data, behavior)
        summary["replicas"] = [b.summary["behavior"] for b in fitted]
        summary["mean"], summary["std"] = mean_and_std(summary["replicas"])
    run.write_summary(summary)
    run.remove_checkpoint()


def _write_one(run: Run, data: Trajectories, behavior: Behavior) -> None:
    behavior.save(run.path)
    everyone = np.arange(len(data))
    unknown = [""] * len(data)
    names = np.array(data.source_names)
    run.write_assignments(
        {
            "trajectory": data.ids,
            "code": behavior.codes,
            "probability": behavior.probabilities[everyone, behavior.codes].round(6),
            "return": data.returns,
            "length": data.lengths,
            "source": unknown if data.sources is None else names[data.sources],
        }
    )
    if behavior.method == "vq":
        W, E = (
            np.asarray(vq.normalize(x)) for x in (behavior.model.W, behavior.model.E)
        )
        run.write_embeddings(W=W, E=E)
