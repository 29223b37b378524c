"""Policies in environments whose actions are in other units than the data's."""

import json
import warnings
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from manyhands import Policy, Trajectories, evaluate, load_policy, train
from manyhands.algos.arenas import check_actions
from manyhands.envs.pool import Spaces
from manyhands.envs.rollout import episode_seeds
from manyhands.errors import UserError, UserNote

NOTE = "within -1 to 1, those of Pendulum-v1 within -2 to 2; --scale-actions stretches"


@pytest.fixture(scope="module")
def pendulum() -> Trajectories:
    """Somebody scaled the torques, which are from -2 to 2, to -1 to 1."""
    random = np.random.default_rng(0)
    return Trajectories.from_arrays(
        observations=random.normal(size=(40, 3)),
        actions=random.uniform(0.5, 0.9, (40, 1)),
        rewards=random.normal(size=40),
        next_observations=random.normal(size=(40, 3)),
        terminals=np.zeros(40, bool),
        timeouts=np.arange(40) % 10 == 9,
        env_id="Pendulum-v1",
        name="pendulum",
    )


def by_hand(policy: Policy, factor: float) -> float:
    env, total = gymnasium.make("Pendulum-v1"), 0.0
    observation, _ = env.reset(seed=next(episode_seeds(0)))
    for _ in range(200):
        action = factor * policy.act(observation)
        observation, reward, *_ = env.step(action)
        total += float(reward)
    return total


def test_actions_are_stretched_where_that_is_asked_for(pendulum, tmp_path):
    how: Any = dict(steps=30, width=8, batch_size=8, episodes=1, workers=1)
    policy = train(pendulum, "bc", scale_actions=True, out=tmp_path, **how)
    stretched, plain = (by_hand(policy, factor) for factor in (2, 1))
    assert abs(stretched - plain) > 1  # or the rest would say nothing
    about = json.loads((tmp_path / "summary.json").read_text())["policy"]
    assert about["scale_actions"] is True
    assert about["return_mean"] == pytest.approx(stretched, rel=1e-3)
    # As it was trained, unless another way is asked for.
    again = evaluate(load_policy(tmp_path), episodes=1, workers=1)
    assert again.returns == pytest.approx([stretched], rel=1e-3)
    with pytest.warns(UserNote, match=NOTE):
        found = evaluate(policy, episodes=1, workers=1, scale_actions=False)
    assert found.returns == pytest.approx([plain], rel=1e-3)


def test_training_says_that_units_differ(pendulum):
    with pytest.warns(UserNote, match=NOTE):
        policy = train(pendulum, "bc", steps=2, width=8, episodes=1, workers=1)
    assert policy.summary["policy"]["scale_actions"] is False
    right = replace(pendulum, action_low=np.float32([-2]), action_high=np.float32([2]))
    train(right, "bc", steps=2, width=8, episodes=1, workers=1)  # warnings are errors


def spaces(low: list[float], high: list[float]) -> Spaces:
    return Spaces(3, len(low), np.array(low), np.array(high))


@pytest.mark.parametrize(
    ("low", "high", "spoken_of"),
    [
        ([-2, -2], [2, 2], False),
        ([-1.99, -2], [1.99, 2], False),  # less than a hundredth of the width
        ([-2, -1], [2, 1], True),
        ([-0.7, -1.3], [1.1, 0.4], False),  # the extent of some actions
        ([-0.7, -1.3], [3.1, 0.4], True),  # which the environment would cut
    ],
)
def test_what_is_worth_a_note(low, high, spoken_of):
    space = spaces([-2, -2], [2, 2])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        check_actions("X-v0", space, np.array(low), np.array(high), False)
        check_actions("X-v0", space, np.array(low), np.array(high), True)
    assert len(found) == spoken_of


def test_an_environment_without_bounds():
    endless, box = spaces([-np.inf], [np.inf]), (np.array([-1.0]), np.array([1.0]))
    check_actions("X-v0", endless, *box, scale_actions=False)
    with pytest.raises(UserError, match="scale_actions: expected finite bounds"):
        check_actions("X-v0", endless, *box, scale_actions=True)
