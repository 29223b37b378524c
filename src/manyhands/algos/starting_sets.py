"""Behavior sets that learners start from: which of their behaviors is the best, and
sets of different sizes side by side."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from manyhands.algos.algorithm import Given
from manyhands.behavior import vq
from manyhands.behavior.estimate import Behavior
from manyhands.data.trajectories import Trajectories
from manyhands.types import Key


class Start(NamedTuple):
    """A behavior set to start from, and which of its behaviors is the best."""

    behaviors: vq.Policy
    values: vq.Values | None
    best: int
    share: float  # of the data, by the best one
    codes: np.ndarray  # [K] false: padding
    trajectories: int  # the rows of W beyond are padding


def best_behavior(returns: np.ndarray, codes: np.ndarray, k: int) -> int:
    """k*: the code whose trajectories rank highest on average.

    Returns count by their percentile, so that one lucky trajectory does not decide.
    Codes without trajectories are nobody's behavior.
    """
    # q_0 ... q_99; a return is worth the number of the last one that it reaches.
    thresholds = np.percentile(returns, np.arange(100))
    worth = np.searchsorted(thresholds, returns, side="right") - 1
    many = np.bincount(codes, minlength=k)
    total = np.bincount(codes, worth, minlength=k)
    return int(np.argmax(np.where(many > 0, total / np.maximum(many, 1), -np.inf)))


def first_values(key: Key, given: Given, width: int) -> vq.Values:
    """The behaviors' Q-functions; new ones where they were fitted without."""
    found: Start = given.behavior
    if found.values is not None:
        return found.values
    inputs = given.observations + given.actions
    critic = vq.init_critics(key, inputs, len(found.codes), width)
    return vq.Values(critic, critic)


def starts(behaviors: list[Behavior], data: list[Trajectories]) -> list[Start]:
    """For replicas that train together: as many codes and trajectories in each, by
    padding.

    Args:
        data: what each of them was fitted to.
    """
    codes = max(behavior.k for behavior in behaviors)
    trajectories = max(len(behavior.codes) for behavior in behaviors)

    def padded(rows: Array, axis: int, most: int) -> Array:
        """The first one again and again: never chosen, but no odd numbers either."""
        short = most - rows.shape[axis]
        more = rows.take(jnp.zeros(short, int), axis)
        return jnp.concatenate([rows, more], axis)

    found = []
    for behavior, given in zip(behaviors, data, strict=True):
        policy, values = behavior.model, behavior.values
        policy = eqx.tree_at(
            lambda p: (p.E, p.W),
            policy,
            (padded(policy.E, 0, codes), padded(policy.W, 0, trajectories)),
        )
        if values is not None:
            values = vq.Values(
                *(eqx.tree_at(lambda c: c.H, c, padded(c.H, 1, codes)) for c in values)
            )
        best = best_behavior(given.returns, behavior.codes, behavior.k)
        share = given.lengths[behavior.codes == best].sum() / given.lengths.sum()
        there = np.arange(codes) < behavior.k
        many = len(behavior.codes)
        found.append(Start(policy, values, best, float(share), there, many))
    return found
