"""`fit`: from a data set to its behaviors."""

import itertools
import operator
from collections.abc import Sequence
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any, overload

import equinox as eqx
import numpy as np

from manyhands.behavior import quantise, vq
from manyhands.behavior.estimate import Behavior, softmax
from manyhands.behavior.fitting import Fitting, Progress, Result
from manyhands.behavior.likelihoods import log_probs, printed_codes
from manyhands.behavior.methods import METHODS
from manyhands.behavior.options import Options, resolve
from manyhands.behavior.problem import Problem, prepare
from manyhands.behavior.scores import calibration, recovery
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError
from manyhands.runs import Run, environment, mean_and_std

LEAST_SCATTER = 0.1  # nats a step: a code with one trajectory has no deviation


def _silent(done: int, shown: dict[str, float]) -> None:
    """The default: nobody is watching."""


@overload
def fit(  # pyright: ignore[reportOverlappingOverload]
    data: Trajectories,
    method: str = ...,
    *,
    k: int | str = ...,
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
    k: int | str | Sequence[int | str] = 10,
    steps: int | None = None,
    seed: int | Sequence[int] = 0,
    preset: str = "default",
    out: str | Path | None = None,
    compare: bool = False,
    checkpoint_seconds: float = 20.0,
    progress: Progress = _silent,
    **changes: Any,
) -> Behavior | list[Behavior]:
    """Estimate the behaviors that made a data set, and which trajectory each one made.

    Args:
        data: what was logged. A sequence of data sets of the same sizes trains one
            replica each.
        method: `vq` (a set of behaviors), `gaussian` (one policy), `vae`.
        k: how many behaviors there are at most, or "auto". Likewise.
        steps: updates; the preset's number if None, which for `default` depends on how
            much data there is (in the largest of several sets).
        seed: likewise. All replicas train in one program: every data set comes with
            every k, and that with every seed, in this order.
        preset: `default`, `large` (better probabilities, for much data and a GPU), or
            `paper` for the printed hyper-parameters and start.
        out: a run directory to write to; an interrupted run there is continued.
        compare: fit a single Gaussian too and report its held-out log-probability.
        checkpoint_seconds: how much work an interruption may cost.
        progress: called with the steps done and what there is to show.
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
    ks, seeds = _replicas(k if method == "vq" else 1, seed)
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
    results = Fitting(
        [problem for problem, _, _ in replicas],
        method,
        options,
        [value for _, value, _ in replicas],
        [number for _, _, number in replicas],
        run,
        progress,
        checkpoint_seconds,
    ).train()
    single = {}
    if compare and method != "gaussian":
        single = {id(p): _single_gaussian(p, options, seeds[0]) for p in problems}
    fitted = [
        _finish(*replica, method, options, result, single.get(id(replica[0])))
        for replica, result in zip(replicas, results)
    ]
    if run:
        write(run, [one for one in sets for _ in ks for _ in seeds], fitted)
    several = not (isinstance(data, Trajectories) and _single(k) and _single(seed))
    return fitted if several else fitted[0]


# What was asked for


def as_list(data: Trajectories | Sequence[Trajectories]) -> list[Trajectories]:
    """Data sets that can train in one program."""
    sets = [data] if isinstance(data, Trajectories) else list(data)
    if not sets:
        raise UserError("data: expected at least one data set, got none")
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
        if not (isinstance(number, int) and 0 <= number < 2**31):
            raise UserError(f"seed: expected a number from 0 to 2^31 - 1, got {number}")
    if not ks or not seeds:
        raise UserError("k, seed: expected at least one of each, got none")
    return ks, seeds


def check_k(k: Any, trajectories: int) -> None:
    if k != "auto" and not (isinstance(k, int) and 1 <= k <= trajectories):
        raise UserError(
            f"k: expected a number from 1 to the {trajectories} trajectories, or auto, "
            f"got {k}"
        )


def _single(value: Any) -> bool:
    return isinstance(value, Integral | str)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Integral) else value


def _single_gaussian(problem: Problem, options: Options, seed: int) -> float:
    """Trained as long, so that the comparison is fair."""
    how = None, _silent, np.inf
    fitting = Fitting([problem], "gaussian", options, [1], [seed], *how)
    model = fitting.train()[0].model
    return float(log_probs("gaussian", model, problem, problem.test).mean())


def _finish(
    problem: Problem,
    k: int | str,
    seed: int,
    method: str,
    options: Options,
    result: Result,
    single: float | None,
) -> Behavior:
    """Number the codes that are left, and find what is to be said of each."""
    model, data, values = result.model, problem.data, None
    train, test = problem.train, problem.test
    if method == "vq":
        model, codes, learnt, order = _number_codes(problem, options, result, k)
        if result.values is not None:
            H = operator.attrgetter("H")
            values = vq.Values(
                *(eqx.tree_at(H, c, c.H[:, order]) for c in result.values)
            )
    else:
        codes = learnt = np.zeros(len(data), np.int64)
    by_row = log_probs(method, model, problem, test)
    by_code = train.sums(log_probs(method, model, problem, train)) + test.sums(by_row)
    counts = train.counts + test.counts
    many = by_code.shape[1]
    prior = np.bincount(codes, minlength=many) / len(codes)
    # Judged by a part of a long trajectory's steps, but for all of them.
    scale = (data.lengths / counts)[:, None]
    with np.errstate(divide="ignore"):
        probabilities = softmax(by_code * scale + np.log(prior))
    mean = by_code[np.arange(len(codes)), codes] / counts
    usual = np.array(
        [
            (mean[codes == c].mean(), max(LEAST_SCATTER, mean[codes == c].std()))
            if (codes == c).any()
            else (-np.inf, 0)
            for c in range(many)
        ]
    )
    behavior = Behavior(
        method=method,
        options=options,
        model=model,
        values=values,
        box=problem.box,
        scaling=problem.scaling,
        codes=codes,
        probabilities=probabilities.astype(np.float32),
        prior=prior,
        usual=usual,
        usual_length=float(data.lengths.mean()),
        fingerprint=data.fingerprint,
    )
    # Held-out steps have had no say in these codes.
    heldout = by_row[np.arange(len(by_row)), learnt[test.trajectory]]
    behavior.summary.update(
        _summary(data, behavior, k, seed, float(heldout.mean()), single, result)
    )
    return behavior


def _number_codes(
    problem: Problem,
    options: Options,
    result: Result,
    k: int | str,
) -> tuple[vq.Policy, np.ndarray, np.ndarray, np.ndarray]:
    """Codes in use, the largest first; trajectories by likelihood, or as printed.

    Returns the policy, the code of every trajectory by all of its steps and by those
    learnt from, and what codes were before.
    """
    policy, active = result.model, result.active
    if options.init == "random":
        # Codes beyond this replica's k are padding.
        order = np.flatnonzero(active)
        policy = eqx.tree_at(lambda p: p.E, policy, policy.E[order])
        codes = printed_codes(policy, active[active])
        return policy, codes, codes, order
    train = problem.train.sums(log_probs("vq", policy, problem, problem.train))
    held = problem.test.sums(log_probs("vq", policy, problem, problem.test))
    learnt = quantise.by_likelihood(train, active)
    if options.merge and isinstance(k, int) and len(set(learnt.tolist())) > k:
        # Too few steps for a merge on the way.
        learnt, active, _ = quantise.merge(
            active, train, held, problem.test.counts, result.embedded, k
        )
        codes = learnt
    else:
        # The one step of a short trajectory that tells who made it may be held out.
        active = np.isin(np.arange(len(active)), learnt)
        codes = quantise.by_likelihood(train + held, active)
    policy = quantise.move_to_codes(policy, codes, active)
    sizes = np.bincount(codes, minlength=len(active))
    order = np.argsort(-sizes, kind="stable")[: active.sum()]
    number = np.empty(len(active), np.int64)
    number[order] = np.arange(len(order))
    policy = eqx.tree_at(lambda p: p.E, policy, policy.E[order])
    return policy, number[codes], number[learnt], order


def _summary(
    data: Trajectories,
    behavior: Behavior,
    k: int | str,
    seed: int,
    heldout: float,
    single: float | None,
    result: Result,
) -> dict[str, Any]:
    about: dict[str, Any] = {
        "method": behavior.method,
        "k": k,
        "seed": seed,
        "codes_used": len(set(behavior.codes.tolist())),
        "heldout_log_prob": heldout,
        "single_gaussian_heldout_log_prob": (
            heldout if behavior.method == "gaussian" else single
        ),
        "k_curve": [step._asdict() for step in result.path],
    }
    if data.sources is not None:
        about |= recovery(data.sources, behavior.codes)
    if data.log_probs is not None:
        about["calibration"] = calibration(behavior.log_prob(data), data.log_probs)
    steps = behavior.options.steps
    return {
        "data": {
            "name": data.name,
            "transitions": data.transitions,
            "trajectories": len(data),
            "sources": len(data.source_names) or None,
        },
        "behavior": about,
        "timing": {
            "updates": steps,
            "seconds": result.seconds,
            "updates_per_second": steps / result.seconds,
            "compile_seconds": result.compile_seconds,
            "device": environment()["device"],
        },
        "codes": _code_rows(data, behavior),
    }


def _code_rows(data: Trajectories, behavior: Behavior) -> list[dict[str, Any]]:
    rows = []
    for code in range(behavior.k):
        mine = behavior.codes == code
        if not mine.any():
            continue
        row = {
            "code": code,
            "trajectories": int(mine.sum()),
            "share": float(mine.mean()),
            "return_mean": float(data.returns[mine].mean()),
            "log_prob": float(behavior.usual[code, 0]),
        }
        if data.sources is not None:
            counts = np.bincount(data.sources[mine], minlength=len(data.source_names))
            row["sources"] = {
                name: int(count)
                for name, count in zip(data.source_names, counts)
                if count
            }
        rows.append(row)
    return rows


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
    run.write_json("summary.json", summary)
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
