"""LBRAC-v's default against float64 computations, and on problems with known answers.

What the paper printed is compared with the released code in `test_lbrac_fixture.py`.
"""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import double, kl

from manyhands import Behavior, Policy, UserError, evaluate, fit, make, train
from manyhands.algos import lbrac_v, lbrac_v_losses
from manyhands.algos.algorithm import Given
from manyhands.algos.lbrac_v_losses import Noise
from manyhands.algos.lbrac_v_options import Options
from manyhands.algos.starting_sets import Start, best_behavior
from manyhands.behavior import vq, vq_learning
from manyhands.nn.bundle import Bundle

OPTIONS = Options(
    critic_width=8, beta=0.7, value_penalty=0.6, value_weight=1.5, warm_up=0
)
random = np.random.default_rng(2)
ACTION = random.normal(size=(8, 2))
NOISE = Noise(*[jnp.asarray(ACTION, jnp.float32)] * 2, jnp.zeros((0, 8, 2)))


def own(**changes) -> Options:
    return jax.tree.map(
        jnp.float32, Options(**vars(OPTIONS) | dict(held_to="own") | changes)
    )


@pytest.fixture(scope="module")
def given(box) -> Given:
    """Four trajectories, three codes, the last of which is padding."""
    behaviors = vq_learning.init(
        jax.random.key(3), 3, 2, 3, 4, policy_width=8, values=False
    )
    codes = np.array([True, True, False])
    found = Start(behaviors.policy.tree(), None, 1, codes, trajectories=4)
    return Given(3, 2, box, found)


@pytest.fixture(scope="module")
def state(given) -> lbrac_v.State:
    """pi is moved off the behavior that it starts as."""
    state = lbrac_v.start(jax.random.key(0), given, OPTIONS)
    other = lbrac_v.start(jax.random.key(7), given, OPTIONS)
    policy = state.policy.tree()
    policy = eqx.tree_at(lambda p: p.e_pi, policy, jnp.arange(8.0) - 3)
    return state._replace(policy=Bundle.of(policy), target=other.critic)


update = jax.jit(lbrac_v.update_with)


class Reference:
    """Everything once more."""

    def __init__(self, state, given, held_to):
        self.policy = state.policy.tree()
        self.b = given.behavior.behaviors
        self.critic, self.target = state.critic.tree(), state.target.tree()
        self.center, self.scale = double(given.box.center), double(given.box.scale)
        self.best, self.held_to = given.behavior.best, held_to

    def normal(self, rows):
        rows = double(rows)
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

    def trunk(self, trunk, x):
        for layer in (trunk.first, trunk.second):
            x = np.maximum(double(x) @ double(layer.w) + double(layer.b), 0)
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-3)
        return x * double(trunk.scale) + double(trunk.bias)

    def head(self, head, features, embedding):
        w, b = double(head.first.w), double(head.first.b)
        h = np.maximum(features @ w + b + embedding @ double(head.embed), 0)
        return h @ double(head.last.w) + double(head.last.b)

    def pi(self, states):
        features = self.trunk(self.policy.trunk, states)
        return np.split(
            self.head(self.policy.head, features, self.normal(self.policy.e_pi)), 2, -1
        )

    def behavior(self, states, trajectory):
        E, W = self.normal(self.b.E), self.normal(self.b.W)
        z = np.argmax((W @ E.T)[:, :2], axis=1)[np.asarray(trajectory)]
        e = E[z] if self.held_to == "own" else E[np.full(len(z), self.best)]
        return np.split(
            self.head(self.b.head, self.trunk(self.b.trunk, states), e), 2, -1
        )

    def action(self, states):
        mean, log_std = self.pi(states)
        inside = 0.999 * np.abs(self.scale)
        squashed = self.scale * np.tanh(mean + np.exp(log_std) * ACTION)
        return self.center + np.clip(squashed, -inside, inside)

    def q(self, critic, states, actions):
        x = np.concatenate([double(states), actions], axis=1)
        values = []
        for j in range(2):
            member = jax.tree.map(lambda leaf: leaf[j], critic)  # noqa: B023
            features = self.trunk(member.trunk, x)
            values.append(
                self.head(member.head, features, self.normal(member.h_pi))[:, 0]
            )
        return np.stack(values)

    def divergence(self, states, trajectory):
        return kl(*self.pi(states), *self.behavior(states, trajectory))

    def change(self, states, trajectory):
        """Of Q, over a step of one deviation of the behavior."""
        actions, small = self.action(states), 1e-5
        _, log_std = self.behavior(states, trajectory)
        total = np.zeros(len(actions))
        for i, across in enumerate(np.eye(2) * small):
            up, down = (
                self.q(self.critic, states, actions + step).min(axis=0)
                for step in (across, -across)
            )
            z = (actions[:, i] - self.center[i]) / self.scale[i]
            deviation = np.exp(log_std[:, i]) * self.scale[i] * (1 - z**2)
            total = total + ((up - down) / (2 * small) * deviation) ** 2
        return np.sqrt(total.mean())


@pytest.mark.parametrize(("held_to", "reach"), [("best", 1e-3), ("own", 1e9)])
def test_losses(state, batch, given, held_to, reach):
    config = own(held_to=held_to, reach=reach)
    reference = Reference(state, given, held_to)
    fitted = lbrac_v.fitted(given, config)
    policy, critic = state.policy.tree(), state.critic.tree()
    _, e, _ = vq.assign(fitted.behaviors, batch.trajectory, fitted.codes)
    if held_to == "best":
        e = jnp.broadcast_to(fitted.best, e.shape)
    y, _ = lbrac_v_losses.critic_target(
        policy, state.target.tree(), batch, e, NOISE, config, fitted
    )
    following = double(batch.next_observations)
    q = reference.q(reference.target, following, reference.action(following))
    future = q.min(axis=0) - 0.6 * 0.7 * reference.divergence(
        following, batch.trajectory
    )
    alive = 1 - double(batch.terminals)
    expected = double(batch.rewards) + 0.99 * alive * future
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-4)

    loss, _ = lbrac_v_losses.critic_loss(critic, batch, y, None)
    q = reference.q(reference.critic, batch.observations, double(batch.actions))
    np.testing.assert_allclose(
        loss, ((q - expected) ** 2).mean(axis=1).sum(), rtol=1e-3
    )

    loss, metrics = lbrac_v_losses.policy_loss(
        policy, critic, batch, e, NOISE, config, fitted
    )
    states = double(batch.observations)
    q = reference.q(reference.critic, states, reference.action(states)).min(axis=0)
    d = reference.divergence(states, batch.trajectory).mean()
    np.testing.assert_allclose(metrics["actor/divergence"], d, rtol=1e-3)
    change = reference.change(states, batch.trajectory)
    factor = min(1.5 / np.abs(q).mean(), reach / change)
    assert (factor == reach / change) == (reach < 1)
    expected = 0.7 * d - factor * q.mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-3, atol=1e-4)


def test_pi_starts_as_the_best_behavior(given, batch, box):
    state = lbrac_v.start(jax.random.key(0), given, OPTIONS)
    pi = lbrac_v_losses.pi_of(state.policy.tree(), batch.observations, box)
    b = given.behavior.behaviors
    outputs = b.head(b.trunk(batch.observations), vq.normalize(b.E[1]))
    assert np.array_equal(pi.mean, jnp.split(outputs, 2, axis=-1)[0])


def test_pi_waits_for_the_critics(state, batch, given):
    config = own(warm_up=5)
    fitted = lbrac_v.fitted(given, config)
    after, _ = update(state, batch, NOISE, NOISE, config, fitted)
    assert np.array_equal(after.policy.small, state.policy.small)
    assert not np.array_equal(after.critic.small, state.critic.small)


def test_padding_changes_nothing(given, batch):
    """Where behaviors go on learning, too."""
    config = own(joint=True)
    found = given.behavior
    b = eqx.tree_at(lambda b: b.E, found.behaviors, found.behaviors.E[:2])
    alone = given._replace(behavior=found._replace(behaviors=b, codes=found.codes[:2]))
    after = []
    for these in (alone, given):
        state = lbrac_v.start(jax.random.key(0), these, config)
        fitted = lbrac_v.fitted(these, config)
        state, _ = update(state, batch, NOISE, NOISE, config, fitted)
        after.append((state.policy.tree(), state.critic.tree()))
    for one, other in zip(*map(jax.tree.leaves, after), strict=True):
        # A row more, of E and of H, at its end.
        rest = other[tuple(map(slice, one.shape))]
        np.testing.assert_allclose(rest, one, rtol=1e-4, atol=1e-6)
    padding = [(p.E[2], c.H[:, 2]) for p, c in after[1:]]
    critics = vq.init_critics(jax.random.key(0), 5, 3, OPTIONS.critic_width)
    for mine, before in zip(padding[0], (found.behaviors.E[2], critics.H[:, 2])):
        assert np.array_equal(mine, before)


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
