"""TD3+BC against float64 computations, and on problems with known answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import batch_of, doubles, forward, layers, members, slope
from delays import check_every_second
from fork_goals import share_at_goal

from manyhands.algos import delayed, td3_bc
from manyhands.algos.algorithm import Given
from manyhands.nn.critics import critic_loss, values_of
from manyhands.types import Batch, Box

STATES, ACTIONS, WIDTH, ROWS = 4, 3, 16, 12
LOW, HIGH = np.array([-1.0, -2.0, 0.5]), np.array([1.0, 3.0, 1.0])
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))
OPTIONS = td3_bc.Options(
    width=WIDTH,
    critic_width=WIDTH,
    alpha=1.7,
    target_noise=0.4,
    policy_rate=2e-3,
    critic_rate=1e-3,
    target_rate=0.1,
    discount=0.9,
)
CONFIG = jax.tree.map(jnp.float32, OPTIONS)


@pytest.fixture(scope="module")
def starts() -> list[td3_bc.State]:
    """By two seeds."""
    start = jax.jit(lambda key: td3_bc.start(key, Given(STATES, ACTIONS, BOX), OPTIONS))
    return [start(jax.random.key(seed)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def state(starts) -> td3_bc.State:
    """Targets apart from what they follow."""
    slow = starts[0].delayed._replace(
        target_policy=starts[1].delayed.policy.params,
        target=starts[1].critic.params,
    )
    return starts[0]._replace(delayed=slow)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return batch_of(ROWS, STATES, LOW, HIGH)


@pytest.fixture(scope="module")
def noise() -> jax.Array:
    # Large enough for some of it to meet its bound, and actions theirs.
    random = np.random.default_rng(1)
    return jnp.asarray(2 * random.normal(size=(ROWS, ACTIONS)), jnp.float32)


# The same in NumPy, float64, written from the equations


class Reference:
    def __init__(self, state: td3_bc.State, batch: Batch, noise: jax.Array):
        self.batch = doubles(batch)
        self.noise = np.asarray(noise, np.float64)
        slow = state.delayed
        self.policy = layers(slow.policy.tree())
        self.target_policy = layers(slow.target_policy.tree())
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
        return b.rewards + 0.9 * (1 - b.terminals) * q

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
        q = self.q(self.critic[0], b.observations, a)
        far = np.mean(((a - b.actions) / ((HIGH - LOW) / 2)) ** 2)
        return far - 1.7 / (size or self.size()) * q.mean()

    def size(self):
        b = self.batch
        a = self.act(self.policy, b.observations)
        return np.abs(self.q(self.critic[0], b.observations, a)).mean()


def gradient(loss):
    return jax.jit(jax.grad(loss, has_aux=True))


def test_losses_agree_with_float64(state, batch, noise):
    reference, slow = Reference(state, batch, noise), state.delayed
    y = jax.jit(td3_bc.critic_target)(
        slow.target_policy.tree(), slow.target.tree(), batch, noise, CONFIG, BOX
    )
    np.testing.assert_allclose(y, reference.y(), rtol=1e-5, atol=1e-5)
    loss, metrics = jax.jit(critic_loss)(state.critic.tree(), batch, y)
    assert float(loss) == pytest.approx(reference.critic_loss(), rel=1e-5)
    loss, more = jax.jit(td3_bc.policy_loss)(
        slow.policy.tree(), state.critic.tree(), batch, CONFIG, BOX
    )
    assert float(loss) == pytest.approx(reference.policy_loss(), rel=1e-5)
    assert set(metrics) == {"critic/loss", "critic/q"}
    assert set(more) == set(slow.metrics)


def test_gradients_agree_with_differences_of_float64(state, batch, noise):
    reference, critic = Reference(state, batch, noise), state.critic.tree()
    y, size = jnp.asarray(reference.y(), jnp.float32), reference.size()
    by_critic, _ = gradient(critic_loss)(critic, batch, y)
    by_policy, _ = gradient(td3_bc.policy_loss)(
        state.delayed.policy.tree(), critic, batch, CONFIG, BOX
    )
    random = np.random.default_rng(2)
    for layer in range(3):
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


def test_the_policy_and_all_targets_move_every_second_time(state, batch, noise):
    update = jax.jit(lambda state: td3_bc.update_with(state, batch, noise, CONFIG, BOX))
    first = check_every_second(
        update, state, 0.1, lambda before, after: after.policy.params
    )
    slow, after = state.delayed, first.delayed
    # Adam's first step is the rate, against the gradient's sign; the policy's is by
    # the critics as they are after theirs.
    reference = Reference(state._replace(critic=first.critic), batch, noise)
    size = reference.size()
    moved = after.policy.tree().layers[2].b - slow.policy.tree().layers[2].b
    for i in range(ACTIONS):
        gradient = slope(
            lambda: reference.policy_loss(size), reference.policy[2][1], (i,)
        )
        assert float(moved[i]) == pytest.approx(-2e-3 * np.sign(gradient), rel=1e-2)


def test_the_start_is_pytorchs(starts):
    state = starts[0]
    net, critic = state.delayed.policy.tree(), state.critic.tree()
    assert [d.w.shape for d in net.layers] == [(4, 16), (16, 16), (16, 3)]
    assert [d.w.shape for d in critic.layers] == [(2, 7, 16), (2, 16, 16), (2, 16, 1)]
    for layer in (*net.layers, *critic.layers):
        for part in (layer.w, layer.b):
            bound = layer.w.shape[-2] ** -0.5
            assert float(jnp.abs(part).max()) <= bound
            assert part.size < 16 or float(jnp.abs(part).max()) > 0.8 * bound
    assert not np.allclose(critic.layers[1].w[0], critic.layers[1].w[1])
    slow = state.delayed
    for a, b in ((slow.target, state.critic), (slow.target_policy, slow.policy)):
        for x, y in zip(*map(jax.tree.leaves, (a, b))):
            assert np.array_equal(x, y)


# Problems with known answers


@jax.jit
def learn(
    states: jax.Array, actions: jax.Array, rewards: jax.Array, terminals: jax.Array
) -> td3_bc.State:
    """From transitions that stay where they are, all of them in every batch."""
    config = jax.tree.map(
        jnp.float32,
        td3_bc.Options(
            width=32,
            critic_width=32,
            policy_rate=2e-3,
            critic_rate=3e-3,
            target_rate=0.1,
            discount=0.8,
        ),
    )
    box = Box(-jnp.ones(1), jnp.ones(1))
    start = td3_bc.start(jax.random.key(0), Given(1, 1, box), config)
    trajectory = jnp.zeros(len(states), jnp.int32)
    batch = Batch(states, actions, rewards, states, terminals, trajectory)

    def one(state, key):
        state, _ = td3_bc.update(state, batch, key, config, box)
        return state, None

    return jax.lax.scan(one, start, jax.random.split(jax.random.key(1), 2000))[0]


def logged() -> jax.Array:
    """Actions around -0.5 and 0.5; cloning would choose their mean, 0."""
    random = np.random.default_rng(0)
    actions = random.choice([-0.5, 0.5], (256, 1)) + random.normal(0, 0.05, (256, 1))
    return jnp.asarray(actions, jnp.float32)


@pytest.mark.parametrize("better", [-1, 1])
def test_it_chooses_the_better_of_two_arms(better):
    actions, zero = logged(), jnp.zeros((256, 1))
    rewards = (actions[:, 0] * better > 0).astype(jnp.float32)
    state = learn(zero, actions, rewards, jnp.ones(256))
    net, box = state.delayed.policy.tree(), Box(-jnp.ones(1), jnp.ones(1))
    action = delayed.act(net, box, zero[:1], jax.random.split(jax.random.key(0), 1))
    assert float(action[0, 0]) == pytest.approx(0.5 * better, abs=0.2)


def test_values_add_up_over_time():
    """1 for ever is worth 1 / (1 - gamma), and a terminal has no future."""
    states = jnp.asarray(np.where(np.arange(256)[:, None] < 128, 1, -1), jnp.float32)
    state = learn(
        states, logged(), jnp.ones(256), (states[:, 0] < 0).astype(jnp.float32)
    )
    q = values_of(state.critic.tree(), jnp.array([[1.0], [-1.0]]), jnp.zeros((2, 1)))
    np.testing.assert_allclose(q, [[5, 1]] * 2, atol=0.2)


@pytest.mark.slow
def test_it_passes_the_fork():
    """The average of its two demonstrators drives into the obstacle."""
    share = share_at_goal(
        "td3_bc",
        steps=3000,
        width=64,
        critic_width=64,
        batch_size=128,
        policy_rate=1e-3,
        critic_rate=1e-3,
        target_rate=0.02,
    )
    assert share >= 0.8
