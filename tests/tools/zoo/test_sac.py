"""SAC against a float64 computation of its own, and on problems with known answers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands import fleet
from manyhands.nn.bundle import Bundle
from manyhands.nn.networks import MLP
from manyhands.nn.optimizer import Trained
from manyhands.types import Batch
from zoo import sac

STATES, ACTIONS, WIDTH, ROWS = 4, 3, 16, 12
CONFIG = sac.Config(jnp.float32(3e-4), jnp.float32(0.97), jnp.float32(0.01))
MASK = np.array([1.0, 1.0, 0.0], np.float32)  # the third action is padding
FITTED = sac.Fitted(jnp.asarray(MASK))


@pytest.fixture(scope="module")
def state() -> sac.State:
    state = sac.init(jax.random.key(3), STATES, ACTIONS, WIDTH)
    actor = eqx.tree_at(lambda a: a.log_alpha, state.actor.tree(), jnp.float32(-0.7))
    # Last layers that start at nearly nothing would leave nothing to compare.
    actor = jax.tree.map(
        lambda x: x + 0.1 * jnp.sin(jnp.arange(x.size)).reshape(x.shape), actor
    )
    bundle = type(state.actor).of(actor)
    return state._replace(actor=bundle)


@pytest.fixture(scope="module")
def batch() -> Batch:
    random = np.random.default_rng(0)
    return Batch(
        observations=jnp.asarray(random.normal(size=(ROWS, STATES)), jnp.float32),
        actions=jnp.asarray(random.uniform(-1, 1, (ROWS, ACTIONS)) * MASK, jnp.float32),
        rewards=jnp.asarray(random.normal(size=ROWS), jnp.float32),
        next_observations=jnp.asarray(random.normal(size=(ROWS, STATES)), jnp.float32),
        terminals=jnp.asarray(np.arange(ROWS) % 4 == 0, jnp.float32),
        trajectory=jnp.zeros(ROWS, jnp.int32),
    )


@pytest.fixture(scope="module")
def noise() -> jax.Array:
    random = np.random.default_rng(1)
    return jnp.asarray(random.normal(size=(2, ROWS, ACTIONS)), jnp.float32)


# The same in NumPy, float64, written from the equations


class Reference:
    def __init__(self, state: sac.State, batch: Batch, noise: jax.Array):
        self.batch = Batch(*(np.asarray(x, np.float64) for x in batch))
        self.noise = np.asarray(noise, np.float64)
        actor = state.actor.tree()
        self.actor, self.log_alpha = layers(actor.net), float(actor.log_alpha)
        self.critic, self.target = (
            [layers(jax.tree.map(lambda x, j=j: x[j], b.tree())) for j in range(2)]
            for b in (state.critic, state.target)
        )

    def sample(self, s, noise):
        out = forward(self.actor, s)
        mean, log_std = out[:, :ACTIONS], np.clip(out[:, ACTIONS:], -20, 2)
        u = mean + np.exp(log_std) * noise
        a = np.tanh(u)
        normal = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
        real = MASK > 0
        return a * MASK, (normal - np.log(1 - a**2))[:, real].sum(axis=1)

    def q(self, critics, s, a):
        return np.stack([forward(c, np.hstack([s, a]))[:, 0] for c in critics])

    def y(self):
        b = self.batch
        a, log_prob = self.sample(b.next_observations, self.noise[0])
        q = self.q(self.target, b.next_observations, a).min(axis=0)
        soft = q - np.exp(self.log_alpha) * log_prob
        return b.rewards + 0.97 * (1 - b.terminals) * soft

    def critic_loss(self):
        b = self.batch
        q = self.q(self.critic, b.observations, b.actions)
        return sum(np.mean((q[j] - self.y()) ** 2) for j in range(2))

    def policy_loss(self):
        b = self.batch
        a, log_prob = self.sample(b.observations, self.noise[1])
        q = self.q(self.critic, b.observations, a).min(axis=0)
        return np.mean(np.exp(self.log_alpha) * log_prob - q)

    def alpha_gradient(self):
        _, log_prob = self.sample(self.batch.observations, self.noise[1])
        return -np.mean(log_prob - 2)


def layers(net: MLP) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.array(d.w, np.float64), np.array(d.b, np.float64)) for d in net.layers]


def forward(net, x):
    for w, b in net[:-1]:
        x = np.maximum(x @ w + b, 0)
    return x @ net[-1][0] + net[-1][1]


def slope(loss, array: np.ndarray, index) -> float:
    """Central difference."""
    before, ends = array[index], []
    for step in (1e-6, -1e-6):
        array[index] = before + step
        ends.append(loss())
    array[index] = before
    return (ends[0] - ends[1]) / 2e-6


def test_losses_agree_with_float64(state, batch, noise):
    reference = Reference(state, batch, noise)
    actor, critic = state.actor.tree(), state.critic.tree()
    y = sac.critic_target(actor, state.target.tree(), batch, noise[0], CONFIG, FITTED)
    np.testing.assert_allclose(y, reference.y(), rtol=2e-5, atol=2e-5)
    loss, metrics = sac.critic_loss(critic, batch, y)
    assert float(loss) == pytest.approx(reference.critic_loss(), rel=1e-5)
    loss, more = sac.actor_loss(actor, critic, batch, noise[1], FITTED)
    alpha_loss = reference.log_alpha * reference.alpha_gradient()
    assert float(loss) == pytest.approx(reference.policy_loss() + alpha_loss, rel=1e-4)
    assert float(more["actor/alpha"]) == pytest.approx(np.exp(reference.log_alpha))
    assert all(np.isfinite(v) for v in (metrics | more).values())


def test_gradients_agree_with_differences_of_float64(state, batch, noise):
    reference = Reference(state, batch, noise)
    actor, critic = state.actor.tree(), state.critic.tree()
    y = jnp.asarray(reference.y(), jnp.float32)
    by_critic = jax.grad(sac.critic_loss, has_aux=True)(critic, batch, y)[0]
    by_actor = jax.grad(sac.actor_loss, has_aux=True)(
        actor, critic, batch, noise[1], FITTED
    )[0]
    random = np.random.default_rng(2)
    for layer in range(3):
        for part, name in enumerate(("w", "b")):
            array = reference.actor[layer][part]
            index = tuple(random.integers(n) for n in array.shape)
            found = getattr(by_actor.net.layers[layer], name)[index]
            expected = slope(reference.policy_loss, array, index)
            assert float(found) == pytest.approx(expected, rel=1e-3, abs=1e-5)
            for member in range(2):
                array = reference.critic[member][layer][part]
                index = tuple(random.integers(n) for n in array.shape)
                found = getattr(by_critic.layers[layer], name)[(member, *index)]
                expected = slope(reference.critic_loss, array, index)
                assert float(found) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert float(by_actor.log_alpha) == pytest.approx(
        reference.alpha_gradient(), rel=1e-5
    )


def test_one_update_steps_everything_from_the_same_parameters(state, batch, noise):
    after, _ = sac.update_with(state, batch, noise, CONFIG, FITTED)
    reference = Reference(state, batch, noise)
    # Adam's first step is the rate, against the gradient's sign.
    moved = float(after.actor.tree().log_alpha) - reference.log_alpha
    assert moved == pytest.approx(-3e-4 * np.sign(reference.alpha_gradient()), rel=1e-3)
    for layer in range(3):
        found = (
            after.actor.tree().net.layers[layer].b[:2]
            - state.actor.tree().net.layers[layer].b[:2]
        )
        for i in range(2):
            gradient = slope(reference.policy_loss, reference.actor[layer][1], (i,))
            if abs(gradient) > 1e-4:
                assert float(found[i]) == pytest.approx(
                    -3e-4 * np.sign(gradient), rel=1e-2
                )
    # Targets follow the critics as they are after the step.
    for old, new, critic in zip(
        *map(jax.tree.leaves, (state.target, after.target, after.critic.params))
    ):
        np.testing.assert_allclose(new, old + 0.01 * (critic - old), atol=1e-6)


def test_padding_changes_nothing(state, batch, noise):
    """A task with two actions, alone and padded to three, takes the same step."""
    after, metrics = sac.update_with(state, batch, noise, CONFIG, FITTED)
    keep = np.array([0, 1])
    outputs = np.array([0, 1, 3, 4])  # means, then deviations

    def cut_actor(actor: sac.Actor) -> sac.Actor:
        last = actor.net.layers[-1]
        small = eqx.tree_at(
            lambda d: (d.w, d.b), last, (last.w[:, outputs], last.b[outputs])
        )
        return eqx.tree_at(lambda a: a.net.layers[-1], actor, small)

    def cut_critic(critic: MLP) -> MLP:
        first = critic.layers[0]
        small = eqx.tree_at(lambda d: d.w, first, first.w[:, : STATES + 2])
        return eqx.tree_at(lambda c: c.layers[0], critic, small)

    actor = Trained.of(cut_actor(state.actor.tree()))
    critic, target = (cut_critic(b.tree()) for b in (state.critic, state.target))
    small = sac.State(actor, Trained.of(critic), Bundle.of(target))
    batch = batch._replace(actions=batch.actions[:, keep])
    alone, its = sac.update_with(
        small, batch, noise[:, :, keep], CONFIG, sac.Fitted(jnp.ones(2))
    )
    for name, value in its.items():
        assert float(value) == pytest.approx(float(metrics[name]), rel=1e-5), name
    cut = cut_actor(after.actor.tree()), cut_critic(after.critic.tree())
    found = alone.actor.tree(), alone.critic.tree()
    for a, b in zip(jax.tree.leaves(cut), jax.tree.leaves(found)):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_the_start_is_rlkits():
    state = sac.init(jax.random.key(0), 17, 6, 256)
    net, critic = state.actor.tree().net, state.critic.tree()
    assert [d.w.shape for d in net.layers] == [(17, 256), (256, 256), (256, 12)]
    assert [d.w.shape for d in critic.layers] == [
        (2, 23, 256),
        (2, 256, 256),
        (2, 256, 1),
    ]
    for hidden in (*net.layers[:2], *critic.layers[:2]):
        assert 0.95 / 16 < float(jnp.abs(hidden.w).max()) <= 1 / 16
        assert not hidden.b.any()
    for last, bound in ((net.layers[2], 1e-3), (critic.layers[2], 3e-3)):
        assert 0.9 * bound < float(jnp.abs(last.w).max()) <= bound
    assert not np.allclose(state.target.large[0], state.critic.params.large[0])
    assert not np.allclose(critic.layers[1].w[0], critic.layers[1].w[1])


# Problems with known answers


def learn(rows: np.ndarray, steps: int, discount: float) -> tuple[sac.State, dict]:
    """One agent on fixed transitions: one state number, one action."""
    config = sac.Config(*(jnp.full(1, x, jnp.float32) for x in (3e-3, discount, 0.05)))
    state = jax.vmap(lambda s: sac.init(jax.random.key(s), 1, 1, 32))(jnp.arange(1))
    zero = jnp.zeros(1, jnp.int32)
    replicas = fleet.Replicas(
        zero.astype(jnp.uint32),
        zero,
        zero + len(rows),
        config,
        sac.Fitted(jnp.ones((1, 1))),
    )
    state, metrics = fleet.advance(
        sac.update, state, replicas, fleet.Packed(jnp.asarray(rows), 1, 1), 0, steps, 64
    )
    return jax.tree.map(lambda x: x[0], state), metrics


def transitions(reward, terminal: float) -> np.ndarray:
    """state 0, a uniform action, its reward, state 0 again."""
    action = np.linspace(-1, 1, 2001, dtype=np.float32)
    zero = np.zeros_like(action)
    columns = [zero, action, reward(action), zero, zero + terminal, zero]
    return np.stack(columns, axis=1).astype(np.float32)


def test_it_finds_the_best_action_of_a_bandit():
    state, _ = learn(transitions(lambda a: -8 * (a - 0.5) ** 2, 1.0), 3000, 0.9)
    pi = sac.distribution(state.actor.tree().net, jnp.zeros((1, 1)))
    assert float(pi.mode()[0, 0]) == pytest.approx(0.5, abs=0.1)
    # A terminal has no future: Q is the reward.
    s, a = jnp.zeros((5, 1)), jnp.linspace(-0.8, 0.8, 5)[:, None]
    q = sac.values_of(state.critic.tree(), s, a).mean(axis=0)
    np.testing.assert_allclose(q, -8 * (a[:, 0] - 0.5) ** 2, atol=0.4)


def test_values_add_up_over_time():
    """A reward of 1 for ever is worth 1 / (1 - gamma); entropy soon has no price."""
    state, _ = learn(transitions(np.ones_like, 0.0), 6000, 0.9)
    assert float(jnp.exp(state.actor.tree().log_alpha)) < 0.01
    q = sac.values_of(state.critic.tree(), jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    np.testing.assert_allclose(q, 10, rtol=0.05)


def test_temperature_holds_the_entropy_at_its_target():
    """Minus one nat per action, where the reward would have it sharper."""
    state, metrics = learn(transitions(lambda a: -100 * a**2, 1.0), 4000, 0.9)
    net = state.actor.tree().net
    noise = jax.random.normal(jax.random.key(0), (4000, 1))
    _, log_prob = sac.sample(net, jnp.zeros((4000, 1)), noise, jnp.ones(1))
    assert float(log_prob.mean()) == pytest.approx(1.0, abs=0.25)
    assert np.isfinite([float(v[0]) for v in metrics.values()]).all()
