"""IQL against float64 computations, and on problems with known answers."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import batch_of, doubles, forward, layers, members, slope
from fork_goals import share_at_goal

from manyhands import Trajectories
from manyhands.algos import iql
from manyhands.algos.algorithm import Given, Setting
from manyhands.nn.critics import values_of
from manyhands.types import Batch, Box

STATES, ACTIONS, WIDTH, ROWS = 4, 3, 16, 12
LOW, HIGH = np.array([-1.0, -2.0, 0.5]), np.array([1.0, 3.0, 1.0])
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))
OPTIONS = iql.Options(
    steps=10,
    width=WIDTH,
    critic_width=WIDTH,
    expectile=0.8,
    beta=1.5,
    most_weight=1.2,
    reward_scale=0.5,
    policy_rate=2e-3,
    value_rate=1e-3,
    critic_rate=1e-3,
    target_rate=0.1,
    discount=0.9,
)
CONFIG = jax.tree.map(jnp.float32, OPTIONS)


@pytest.fixture(scope="module")
def starts() -> list[iql.State]:
    """By two seeds."""
    start = jax.jit(lambda key: iql.start(key, Given(STATES, ACTIONS, BOX), OPTIONS))
    return [start(jax.random.key(seed)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def state(starts) -> iql.State:
    """Targets apart from what they follow; a deviation off its range."""
    policy = starts[0].policy.tree()
    policy = iql.Policy(policy.net, jnp.array([-0.5, 0.3, 3.0]))
    bundle = type(starts[0].policy).of(policy)
    return starts[0]._replace(policy=bundle, target=starts[1].critic.params)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return batch_of(ROWS, STATES, LOW, HIGH)


# The same in NumPy, float64, written from the equations


class Reference:
    def __init__(self, state: iql.State, batch: Batch):
        self.batch = doubles(batch)
        policy = state.policy.tree()
        self.policy = layers(policy.net)
        self.log_std = np.array(policy.log_std, np.float64)
        self.value = layers(state.value.tree())
        self.critic = members(state.critic.tree())
        self.target = members(state.target.tree())

    def v(self, s):
        return forward(self.value, s)[:, 0]

    def qs(self, critics):
        pairs = np.hstack([self.batch.observations, self.batch.actions])
        return np.stack([forward(c, pairs)[:, 0] for c in critics])

    def advantage(self):
        return self.qs(self.target).min(axis=0) - self.v(self.batch.observations)

    def value_loss(self):
        d = self.advantage()
        return np.mean(np.abs(0.8 - (d < 0)) * d**2)

    def weights(self, scale):
        d = self.advantage()
        d = d / np.abs(d).mean() if scale == "mean" else d
        return np.minimum(np.exp(1.5 * d), 1.2)

    def policy_loss(self):
        b, std = self.batch, np.exp(np.clip(self.log_std, -5, 2))
        z = (b.actions - (LOW + HIGH) / 2) / ((HIGH - LOW) / 2)
        mean = np.tanh(forward(self.policy, b.observations))
        density = np.exp(-(((z - mean) / std) ** 2) / 2) / (std * np.sqrt(2 * np.pi))
        return -np.mean(self.weights("mean") * np.log(density).sum(axis=1))

    def y(self):
        b = self.batch
        return b.rewards + 0.9 * (1 - b.terminals) * self.v(b.next_observations)

    def critic_loss(self):
        return ((self.qs(self.critic) - self.y()) ** 2).mean(axis=1).sum()


def gradient(loss):
    return jax.jit(jax.grad(loss, has_aux=True))


@pytest.fixture(scope="module")
def q(state, batch) -> jax.Array:
    return values_of(state.target.tree(), batch.observations, batch.actions).min(axis=0)


def test_losses_agree_with_float64(state, batch, q):
    reference = Reference(state, batch)
    value = state.value.tree()
    loss, _ = jax.jit(iql.value_loss)(value, batch, q, CONFIG)
    assert float(loss) == pytest.approx(reference.value_loss(), rel=1e-5)
    advantage = q - iql.value_of(value, batch.observations)
    for scale in ("mean", "none"):
        options = replace(OPTIONS, advantage_scale=scale)
        weight = iql.weights(advantage, jax.tree.map(jnp.float32, options))
        np.testing.assert_allclose(weight, reference.weights(scale), rtol=1e-4)
        # The bound is met by some and not by others.
        assert 0 < np.sum(weight == weight.max()) - 1 < ROWS - 1
    weight = iql.weights(advantage, CONFIG)
    loss, _ = jax.jit(iql.policy_loss)(state.policy.tree(), batch, weight, BOX)
    assert float(loss) == pytest.approx(reference.policy_loss(), rel=1e-4)
    y = jax.jit(iql.critic_target)(value, batch, CONFIG)
    np.testing.assert_allclose(y, reference.y(), rtol=1e-5, atol=1e-5)
    loss, _ = jax.jit(iql.critic_loss)(state.critic.tree(), batch, y)
    assert float(loss) == pytest.approx(reference.critic_loss(), rel=1e-5)


def test_gradients_agree_with_differences_of_float64(state, batch, q):
    reference = Reference(state, batch)
    y, weight = (
        jnp.asarray(x, jnp.float32) for x in (reference.y(), reference.weights("mean"))
    )
    by_value, _ = gradient(iql.value_loss)(state.value.tree(), batch, q, CONFIG)
    by_policy, _ = gradient(iql.policy_loss)(state.policy.tree(), batch, weight, BOX)
    by_critic, _ = gradient(iql.critic_loss)(state.critic.tree(), batch, y)
    of_member = jax.tree.map(lambda x: x[1], by_critic)
    cases = (
        (by_value, reference.value, reference.value_loss),
        (by_policy.net, reference.policy, reference.policy_loss),
        (of_member, reference.critic[1], reference.critic_loss),
    )
    random = np.random.default_rng(2)
    for found, arrays, loss in cases:
        for layer in range(3):
            for part, name in enumerate(("w", "b")):
                array = arrays[layer][part]
                index = tuple(random.integers(n) for n in array.shape)
                expected = slope(loss, array, index)
                one = getattr(found.layers[layer], name)[index]
                assert float(one) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    for i in range(ACTIONS):  # 0 for the one that is off its range
        expected = slope(reference.policy_loss, reference.log_std, (i,))
        assert float(by_policy.log_std[i]) == pytest.approx(expected, rel=1e-3)
    assert float(by_policy.log_std[2]) == 0


def test_one_update_goes_from_v_to_the_targets(state, batch):
    update = jax.jit(iql.update)
    after, metrics = update(state, batch, jax.random.key(0), CONFIG, BOX)
    # V by the old targets; the others by V as it is then.
    reference = Reference(state._replace(value=after.value), batch)
    reference.batch = reference.batch._replace(rewards=0.5 * reference.batch.rewards)
    loss = reference.critic_loss()
    assert float(metrics["critic/loss"]) == pytest.approx(loss, rel=1e-5)
    mean = reference.advantage().mean()
    assert float(metrics["actor/advantage"]) == pytest.approx(mean, rel=1e-4)
    # Adam's first step is the rate, against the gradient's sign.
    moved = after.policy.tree().log_std - state.policy.tree().log_std
    for i in range(2):
        sign = np.sign(slope(reference.policy_loss, reference.log_std, (i,)))
        assert float(moved[i]) == pytest.approx(-2e-3 * sign, rel=1e-2)
    for old, new, critic in zip(
        *map(jax.tree.leaves, (state.target, after.target, after.critic.params))
    ):
        np.testing.assert_allclose(new, old + 0.1 * (critic - old), atol=1e-6)


def test_the_policys_rate_falls_along_a_cosine():
    found = [float(iql.cosine(0.5, jnp.int32(t), 8)) for t in range(11)]
    expected = [0.25 * (1 + np.cos(np.pi * min(t, 8) / 8)) for t in range(11)]
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_the_start_is_orthogonal(starts):
    state = starts[0]
    net, critic = state.policy.tree().net, state.critic.tree()
    assert [d.w.shape for d in net.layers] == [(4, 16), (16, 16), (16, 3)]
    assert [d.w.shape for d in critic.layers] == [(2, 7, 16), (2, 16, 16), (2, 16, 1)]
    assert [d.w.shape[1] for d in state.value.tree().layers] == [16, 16, 1]
    for w in (net.layers[1].w, critic.layers[1].w[0], critic.layers[1].w[1]):
        np.testing.assert_allclose(w @ w.T, 2 * np.eye(16), atol=1e-5)
    for a, b in zip(*map(jax.tree.leaves, (state.target, state.critic.params))):
        assert np.array_equal(a, b)


# Problems with known answers


@jax.jit
def learn(
    config: iql.Options,
    states: jax.Array,
    actions: jax.Array,
    rewards: jax.Array,
    following: jax.Array,
    terminals: jax.Array,
) -> iql.State:
    """All transitions in every batch."""
    box = Box(-jnp.ones(1), jnp.ones(1))
    start = iql.start(jax.random.key(0), Given(1, 1, box), config)
    trajectory = jnp.zeros(len(states), jnp.int32)
    batch = Batch(states, actions, rewards, following, terminals, trajectory)

    def one(state, key):
        state, _ = iql.update(state, batch, key, config, box)
        return state, None

    keys = jax.random.split(jax.random.key(1), config.steps)
    return jax.lax.scan(one, start, keys)[0]


SMALL = iql.Options(
    steps=2000,
    width=32,
    critic_width=32,
    policy_rate=3e-3,
    value_rate=3e-3,
    critic_rate=3e-3,
    target_rate=0.1,
    discount=0.8,
)


def logged() -> jax.Array:
    """Actions around -0.5 and 0.5; cloning would choose their mean, 0."""
    random = np.random.default_rng(0)
    actions = random.choice([-0.5, 0.5], (256, 1)) + random.normal(0, 0.05, (256, 1))
    return jnp.asarray(actions, jnp.float32)


@pytest.mark.parametrize("beta", [1.0, 3.0])
@pytest.mark.parametrize("better", [-1, 1])
def test_it_prefers_the_better_of_two_arms_as_much_as_beta_says(better, beta):
    """Both about as often, and V is 0.7: advantages 0.3 and -0.7, mean size 0.5."""
    actions, zero = logged(), jnp.zeros((256, 1))
    rewards = (actions[:, 0] * better > 0).astype(jnp.float32)
    config = replace(SMALL, beta=beta)
    state = learn(config, zero, actions, rewards, zero, jnp.ones(256))
    box = Box(-jnp.ones(1), jnp.ones(1))
    keys = jax.random.split(jax.random.key(0), 1)
    action = iql.act(state.policy.tree(), box, zero[:1], keys)
    # Their mean, one arm counting exp(beta / 0.5) times as much as the other.
    expected = 0.5 * np.tanh(beta)
    assert float(action[0, 0]) == pytest.approx(expected * better, abs=0.1)


@pytest.mark.parametrize("expectile", [0.5, 0.9])
def test_v_is_the_expectile_of_q(expectile):
    """Two actions, worth 0 and 1: the expectile is the share of the second's pull.

    State 1 leads to state -1, where one chooses and it ends; so Q in state 1 is
    gamma V(-1).
    """
    states = jnp.asarray(np.where(np.arange(256)[:, None] < 128, 1, -1), jnp.float32)
    actions = jnp.asarray(np.where(np.arange(256)[:, None] % 2, 0.5, -0.5), jnp.float32)
    end = (states[:, 0] < 0).astype(jnp.float32)
    rewards = end * (actions[:, 0] > 0)
    config = replace(SMALL, expectile=expectile)
    state = learn(config, states, actions, rewards, -jnp.ones((256, 1)), end)
    v = iql.value_of(state.value.tree(), jnp.array([[-1.0], [1.0]]))
    # 0.5 of the actions pull with weight tau to 1, the others with 1 - tau to 0.
    np.testing.assert_allclose(v, [expectile, 0.8 * expectile], atol=0.05)
    q = values_of(state.critic.tree(), jnp.ones((1, 1)), actions[:1])
    np.testing.assert_allclose(q, 0.8 * expectile, atol=0.05)


def of_returns(returns: list[float]) -> Trajectories:
    """Trajectories of two steps; the first one of each is paid -1."""
    rewards = np.ravel([(-1.0, value + 1) for value in returns])
    rows = len(rewards)
    return Trajectories.from_arrays(
        observations=np.zeros((rows, 1)),
        actions=np.zeros((rows, 1)),
        rewards=rewards,
        terminals=np.arange(rows) % 2 == 1,
        trajectory=np.arange(rows) // 2,
        action_bounds=(-1.0, 1.0),
    )


@pytest.mark.parametrize(
    ("returns", "expected"), [([-3.0, 5.0, 17.0], 50.0), ([2.0, 2.0], 1.0)]
)
def test_the_paper_scales_rewards_by_the_range_of_returns(returns, expected):
    """1000 / (17 - -3); where all are the same there is nothing to scale by."""
    setting = Setting(of_returns(returns), None, False)
    found = iql.IQL.settle(iql.PRESETS["paper"], setting)
    assert found.reward_scale == pytest.approx(expected)
    assert iql.IQL.settle(OPTIONS, setting).reward_scale == 0.5


@pytest.mark.slow
def test_it_passes_the_fork():
    """The average of its two demonstrators drives into the obstacle."""
    share = share_at_goal(
        "iql",
        steps=6000,
        width=64,
        critic_width=64,
        batch_size=128,
        policy_rate=1e-3,
        value_rate=1e-3,
        critic_rate=1e-3,
        target_rate=0.02,
    )
    assert share >= 0.8
