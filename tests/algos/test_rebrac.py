"""ReBRAC against float64 computations, and on problems with known answers."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import batch_of, doubles, slope
from delays import check_every_second
from fork_goals import share_at_goal

from manyhands.algos import rebrac
from manyhands.algos.algorithm import Given
from manyhands.algos.delayed import State, act
from manyhands.nn.critics import critic_loss, values_of
from manyhands.types import Batch, Box

STATES, ACTIONS, WIDTH, ROWS = 4, 3, 16, 12
LOW, HIGH = np.array([-1.0, -2.0, 0.5]), np.array([1.0, 3.0, 1.0])
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))
OPTIONS = rebrac.Options(
    width=WIDTH,
    critic_width=WIDTH,
    policy_penalty=0.7,
    value_penalty=0.3,
    target_noise=0.4,
    policy_rate=2e-3,
    critic_rate=1e-3,
    target_rate=0.1,
    discount=0.9,
)
CONFIG = jax.tree.map(jnp.float32, OPTIONS)


@pytest.fixture(scope="module")
def starts() -> list[State]:
    """By two seeds."""
    start = jax.jit(lambda key: rebrac.start(key, Given(STATES, ACTIONS, BOX), OPTIONS))
    return [start(jax.random.key(seed)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def state(starts) -> State:
    """Targets apart from what they follow."""
    slow = starts[0].delayed._replace(
        target_policy=starts[1].delayed.policy.params,
        target=starts[1].critic.params,
    )
    return starts[0]._replace(delayed=slow)


@pytest.fixture(scope="module")
def batch() -> Batch:
    random = np.random.default_rng(3)
    then = random.uniform(LOW, HIGH, (ROWS, ACTIONS))
    then[::3] = np.nan  # nobody knows
    batch = batch_of(ROWS, STATES, LOW, HIGH)
    return batch._replace(next_actions=jnp.asarray(then, jnp.float32))


@pytest.fixture(scope="module")
def noise() -> jax.Array:
    # Large enough for some of it to meet its bound, and actions theirs.
    random = np.random.default_rng(1)
    return jnp.asarray(2 * random.normal(size=(ROWS, ACTIONS)), jnp.float32)


# The same in NumPy, float64, written from the equations


def arrays_of(net) -> list[list[np.ndarray]]:
    """Of every layer: weights and bias, and in a critic the norm's after it."""
    norms = list(zip(net.scales, net.biases)) if hasattr(net, "scales") else []
    norms += [()] * (len(net.layers) - len(norms))
    return [
        [np.array(x, np.float64) for x in (layer.w, layer.b, *norm)]
        for layer, norm in zip(net.layers, norms)
    ]


def forward(net, x):
    for w, b, *norm in net[:-1]:
        x = np.maximum(x @ w + b, 0)
        if norm:
            centered = x - x.mean(axis=1, keepdims=True)
            variance = np.mean(centered**2, axis=1, keepdims=True)
            x = centered / np.sqrt(variance + 1e-3) * norm[0] + norm[1]
    return x @ net[-1][0] + net[-1][1]


def members(critic) -> list:
    return [arrays_of(jax.tree.map(lambda x, j=j: x[j], critic)) for j in range(2)]


class Reference:
    def __init__(self, state: State, batch: Batch, noise: jax.Array):
        self.batch = doubles(batch)
        self.noise = np.asarray(noise, np.float64)
        slow = state.delayed
        self.policy = arrays_of(slow.policy.tree())
        self.target_policy = arrays_of(slow.target_policy.tree())
        self.critic = members(state.critic.tree())
        self.target = members(slow.target.tree())

    def act(self, policy, s):
        return (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.tanh(forward(policy, s))

    def q(self, critic, s, a):
        return forward(critic, np.hstack([s, a]))[:, 0]

    def y(self):
        b, half = self.batch, (HIGH - LOW) / 2
        noise = np.clip(0.4 * self.noise, -0.5, 0.5) * half
        a = self.act(self.target_policy, b.next_observations) + noise
        a = np.clip(a, LOW, HIGH)
        q = np.minimum(*(self.q(c, b.next_observations, a) for c in self.target))
        far = np.sum(((a - b.next_actions) / half) ** 2, axis=1)
        far[::3] = 0
        return b.rewards + 0.9 * (1 - b.terminals) * (q - 0.3 * far)

    def critic_loss(self):
        b, y = self.batch, self.y()
        return sum(
            np.mean((self.q(c, b.observations, b.actions) - y) ** 2)
            for c in self.critic
        )

    def policy_loss(self, size=None):
        """`size` of Q; a constant to the gradient."""
        b = self.batch
        a = self.act(self.policy, b.observations)
        far = (((a - b.actions) / ((HIGH - LOW) / 2)) ** 2).sum(axis=1).mean()
        return 0.7 * far - self.least(a).mean() / (size or self.size())

    def least(self, a):
        s = self.batch.observations
        return np.minimum(*(self.q(c, s, a) for c in self.critic))

    def size(self):
        return np.abs(self.least(self.act(self.policy, self.batch.observations))).mean()


def gradient(loss):
    return jax.jit(jax.grad(loss, has_aux=True))


def test_losses_agree_with_float64(state, batch, noise):
    reference, slow = Reference(state, batch, noise), state.delayed
    y, _ = jax.jit(rebrac.critic_target)(
        slow.target_policy.tree(), slow.target.tree(), batch, noise, CONFIG, BOX
    )
    np.testing.assert_allclose(y, reference.y(), rtol=1e-5, atol=1e-5)
    loss, metrics = jax.jit(critic_loss)(state.critic.tree(), batch, y)
    assert float(loss) == pytest.approx(reference.critic_loss(), rel=1e-5)
    loss, more = jax.jit(rebrac.policy_loss)(
        slow.policy.tree(), state.critic.tree(), batch, CONFIG, BOX
    )
    assert float(loss) == pytest.approx(reference.policy_loss(), rel=1e-5)
    assert set(metrics) == {"critic/loss", "critic/q"}
    assert set(more) == set(slow.metrics)


def test_gradients_agree_with_differences_of_float64(state, batch, noise):
    reference, critic = Reference(state, batch, noise), state.critic.tree()
    y, size = jnp.asarray(reference.y(), jnp.float32), reference.size()
    by_critic, _ = gradient(critic_loss)(critic, batch, y)
    by_policy, _ = gradient(rebrac.policy_loss)(
        state.delayed.policy.tree(), critic, batch, CONFIG, BOX
    )
    random = np.random.default_rng(2)
    for layer in range(4):
        for part, name in enumerate(("w", "b")):
            array = reference.policy[layer][part]
            index = tuple(random.integers(n) for n in array.shape)
            found = getattr(by_policy.layers[layer], name)[index]
            expected = slope(lambda: reference.policy_loss(size), array, index)
            assert float(found) == pytest.approx(expected, rel=1e-3, abs=1e-5)
            array = reference.critic[1][layer][part]
            index = tuple(random.integers(n) for n in array.shape)
            found = getattr(by_critic.layers[layer], name)[(1, *index)]
            expected = slope(reference.critic_loss, array, index)
            assert float(found) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    for layer in range(3):
        for part, parts in ((2, by_critic.scales), (3, by_critic.biases)):
            array = reference.critic[0][layer][part]
            expected = slope(reference.critic_loss, array, (5,))
            found = float(parts[layer][0, 5])
            assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_the_policy_and_all_targets_move_every_second_time(state, batch, noise):
    update = jax.jit(lambda state: rebrac.update_with(state, batch, noise, CONFIG, BOX))
    # The slow policy follows what the policy was before.
    first = check_every_second(
        update, state, 0.1, lambda before, after: before.policy.params
    )
    slow, after = state.delayed, first.delayed
    # Adam's first step is the rate, against the gradient's sign; the policy's is by
    # the critics as they are after theirs.
    reference = Reference(state._replace(critic=first.critic), batch, noise)
    size = reference.size()
    moved = after.policy.tree().layers[3].b - slow.policy.tree().layers[3].b
    for i in range(ACTIONS):
        gradient = slope(
            lambda: reference.policy_loss(size), reference.policy[3][1], (i,)
        )
        assert float(moved[i]) == pytest.approx(-2e-3 * np.sign(gradient), rel=1e-2)


def test_the_start_is_the_papers(starts):
    state = starts[0]
    net, critic = state.delayed.policy.tree(), state.critic.tree()
    hidden = [(16, 16)] * 2
    assert [d.w.shape for d in net.layers] == [(4, 16), *hidden, (16, 3)]
    assert [d.w.shape[1:] for d in critic.layers] == [(7, 16), *hidden, (16, 1)]
    assert all((scale == 1).all() for scale in critic.scales)
    assert not any(bias.any() for bias in critic.biases)
    for layers, last in ((net.layers, 1e-3), (critic.layers, 3e-3)):
        for layer in layers[:-1]:
            bound = layer.w.shape[-2] ** -0.5
            assert 0.8 * bound < float(jnp.abs(layer.w).max()) <= bound
            np.testing.assert_allclose(layer.b, 0.1)
        for part in (layers[-1].w, layers[-1].b):
            assert 0 < float(jnp.abs(part).max()) <= last
    assert not np.allclose(critic.layers[1].w[0], critic.layers[1].w[1])
    slow = state.delayed
    for a, b in ((slow.target, state.critic), (slow.target_policy, slow.policy)):
        for x, y in zip(*map(jax.tree.leaves, (a, b))):
            assert np.array_equal(x, y)


# Problems with known answers


SMALL = rebrac.Options(
    width=32,
    critic_width=32,
    policy_rate=2e-3,
    critic_rate=3e-3,
    target_rate=0.1,
    discount=0.8,
    target_noise=0.0,
)


@jax.jit
def learn(
    config: rebrac.Options,
    states: jax.Array,
    actions: jax.Array,
    rewards: jax.Array,
    terminals: jax.Array,
    then: jax.Array,
) -> State:
    """From transitions that stay where they are, all of them in every batch."""
    box = Box(-jnp.ones(1), jnp.ones(1))
    start = rebrac.start(jax.random.key(0), Given(1, 1, box), config)
    trajectory = jnp.zeros(len(states), jnp.int32)
    batch = Batch(states, actions, rewards, states, terminals, trajectory, then)

    def one(state, key):
        state, _ = rebrac.update(state, batch, key, config, box)
        return state, None

    return jax.lax.scan(one, start, jax.random.split(jax.random.key(1), 2000))[0]


@pytest.mark.learns
@pytest.mark.parametrize(("best", "penalty"), [(-0.5, 0.2), (0.5, 0.2), (0.5, 2.0)])
def test_it_weighs_value_against_distance(best, penalty):
    """Logged actions are uniform around 0, and worth 2 - 4 (a - best)^2.

    The gradient 2 beta_1 a + 8 (a - best) / Q(a) vanishes at the answer.
    """
    actions = jnp.linspace(-1, 1, 256, dtype=jnp.float32)[:, None]
    zero, rewards = jnp.zeros((256, 1)), 2 - 4 * (actions[:, 0] - best) ** 2
    config = replace(SMALL, policy_penalty=penalty)
    state = learn(config, zero, actions, rewards, jnp.ones(256), actions)
    net, box = state.delayed.policy.tree(), Box(-jnp.ones(1), jnp.ones(1))
    found = act(net, box, zero[:1], jax.random.split(jax.random.key(0), 1))
    expected = best
    for _ in range(50):
        q = 2 - 4 * (expected - best) ** 2
        expected = best / (1 + penalty * q / 4)
    assert float(found[0, 0]) == pytest.approx(expected, abs=0.07)


@pytest.mark.learns
def test_values_add_up_over_time_less_the_penalty():
    """1 for ever is worth 1 / (1 - gamma), and a terminal has no future."""
    states = jnp.asarray(np.where(np.arange(256)[:, None] < 128, 1, -1), jnp.float32)
    actions = jnp.full((256, 1), 0.5, jnp.float32)
    ends = (states[:, 0] < 0).astype(jnp.float32)
    where = jnp.array([[1.0], [-1.0]]), jnp.full((2, 1), 0.5)
    for then, far in ((0.5, 0.0), (-0.5, 1.0)):
        # Next actions that are not those in the batch: the policy stays at 0.5.
        next_actions = jnp.full((256, 1), then, jnp.float32)
        config = replace(SMALL, policy_penalty=1.0, value_penalty=0.5)
        state = learn(config, states, actions, jnp.ones(256), ends, next_actions)
        q = values_of(state.critic.tree(), *where)
        forever = (1 - 0.8 * 0.5 * far) / (1 - 0.8)
        np.testing.assert_allclose(q, [[forever, 1]] * 2, atol=0.25)


@pytest.mark.slow
def test_it_passes_the_fork():
    """The average of its two demonstrators drives into the obstacle."""
    share = share_at_goal(
        "rebrac",
        steps=3000,
        width=64,
        critic_width=64,
        batch_size=128,
        policy_penalty=0.4,
        value_penalty=0.1,
        target_rate=0.02,
    )
    assert share >= 0.8
