"""Embed first, then quantise: how the default finds the sources.

The printed start draws W and E at random; the codes then follow W's noise, each code is
trained on an arbitrary share of every source, and nothing pulls them apart. Here W is
first trained by reconstruction alone. Trajectories of one source come to lie together,
because that is what predicts their actions; only then are they divided into codes, and
the paper's objective takes over.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from sklearn.cluster import KMeans

from manyhands.behavior import merging, vq


def start_codes(
    policy: vq.Policy, codes: int, seed: int
) -> tuple[vq.Policy, np.ndarray]:
    """E at the centroids of W's rows, and which codes there are (of all in E)."""
    W = np.asarray(vq.normalize(policy.W), np.float64)
    codes = min(codes, len(np.unique(W.round(6), axis=0)))
    found: Any = KMeans(codes, n_init=10, random_state=seed)  # pyright: ignore
    found.fit(W)
    E = np.array(policy.E)
    E[:codes] = found.cluster_centers_
    active = np.arange(len(E)) < codes
    policy = eqx.tree_at(lambda p: p.E, policy, jnp.asarray(E))
    return move_to_codes(policy, found.labels_, active), active


def move_to_codes(
    policy: vq.Policy, codes: np.ndarray, active: np.ndarray
) -> vq.Policy:
    """Put the trajectories whose embedding says another code onto their code."""
    E, W = (np.asarray(vq.normalize(x)) for x in (policy.E, policy.W))
    says = np.argmax(np.where(active, W @ E.T, -np.inf), axis=1)
    W = np.where((says != codes)[:, None], E[codes], W)
    return eqx.tree_at(lambda p: p.W, policy, jnp.asarray(W))


def by_likelihood(log_probs: np.ndarray, active: np.ndarray) -> np.ndarray:
    """[M] the active code under which each trajectory is most probable."""
    return np.argmax(np.where(active, log_probs, -np.inf), axis=1)


def revive(
    policy: vq.Policy, codes: np.ndarray, log_probs: np.ndarray, active: np.ndarray
) -> tuple[vq.Policy, np.ndarray]:
    """A code without trajectories starts again at the one that is explained worst.

    Args:
        log_probs: [M, K] of trajectories under codes, per step.
    """
    codes, E = codes.copy(), np.array(policy.E)
    own = log_probs[np.arange(len(codes)), codes]
    for code in np.flatnonzero(active & ~np.isin(np.arange(len(active)), codes)):
        shared = np.bincount(codes, minlength=len(active))[codes] > 1
        if not shared.any():  # a code for every trajectory
            break
        worst = np.argmin(np.where(shared, own, np.inf))
        codes[worst] = code
        E[code] = policy.W[worst]
    return eqx.tree_at(lambda p: p.E, policy, jnp.asarray(E)), codes


def merge(
    active: np.ndarray,
    train: np.ndarray,
    held: np.ndarray,
    counts: np.ndarray,
    embedded: np.ndarray,
    at_most: int,
) -> tuple[np.ndarray, np.ndarray, list[merging.Step]]:
    """Merge codes that are one behavior. Returns codes, active, and all steps."""
    codes = by_likelihood(train, active)
    steps = merging.path(codes, held, counts, embedded)
    for step in merging.accepted(steps, at_most):
        codes[codes == step.drop] = step.keep
    active = np.isin(np.arange(len(active)), codes)
    return codes, active, steps
