"""How probable the actions of data are by a model: codes are found and judged by it."""

import equinox as eqx
import numpy as np

from manyhands.behavior import vq
from manyhands.behavior.estimate import compiled, evaluate
from manyhands.behavior.methods import METHODS
from manyhands.behavior.problem import Problem, Table
from manyhands.nn.distributions import inside
from manyhands.types import Box, Pytree


def log_probs(method: str, model: Pytree, problem: Problem, table: Table) -> np.ndarray:
    """[row, code]."""
    function = compiled(METHODS[method].log_probs)
    return evaluate(function, model, problem.box, table.observations, table.actions)


def sums_by_code(
    policy: vq.Policy, problem: Problem, table: Table, active: np.ndarray
) -> np.ndarray:
    """[M, K] summed log-probabilities; codes that are not active have none."""
    # Some of them twice: only powers of two are compiled, not every number.
    codes = np.flatnonzero(active)
    codes = np.resize(codes, 1 << (len(codes) - 1).bit_length())
    policy = eqx.tree_at(lambda p: p.E, policy, policy.E[codes])
    found = log_probs("vq", policy, problem, table)
    sums = np.full((len(table.counts), len(active)), -np.inf)
    sums[:, codes] = table.sums(found)
    return sums


def heldout_log_probs(
    method: str, model: Pytree, problem: Problem, active: np.ndarray, by_code: bool
) -> np.ndarray:
    """Of held-out steps: by their trajectory's code or embedding, if it has any."""
    table, box = problem.test, problem.box
    if method != "vq":
        return log_probs(method, model, problem, table)
    embedded = compiled(embedded_log_prob)
    rows = trajectory_embeddings(model, active, by_code)[table.trajectory]
    return evaluate(embedded, model, box, table.observations, table.actions, rows)


def trajectory_embeddings(
    policy: vq.Policy, active: np.ndarray, by_code: bool
) -> np.ndarray:
    """[M, embedding] what each trajectory's actions are decoded with: e_z or w."""
    if not by_code:
        return np.asarray(vq.normalize(policy.W))
    return np.asarray(vq.normalize(policy.E))[printed_codes(policy, active)]


def printed_codes(policy: vq.Policy, active: np.ndarray) -> np.ndarray:
    """[M] argmax_k <e_k, w_m>, as the paper assigns."""
    W, E = (np.asarray(vq.normalize(x)) for x in (policy.W, policy.E))
    return np.argmax(np.where(active, W @ E.T, -np.inf), axis=1)


def embedded_log_prob(policy: vq.Policy, box: Box, observations, actions, embeddings):
    outputs = policy.head(policy.trunk(observations), embeddings)
    return vq.log_prob(outputs, inside(actions, box), box)
