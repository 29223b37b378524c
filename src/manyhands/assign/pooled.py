"""A pooled policy: the ridge regression of actions that all trajectories share.

Where contexts are known, a second ridge regression per context explains what the first
leaves. What is left then, the residual, is what single hands do differently.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from manyhands.assign.inputs import Inputs


class Policy(NamedTuple):
    """Residual r = L (a - phi (w + w_c)), its covariance whitened over all steps."""

    weights: np.ndarray  # [p, A]
    context_weights: np.ndarray  # [C + 1, p, A], the last one 0: no context, or unknown
    whiten: np.ndarray  # [A, A]

    @classmethod
    def of(cls, parts: dict[str, np.ndarray]) -> "Policy":
        return cls(*(parts[name] for name in cls._fields))

    def residuals(self, inputs: Inputs, phi: np.ndarray) -> np.ndarray:
        """[N, A] whitened."""
        return self._unexplained(inputs, phi) @ self.whiten

    def _unexplained(self, inputs: Inputs, phi: np.ndarray) -> np.ndarray:
        left = inputs.actions - phi @ self.weights
        if inputs.context is not None:
            of = inputs.context[inputs.trajectory]
            for c in np.unique(of):
                left[of == c] -= phi[of == c] @ self.context_weights[c]
        return left


def fit_policy(
    inputs: Inputs, features: Callable[[Inputs], np.ndarray], *, ridge: float
) -> Policy:
    """Ridge over all steps, then per context with ridge 0.02 n + 10 on what is left."""
    contexts = 0 if inputs.context is None else int(inputs.context.max()) + 1
    gram, cross = _products(inputs, features, lambda part, phi: part.actions)
    weights = _solve(gram, cross, ridge)
    p, actions = weights.shape
    policy = Policy(
        weights, np.zeros((contexts + 1, p, actions), np.float32), np.eye(actions)
    )
    for c in range(contexts):
        own = inputs.take(np.flatnonzero(inputs.context == c))
        gram, cross = _products(own, features, policy._unexplained)
        policy.context_weights[c] = _solve(gram, cross, 0.02 * own.offsets[-1] + 10)
    total, count = np.zeros((actions, actions)), 0
    for part in inputs.parts():
        left = policy._unexplained(part, features(part))
        total, count = total + left.T @ left, count + len(left)
    values, axes = np.linalg.eigh(total / count)
    values = np.maximum(values, 1e-6 * max(values[-1], 1e-6))
    whiten = (axes / np.sqrt(values)).astype(np.float32)
    return policy._replace(whiten=whiten)


def _products(inputs, features, targets) -> tuple[np.ndarray, np.ndarray]:
    """phi' phi and phi' y, summed over parts of the data."""
    gram, cross = 0.0, 0.0
    for part in inputs.parts():
        phi = features(part)
        gram = gram + (phi.T @ phi).astype(np.float64)
        cross = cross + (phi.T @ targets(part, phi)).astype(np.float64)
    return np.asarray(gram), np.asarray(cross)


def _solve(gram: np.ndarray, cross: np.ndarray, ridge: float) -> np.ndarray:
    penalty = ridge * np.eye(len(gram))
    return np.linalg.solve(gram + penalty, cross).astype(np.float32)
