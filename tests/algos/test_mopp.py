"""MOPP against float64 computations; plans of what was learnt; a behavior set in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import double, mlp
from fork_goals import share_at_goal
from untaught import untaught

from manyhands import Policy, UserError, fit, load_policy, make, train
from manyhands.algos import mopp, mopp_acting
from manyhands.algos.algorithm import Given, Setting
from manyhands.algos.starting_sets import Start
from manyhands.behavior import vq_learning
from manyhands.behavior.problem import Scaling
from manyhands.dynamics import autoregressive
from manyhands.dynamics.fit import Dynamics
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.nn.networks import normalize

SMALL = dict(critic_width=16, behavior_width=8, head_width=6, model_width=8)
OPTIONS = mopp.Options(
    **SMALL,
    members=3,
    elites=2,
    discount=0.9,
    trajectories=8,
    horizon=2,
    proposals=2,
    percentile=50.0,
    ending="never",
)
CONFIG = jax.tree.map(jnp.float32, OPTIONS)


@pytest.fixture(scope="module")
def given(box) -> Given:
    """Dynamics that nobody taught, rewards from -1 to 3 in the data."""
    settings = Settings(
        "autoregressive", 3, 2, 8, 1, 1, 0, 1e-3, head_width=6, unit_rewards=True
    )
    inputs = Inputs(jnp.zeros(5), jnp.ones(5))
    start = untaught(lambda key: autoregressive.start(key, 3, 2, settings))
    members = autoregressive.members(start, inputs, settings)
    quantiles = jnp.linspace(0, 1, 101)
    elites, rewards = jnp.array([2, 0], jnp.int32), jnp.array([-1.0, 3.0])
    found = Dynamics(members, elites, quantiles, rewards, inputs, {})
    return Given(3, 2, box, None, found, Scaling.none(3))


@pytest.fixture(scope="module")
def logged(batch):
    """With what was done next, but for a row that was cut off and one that ended."""
    random = np.random.default_rng(5)
    actions = jnp.asarray(random.uniform(-0.9, 0.9, (8, 2)), jnp.float32)
    return batch._replace(next_actions=actions.at[jnp.array([0, 3])].set(jnp.nan))


def test_values_are_of_the_logged_actions_and_skip_what_nobody_knows(given, logged):
    fitted = mopp.fitted(given, OPTIONS)
    target, critic = (
        untaught(lambda key: mopp.start(key, given, OPTIONS), seed).critic.tree()
        for seed in (0, 1)
    )
    y, known = jax.jit(mopp.critic_target)(target, logged, CONFIG, fitted)
    terminal = double(logged.terminals)
    assert terminal[0] == 1  # ended: there is nothing to know
    assert terminal[3] == 0
    assert known.tolist() == [i != 3 for i in range(8)]
    after = np.hstack([logged.next_observations, np.nan_to_num(logged.next_actions)])
    q = np.where(terminal > 0, 0, mlp(target, after)[..., 0].min(axis=0))
    expected = (double(logged.rewards) + 1) / 4 + 0.9 * q
    there = np.asarray(known)
    np.testing.assert_allclose(y[there], expected[there], rtol=1e-4, atol=1e-5)
    assert np.isfinite(y).all()
    # Kernels that are large, so that their decay is seen.
    critic = jax.tree.map(lambda leaf: leaf * 5, critic)
    loss, metrics = jax.jit(mopp.critic_loss)(critic, logged, y, known)
    now = mlp(critic, np.hstack([logged.observations, logged.actions]))[..., 0]
    errors = ((now - expected) ** 2)[:, there].mean(axis=1).sum()
    assert float(metrics["critic/loss"]) == pytest.approx(errors, rel=1e-4)
    decay = 1e-5 * sum(np.sum(double(layer.w) ** 2) for layer in critic.layers)
    assert decay > 1e-3
    assert float(loss - metrics["critic/loss"]) == pytest.approx(decay, rel=0.05)
    gradient = jax.jit(jax.grad(lambda c: mopp.critic_loss(c, logged, y, known)[0]))
    for leaf in jax.tree.leaves(gradient(critic)):
        assert np.isfinite(leaf).all()


def test_an_update_moves_targets_first_then_the_rest(given, logged):
    fitted = mopp.fitted(given, OPTIONS)
    state = mopp.start(jax.random.key(0), given, OPTIONS)
    after, metrics = jax.jit(mopp.update)(
        state, logged, jax.random.key(1), CONFIG, fitted
    )
    for old, new, online in zip(
        *map(jax.tree.leaves, (state.target, after.target, state.critic.params))
    ):
        np.testing.assert_allclose(new, old + 0.005 * (online - old), atol=1e-6)
    assert set(metrics) == {
        "behavior/log_prob",
        "critic/loss",
        "critic/q",
        "critic/target",
    }
    for old, new in (
        (state.critic.params.small, after.critic.params.small),
        (state.behavior.params.small, after.behavior.params.small),
    ):
        # Adam's first step is the rate, wherever there is a gradient.
        moved = np.abs(np.asarray(new - old))
        assert moved.max() == pytest.approx(1e-3, rel=0.05)


def test_what_plans_are_the_elites_within_a_quantile(given):
    fitted = mopp.fitted(given, OPTIONS)
    assert float(fitted.plan.threshold) == pytest.approx(0.5)
    fixed = mopp.fitted(given, mopp.replace(OPTIONS, threshold=7.0))
    assert float(fixed.plan.threshold) == 7
    orders = np.asarray(given.dynamics.members.order)
    np.testing.assert_array_equal(fitted.members.order, orders[[2, 0]])
    assert fitted.order.tolist() == [[0, 1], [1, 0]]


def test_a_row_is_planned_as_if_it_were_alone(given, box):
    """A key of its own each: what others there are does not matter."""
    fitted = mopp.fitted(given, OPTIONS)
    state = untaught(lambda key: mopp.start(key, given, OPTIONS))
    model = mopp.model(state, fitted)
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    keys = jax.random.split(jax.random.key(3), 4)
    act = jax.jit(mopp.act)
    together = act(model, box, rows, keys)
    flipped = act(model, box, rows[::-1], keys[::-1])
    np.testing.assert_allclose(together, flipped[::-1], atol=1e-5)
    other = act(model, box, rows, jax.random.split(jax.random.key(4), 4))
    assert not np.allclose(together, other)


def test_the_first_critic_alone_chooses(given, box):
    state = untaught(lambda key: mopp.start(key, given, OPTIONS))
    asked = mopp_acting.guides(mopp.model(state, mopp.fitted(given, OPTIONS)), box)
    random = np.random.default_rng(0)
    s, a = (jnp.asarray(random.normal(size=(4, n)), jnp.float32) for n in (3, 2))
    both = asked.value(s, a)
    assert both.shape == (2, 4)
    assert not np.allclose(both[0], both[1])
    np.testing.assert_allclose(asked.first_value(s, a), both[0], rtol=1e-5)


# With a behavior set


@pytest.fixture(scope="module")
def behaviors() -> Start:
    """Two, and a place that is only padding."""
    state = untaught(
        lambda key: vq_learning.init(key, 3, 2, 3, 5, policy_width=8, values=False)
    )
    codes = np.array([True, True, False])
    return Start(state.policy.tree(), None, 1, 0.5, codes, trajectories=5)


def test_a_trajectory_is_one_behaviors(behaviors, box):
    b = behaviors.behaviors
    codes = jnp.asarray(behaviors.codes)
    begin, propose = mopp_acting._by_code(
        mopp.BehaviorSet(b.trunk, b.head, b.E, codes), box
    )
    uniform = jnp.array([0.0, 0.49, 0.51, 1.0])
    who, numbers = begin(uniform)
    E = np.asarray(normalize(b.E))
    assert np.array_equal(numbers, [0, 0, 1, 1])
    np.testing.assert_allclose(who, E[[0, 0, 1, 1]], atol=1e-6)
    said = jax.jit(propose)(who, uniform[0], jnp.zeros((4, 3)))
    assert np.array_equal(said.mean[0], said.mean[1])
    assert not np.allclose(said.mean[0], said.mean[2])


def test_a_behavior_set_proposes_and_is_saved(given, behaviors, box, tmp_path):
    options = mopp.replace(OPTIONS, proposer="set")
    given = given._replace(behavior=behaviors)
    state = untaught(lambda key: mopp.start(key, given, options))
    assert state.behavior is None
    model = mopp.model(state, mopp.fitted(given, options))
    policy = Policy("mopp", options, model, box, Scaling.none(3))
    policy.save(tmp_path)
    again = load_policy(tmp_path)
    assert isinstance(again.model.behavior, mopp.BehaviorSet)
    rows = np.random.default_rng(0).normal(size=(3, 3))
    found = policy.act(rows)
    assert np.array_equal(found, again.act(rows))
    assert np.isfinite(found).all()


@pytest.mark.slow
def test_training_from_a_behavior_set(tmp_path):
    data = make("fork-2", 400)
    behavior = fit(data, k=2, steps=20, policy_width=8, values=False)
    small = SMALL | dict(steps=3, batch_size=16, model_steps=4, model_batch=8)
    small |= dict(members=2, elites=2, trajectories=6, horizon=2, proposals=2)
    policy = train(data, "mopp", behavior=behavior, episodes=0, out=tmp_path, **small)
    assert policy.options.proposer == "set"
    np.testing.assert_array_equal(policy.scaling.center, behavior.scaling.center)
    again = load_policy(tmp_path)
    rows = data.observations[:3]
    assert np.array_equal(policy.act(rows), again.act(rows))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(elites=8), "elites: expected at most the 6 members, got 8"),
        (dict(proposer="set"), "behavior: expected a behavior set, as proposer is set"),
        (dict(ending="learned"), "ending: expected a rule or never, got learned"),
    ],
)
def test_what_does_not_fit_is_refused(two_arms, changes, words):
    with pytest.raises(UserError) as error:
        mopp.settle(mopp.Options(**changes), Setting(two_arms, None, False))
    assert str(error.value) == words


def test_what_is_decided(two_arms):
    for env, ending in (("Hopper-v5", "hopper"), (None, "never")):
        found = mopp.settle(mopp.Options(), Setting(two_arms, env, True))
        assert (found.ending, found.proposer) == (ending, "set")
    found = mopp.PRESETS["hopper-medium-expert"]
    assert (found.kappa, found.horizon, found.spread, found.threshold) == (
        3,
        10,
        0.4,
        1,
    )
    assert found.ending == "never"


@pytest.mark.slow
def test_it_passes_the_fork():
    """And does better than the clone of its demonstrators, which it starts from."""
    share = share_at_goal(
        "mopp",
        steps=5000,
        model_steps=3000,
        model_batch=128,
        patience=0,
        members=3,
        model_width=64,
        behavior_width=64,
        head_width=32,
        critic_width=64,
        target_rate=0.02,
        trajectories=30,
        proposals=5,
        horizon=8,
        spread=0.2,
        kappa=10.0,
    )
    assert share >= 0.9
