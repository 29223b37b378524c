"""What TD3+BC and ReBRAC have in common in time."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from manyhands.algos.delayed import Delayed, State


def check_every_second(
    update: Callable[[State], tuple[State, Any]],
    state: State,
    rate: float,
    followed: Callable[[Delayed, Delayed], Any],
) -> State:
    """Policy and slow copies move at updates 1 and 3; returns the state after 1.

    Args:
        rate: how fast slow copies follow.
        followed: what is delayed, before and after -> what the slow policy follows
    """
    first, metrics = update(state)
    second, same = update(first)
    third, _ = update(second)
    assert int(third.critic.steps) == 3
    assert int(third.delayed.policy.steps) == 2
    for old, new in zip(*map(jax.tree.leaves, (first.delayed, second.delayed))):
        assert np.array_equal(old, new)
    for name in ("actor/q", "actor/distance"):
        assert float(metrics[name]) == float(same[name]) != 0
    slow, after = state.delayed, first.delayed
    for old, new, online in (
        (slow.target, after.target, first.critic.params),
        (slow.target_policy, after.target_policy, followed(slow, after)),
    ):
        for a, b, c in zip(*map(jax.tree.leaves, (old, new, online))):
            np.testing.assert_allclose(b, a + rate * (c - a), atol=1e-6)
    return first
