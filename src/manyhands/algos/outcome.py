"""What came out of a training: policies, and what a run says about them."""

from typing import Any

import jax
import numpy as np

from manyhands.algos import asked, clone, starting_sets
from manyhands.algos.cases import Case, Place
from manyhands.algos.evaluate import Evaluation
from manyhands.algos.policy import Policy
from manyhands.algos.training import Replica, Result
from manyhands.behavior.estimate import Behavior
from manyhands.options import varying
from manyhands.runs import Run, environment, mean_and_std
from manyhands.types import Pytree


def policy_of(
    algo: str,
    place: Place,
    case: Case,
    replica: Replica,
    result: Result,
    r: int,
    final: Evaluation | None,
) -> Policy:
    data = place.data
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
        "behaviors": place.behaviors,
        "timing": {
            "updates": steps,
            "seconds": result.seconds,
            "updates_per_second": steps / result.seconds,
            "compile_seconds": result.compile_seconds,
            "device": environment()["device"],
        },
    }
    if isinstance(case.first, Behavior):
        summary["behavior"] = case.first.summary.get("behavior")
    if isinstance(replica.given.behavior, starting_sets.Start):
        summary["policy"]["k"] = asked.k_of(case.first)
        summary["policy"]["best_code"] = replica.given.behavior.best
    if replica.given.dynamics is not None:
        summary["dynamics"] = replica.given.dynamics.report
    return Policy(
        algo=algo,
        options=replica.options,
        model=_model_of(result.models, r, replica),
        box=place.box,
        scaling=place.scaling,
        env_id=place.env,
        summary=summary,
    )


def models_of(models: Pytree, replicas: list[Replica]) -> list[Any]:
    return [_model_of(models, r, replica) for r, replica in enumerate(replicas)]


def _model_of(models: Pytree, r: int, replica: Replica) -> Any:
    """One of these, of its own size."""
    model = _one_of(models, r)
    if isinstance(model, clone.Model):
        return clone.unpadded(model, replica.given.behavior)
    return model


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
    if isinstance(policy.model, clone.Model):
        W, E, e_pi = (
            np.asarray(clone.normalize(x))
            for x in (policy.model.W, policy.model.E, policy.model.e_pi)
        )
        run.write_embeddings(W=W, E=E, e_pi=e_pi)
