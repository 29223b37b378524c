"""What came out of a training: policies, and what a run says about them."""

from typing import Any

import numpy as np

from manyhands.algos import starting_sets
from manyhands.algos.algorithm import Algorithm
from manyhands.algos.evaluate import Evaluation
from manyhands.algos.policy import Policy
from manyhands.algos.registry import algorithm
from manyhands.algos.replicas import Replica
from manyhands.algos.request import Request, k_of
from manyhands.behavior.estimate import Behavior
from manyhands.options import varying
from manyhands.runs import Run, environment, mean_and_std
from manyhands.training.loop import Result
from manyhands.training.replicas import pick
from manyhands.types import Pytree


def policy_of(
    request: Request,
    replica: Replica,
    model: Any,
    result: Result,
    final: Evaluation | None,
) -> Policy:
    source, behavior = replica.source, replica.behavior
    data, steps = source.data, replica.options.steps
    summary: dict[str, Any] = {
        "data": {
            "name": data.name,
            "transitions": data.transitions,
            "trajectories": len(data),
            "sources": len(data.source_names) or None,
        },
        "policy": {"algo": request.algo, "seed": replica.seed, "return_mean": None}
        | (final.summary() if final else {})
        | {"scale_actions": request.scale_actions},
        "behaviors": source.behaviors,
        "timing": {
            "updates": steps,
            "seconds": result.seconds,
            "updates_per_second": steps / result.seconds,
            "compile_seconds": result.compile_seconds,
            "device": environment()["device"],
        },
    }
    if isinstance(behavior, Behavior):
        summary["behavior"] = behavior.summary.get("behavior")
    if isinstance(replica.given.behavior, starting_sets.Start):
        summary["policy"]["k"] = k_of(behavior)
        summary["policy"]["best_code"] = replica.given.behavior.best
    if replica.given.dynamics is not None:
        summary["dynamics"] = replica.given.dynamics.report
    return Policy(
        algo=request.algo,
        options=replica.options,
        model=model,
        box=source.box,
        scaling=source.scaling,
        env_id=source.env,
        summary=summary,
    )


def models_of(learner: Algorithm, models: Pytree, replicas: list[Replica]) -> list[Any]:
    """Of every replica, without the padding that replicas share."""
    return [
        learner.unpadded(pick(models, r), replica.given)
        for r, replica in enumerate(replicas)
    ]


def write(run: Run, policies: list[Policy]) -> None:
    """The first replica at the top, each of several in a folder of its own."""
    _write_one(run, policies[0])
    summary = dict(policies[0].summary)
    if len(policies) > 1:
        for r, policy in enumerate(policies):
            _write_one(Run(run.path / f"replica-{r}"), policy)
        differing = varying([policy.options for policy in policies])
        summary["replicas"] = [
            {"data": p.summary["data"]["name"], "options": own} | p.summary["policy"]
            for p, own in zip(policies, differing)
        ]
        summary["mean"], summary["std"] = mean_and_std(summary["replicas"])
    run.write_summary(summary)
    run.remove_checkpoint()


def _write_one(run: Run, policy: Policy) -> None:
    policy.write(run)
    arrays = algorithm(policy.algo).embeddings(policy.model)
    if arrays:
        run.write_embeddings(**{k: np.asarray(v) for k, v in arrays.items()})
