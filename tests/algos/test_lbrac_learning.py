"""LBRAC-v as users call it: on problems with known answers, and what it refuses."""

import json
from typing import Any

import numpy as np
import pytest

from manyhands import (
    Behavior,
    Policy,
    Trajectories,
    UserError,
    evaluate,
    fit,
    make,
    train,
)
from manyhands.algos.starting_sets import best_behavior, starts


def test_the_best_behavior_by_ranks():
    # Code 1 has the largest return, but code 2 is better as a rule; code 0 is empty.
    returns = np.array([1.0, 2.0, 1000.0, 5.0, 6.0, 7.0])
    codes = np.array([1, 1, 1, 2, 2, 2])
    assert best_behavior(returns, codes, 4) == 2
    assert best_behavior(np.arange(6.0), np.array([3, 3, 3, 0, 0, 0]), 4) == 0
    # All alike: any code that has trajectories.
    assert best_behavior(np.zeros(3), np.array([2, 2, 2]), 4) == 2


SMALL = dict(policy_width=32, batch_size=128)


@pytest.fixture(scope="module")
def sets(two_arms) -> list[Behavior]:
    return fit(two_arms, k=[1, 2], steps=600, seed=0, **SMALL)


@pytest.fixture(scope="module")
def arms(sets) -> Behavior:
    return sets[1]


def test_the_share_of_the_best_behavior_is_one_of_transitions(two_arms, sets):
    """Of trajectories, half are by each; those of the better arm are longer."""
    lengths = np.tile([5, 15], 30)
    uneven = Trajectories.from_arrays(
        observations=two_arms.observations,
        actions=two_arms.actions,
        rewards=np.repeat(np.tile([0.0, 1.0], 30), lengths),
        next_observations=two_arms.next_observations,
        terminals=np.zeros(600, bool),
        timeouts=np.zeros(600, bool),
        trajectory=np.repeat(np.arange(60), lengths),
    )
    assert [s.share for s in starts(sets, [two_arms, two_arms])] == [1, 0.5]
    assert [s.share for s in starts(sets, [uneven, uneven])] == [1, 0.75]


def test_it_holds_to_the_better_arm(two_arms, arms):
    assert arms.summary["behavior"]["ari"] == 1
    policy = train(
        two_arms,
        behavior=arms,
        steps=300,
        warm_up=100,
        critic_width=32,
        critic_rate=3e-3,
        policy_rate=1e-3,
        discount=0.0,
        episodes=0,
    )
    assert policy.summary["policy"]["best_code"] == arms.codes[1]
    # Q rises towards larger actions, and what it knows ends at 0.5: pi goes no further
    # than a deviation of the arm, which is 0.05.
    cloned = train(two_arms, "clone", behavior=arms, episodes=0)
    assert abs(cloned.act([1.0])[0] - 0.5) < 0.02
    assert 0.5 < policy.act([1.0])[0] < 0.56


def test_all_k_train_together(two_arms, sets, tmp_path):
    """From what `fit` returns; that none feels the others is a contract's test."""
    given = [sets[0], sets[0], sets[1], sets[1]]
    how = dict(seed=[3, 4], episodes=0, out=tmp_path)
    policies = train(two_arms, "clone", behavior=given, **how)
    about = [p.summary["policy"] for p in policies]
    pairs = [(row["k"], row["seed"]) for row in about]
    assert pairs == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert [len(p.model.E) for p in policies] == [1, 1, 2, 2]  # without padding
    alone = train(two_arms, "clone", behavior=sets[0], episodes=0)
    np.testing.assert_allclose(policies[0].act([1.0]), alone.act([1.0]), atol=1e-6)
    # As the report tells them apart.
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["k"] == [1, 2]
    assert [options["k"] for options in config["options"]] == [1, 2]


def test_what_does_not_fit_is_refused(two_arms, arms, tmp_path):
    """Before anything is written."""
    fork, out = make("fork-2", 500), tmp_path / "run"
    with pytest.raises(UserError, match="behavior: expected one fitted to this data"):
        train(fork, behavior=arms, episodes=0, out=out)
    with pytest.raises(UserError, match="k: expected a number from 1 to the 60 traj"):
        train(two_arms, k=61, episodes=0, out=out)
    with pytest.raises(UserError, match="k: expected a number .* got 0"):
        train(two_arms, k=[2, 0], episodes=0, out=out)
    with pytest.raises(UserError, match="k: expected at least one, got none"):
        train(two_arms, k=[], episodes=0, out=out)
    with pytest.raises(UserError, match="k: expected none, for no behavior .*got 2"):
        train(two_arms, "bc", k=2, episodes=0, out=out)
    with pytest.raises(UserError, match="k: expected none, .*here, got 1, 2"):
        train(two_arms, behavior=arms, k=[1, 2], episodes=0, out=out)
    for name, twice in (("k", dict(k=[2, 3, 2])), ("seed", dict(seed=[2, 2]))):
        with pytest.raises(UserError, match=f"{name}: expected different ones, got 2"):
            train(two_arms, episodes=0, out=out, **twice)
    with pytest.raises(UserError, match="episodes: expected at least 0, got -1"):
        train(two_arms, episodes=-1, out=out)
    assert not out.exists()
    with pytest.raises(UserError, match="does not use one"):
        train(two_arms, "bc", behavior=arms, episodes=0)
    with pytest.raises(UserError, match="held_to: expected own"):
        train(two_arms, behavior=arms, joint=True, steps=1, episodes=0)
    with pytest.raises(UserError, match="one for each of the 3 seeds .*, got 2"):
        train(two_arms, behavior=[arms, arms], seed=[0, 1, 2], episodes=0)
    with pytest.raises(UserError, match="env: expected an environment"):
        train(two_arms, behavior=arms, evaluations=2)


@pytest.mark.learns
def test_the_leap():
    """The point of it all: LBRAC-v passes the obstacle, with three seeds. One Gaussian
    for both demonstrators is a policy between them: it leaps into the obstacle, and so
    does many a time BRAC-v, which is held to it, after as many updates."""
    data = make("leap-2")
    how: Any = dict(steps=600, warm_up=300, batch_size=128, critic_width=64, episodes=0)
    seeds = [0, 1, 2]
    # Fewer updates do not always tell the demonstrators apart.
    learnt = train(data, k=2, seed=seeds, behavior_steps=4000, **how)
    held = train(data, "brac_v", seed=seeds, behavior_steps=1500, **how)
    cloned = train(data, "bc", steps=1500, episodes=0)

    def rate(policy: Policy) -> float:
        # In one process: to start another takes longer than all its episodes.
        returns = evaluate(policy, episodes=100, workers=1).returns
        return float(np.mean(returns > 1))

    rates = [rate(policy) for policy in learnt]
    assert min(rates) >= 0.9, rates
    others = [rate(policy) for policy in held]
    assert max(others) <= 0.7, others
    assert rate(cloned) <= 0.3
