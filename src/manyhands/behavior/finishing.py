"""What the loop leaves becomes a `Behavior`, with what is to be said of it."""

import operator
from typing import Any

import equinox as eqx
import numpy as np

from manyhands.behavior import quantise, vq
from manyhands.behavior.estimate import Behavior, softmax
from manyhands.behavior.fitting import Fitted
from manyhands.behavior.likelihoods import log_probs, printed_codes
from manyhands.behavior.options import Options
from manyhands.behavior.problem import Problem
from manyhands.behavior.scores import calibration, recovery
from manyhands.data.trajectories import Trajectories
from manyhands.runs import environment
from manyhands.training.loop import Result

LEAST_SCATTER = 0.1  # nats a step: a code with one trajectory has no deviation


def finish(
    problem: Problem,
    k: int | str,
    seed: int,
    method: str,
    options: Options,
    fitted: Fitted,
    timing: Result,
    single: float | None,
) -> Behavior:
    """Number the codes that are left, and find what is to be said of each."""
    model, data, values = fitted.model, problem.data, None
    train, test = problem.train, problem.test
    if method == "vq":
        model, codes, learnt, order = _number_codes(problem, options, fitted, k)
        if fitted.values is not None:
            H = operator.attrgetter("H")
            values = vq.Values(
                *(eqx.tree_at(H, c, c.H[:, order]) for c in fitted.values)
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
        _summary(data, behavior, k, seed, float(heldout.mean()), single, fitted, timing)
    )
    return behavior


def _number_codes(
    problem: Problem,
    options: Options,
    fitted: Fitted,
    k: int | str,
) -> tuple[vq.Policy, np.ndarray, np.ndarray, np.ndarray]:
    """Codes in use, the largest first; trajectories by likelihood, or as printed.

    Returns the policy, the code of every trajectory by all of its steps and by those
    learnt from, and what codes were before.
    """
    policy, active = fitted.model, fitted.active
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
            active, train, held, problem.test.counts, fitted.embedded, k
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
    fitted: Fitted,
    timing: Result,
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
        "k_curve": [step._asdict() for step in fitted.path],
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
            "seconds": timing.seconds,
            "updates_per_second": steps / timing.seconds,
            "compile_seconds": timing.compile_seconds,
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
