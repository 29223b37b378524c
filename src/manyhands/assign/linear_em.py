"""A mixture of linear-Gaussian policies over trajectories, fitted by EM in seconds.

Code k acts by a_t ~ N(W_k' phi_t, S_k), phi_t = [1, o_t]; the code of a trajectory is
the same at all its steps. The log-likelihood of a trajectory depends on its steps only
through sums of phi phi', phi a' and a a', so one round of EM costs no more for long
trajectories than for short ones. Densities are exact, in the units of the data.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from manyhands.assign.inputs import Inputs
from manyhands.errors import UserError

RIDGE = 1e-3  # of the weights, per step of the code
FLOOR = 1e-4  # of the action's variance
STARTS = 10
ROUNDS = 100


@dataclass(frozen=True)
class Sums:
    """Sums over each trajectory's steps: [M, p, p], [M, p, A], [M, A, A], [M]."""

    gram: np.ndarray
    cross: np.ndarray
    square: np.ndarray
    count: np.ndarray


@dataclass(frozen=True)
class LinearMixture:
    """Weights [K, p, A], covariances [K, A, A] and shares [K] of the codes."""

    weights: np.ndarray
    covariances: np.ndarray
    shares: np.ndarray

    def log_likelihood(self, sums: Sums) -> np.ndarray:
        """[M, K]: log-density of each trajectory's scaled actions under each code."""
        size = self.covariances.shape[-1]
        result = np.empty((len(sums.count), len(self.shares)))
        for k, (w, covariance) in enumerate(zip(self.weights, self.covariances)):
            precision = np.linalg.inv(covariance)
            constant = np.linalg.slogdet(covariance)[1] + size * np.log(2 * np.pi)
            # Sum of squared residuals r' P r: tr P (aa' - 2 W' phi a' + W' phi phi' W).
            quadratic = np.einsum("mij,ij->m", sums.square, precision)
            quadratic -= 2 * np.einsum("mpi,pi->m", sums.cross, w @ precision)
            quadratic += np.einsum("mpq,pq->m", sums.gram, w @ precision @ w.T)
            result[:, k] = -0.5 * (quadratic + sums.count * constant)
        return result

    def responsibilities(self, sums: Sums) -> np.ndarray:
        """[M, K]: p(code | trajectory)."""
        joint = self.log_likelihood(sums) + np.log(self.shares)
        return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))

    def step_log_prob(self, inputs: Inputs) -> np.ndarray:
        """[N, K]: exact log-density of every action, in the units of the data."""
        phi = _phi(inputs)
        scale = np.log(inputs.scaling.action_deviation).sum()
        size = self.covariances.shape[-1]
        columns = []
        for w, covariance in zip(self.weights, self.covariances):
            root = np.linalg.cholesky(covariance)
            r = np.linalg.solve(root, (inputs.actions - phi @ w).T)
            constant = np.log(np.diag(root)).sum() + 0.5 * size * np.log(2 * np.pi)
            columns.append(-0.5 * (r**2).sum(0) - constant - scale)
        return np.stack(columns, axis=1)


def sums_of(inputs: Inputs) -> Sums:
    """Sufficient statistics, trajectory by trajectory."""
    phi, a = _phi(inputs), inputs.actions.astype(np.float64)
    rows = [slice(*pair) for pair in zip(inputs.offsets[:-1], inputs.offsets[1:])]
    return Sums(
        gram=np.stack([phi[r].T @ phi[r] for r in rows]),
        cross=np.stack([phi[r].T @ a[r] for r in rows]),
        square=np.stack([a[r].T @ a[r] for r in rows]),
        count=inputs.lengths.astype(np.float64),
    )


def maximize(sums: Sums, resp: np.ndarray) -> LinearMixture:
    """The M step: weighted ridge regression and residual covariance of each code."""
    total = sums.square.sum(0) / sums.count.sum()
    floor = FLOOR * np.diag(np.maximum(np.diag(total), 1e-12))
    weights, covariances = [], []
    for column in resp.T:
        n = max(float(column @ sums.count), 1e-9)
        gram, cross, square = (
            np.tensordot(column, x, 1) for x in (sums.gram, sums.cross, sums.square)
        )
        w = np.linalg.solve(gram + RIDGE * (n + 1) * np.eye(len(gram)), cross)
        residual = square - w.T @ cross - cross.T @ w + w.T @ gram @ w
        weights.append(w)
        # One pseudo-step of the pooled variance keeps small codes from collapsing.
        covariances.append((residual + total) / (n + 1) + floor)
    shares = (resp.sum(0) + 1) / (len(resp) + resp.shape[1])
    return LinearMixture(np.stack(weights), np.stack(covariances), shares)


def fit_linear(
    inputs: Inputs, k: int, seed: int = 0, codes: np.ndarray | None = None
) -> tuple[LinearMixture, np.ndarray, float]:
    """The mixture, responsibilities [M, k] and log-likelihood of the best start.

    `codes`: start from (and for density estimation only: keep) these codes' policies;
    otherwise the best of ten random starts by likelihood.
    """
    if not 1 <= k <= len(inputs):
        raise UserError(
            f"k: expected between 1 and the number of trajectories, {len(inputs)}; "
            f"got {k}"
        )
    sums = sums_of(inputs)
    rng = np.random.default_rng(seed)
    best = None
    for _ in range(1 if codes is not None else STARTS):
        start = rng.integers(k, size=len(inputs)) if codes is None else codes
        found = _climb(sums, np.eye(k)[start])
        if best is None or found[2] > best[2]:
            best = found
    assert best is not None
    return best


def _climb(sums: Sums, resp: np.ndarray) -> tuple[LinearMixture, np.ndarray, float]:
    """Rounds of EM until the log-likelihood rises by less than 1e-6 of itself."""
    last, mixture = -np.inf, maximize(sums, resp)
    for _ in range(ROUNDS):
        mixture = maximize(sums, resp)
        joint = mixture.log_likelihood(sums) + np.log(mixture.shares)
        evidence = np.asarray(logsumexp(joint, axis=1))
        resp = np.exp(joint - evidence[:, None])
        value = float(evidence.sum())
        if value - last < 1e-6 * abs(value):
            return mixture, resp, value
        last = value
    return mixture, resp, last


def _phi(inputs: Inputs) -> np.ndarray:
    one = np.ones((len(inputs.observations), 1))
    return np.concatenate([one, inputs.observations], axis=1)
