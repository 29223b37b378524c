"""BRAC against float64 computations, and on a problem with a known answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import double, kl, log_prob, mlp

from manyhands import train
from manyhands.algos import bc, brac
from manyhands.algos.algorithm import Given
from manyhands.algos.brac import Noise, critic_loss

EXACT = brac.Options(
    width=8, critic_width=8, beta=0.7, value_penalty=0.6, value_weight=1.5, warm_up=0
)
SAMPLED = brac.Options(
    width=8,
    critic_width=8,
    beta=0.7,
    divergence="sampled",
    samples=3,
    value_scale="none",
    warm_up=0,
)
random = np.random.default_rng(2)
ACTION, SAMPLES = random.normal(size=(8, 2)), random.normal(size=(3, 8, 2))
NOISE = Noise(jnp.asarray(ACTION, jnp.float32), jnp.asarray(SAMPLES, jnp.float32))


@pytest.fixture(scope="module", params=[EXACT, SAMPLED], ids=["exact", "sampled"])
def config(request) -> brac.Options:
    return jax.tree.map(jnp.float32, request.param)


@pytest.fixture(scope="module")
def given(box) -> Given:
    empty = Given(3, 2, box)
    return empty._replace(behavior=bc.init_net(jax.random.key(5), empty, 8))


@pytest.fixture(scope="module")
def state(given) -> brac.State:
    return brac.start(jax.random.key(0), given, EXACT)


class Reference:
    """Everything once more."""

    def __init__(self, state, given, config):
        self.policy, self.behavior = state.policy.tree(), given.behavior
        self.critic, self.target = state.critic.tree(), state.target.tree()
        self.config = config
        self.center, self.scale = double(given.box.center), double(given.box.scale)
        margin = 1e-3 * self.scale
        self.low = double(given.box.low) + margin
        self.high = double(given.box.high) - margin

    def distribution(self, net, states):
        outputs = mlp(net, states)
        return outputs[:, :2], -2.5 * (1 - np.tanh(outputs[:, 2:]))

    def action(self, states, noise):
        mean, log_std = self.distribution(self.policy, states)
        return self.center + self.scale * np.tanh(mean + np.exp(log_std) * noise)

    def divergence(self, states):
        pi = self.distribution(self.policy, states)
        b = self.distribution(self.behavior, states)
        if self.config.divergence == "exact":
            return kl(*pi, *b)
        box = self.center, self.scale
        terms = []
        for noise in SAMPLES:
            action = self.action(states, noise)
            clipped = np.clip(action, self.low, self.high)
            terms.append(log_prob(action, *pi, *box) - log_prob(clipped, *b, *box))
        return np.mean(terms, axis=0)

    def q(self, critic, states, actions):
        return mlp(critic, np.concatenate([states, actions], axis=1))[..., 0]

    def y(self, batch):
        states = double(batch.next_observations)
        q = self.q(self.target, states, self.action(states, ACTION)).min(axis=0)
        penalty = float(self.config.value_penalty * self.config.beta)
        future = q - penalty * self.divergence(states)
        alive = 1 - double(batch.terminals)
        return double(batch.rewards) + float(self.config.discount) * alive * future


def test_critic(state, batch, given, config):
    reference = Reference(state, given, config)
    fitted = brac.fitted(given, config)
    y = brac.critic_target(
        state.policy.tree(), state.target.tree(), batch, NOISE, config, fitted
    )
    np.testing.assert_allclose(y, reference.y(batch), rtol=2e-4, atol=1e-4)
    loss, _ = critic_loss(state.critic.tree(), batch, y)
    q = reference.q(reference.critic, batch.observations, batch.actions)
    expected = ((q - reference.y(batch)) ** 2).mean(axis=1).sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-3)


@pytest.mark.parametrize("learning", [0.0, 1.0])
def test_policy(state, batch, given, config, learning):
    reference = Reference(state, given, config)
    loss, metrics = brac.policy_loss(
        state.policy.tree(),
        state.critic.tree(),
        batch,
        NOISE,
        jnp.float32(learning),
        config,
        brac.fitted(given, config),
    )
    states = double(batch.observations)
    q = reference.q(reference.critic, states, reference.action(states, ACTION))
    q = q.min(axis=0)
    value = q.mean()
    if config.value_scale == "mean":
        value *= float(config.value_weight) / np.abs(q).mean()
    d = reference.divergence(states).mean()
    np.testing.assert_allclose(metrics["actor/divergence"], d, rtol=2e-4, atol=1e-4)
    expected = float(config.beta) * d - learning * value
    np.testing.assert_allclose(loss, expected, rtol=1e-3, atol=2e-4)


def test_one_update_warms_up_first(state, batch, given):
    """While warming up the policy's step does not look at Q."""
    fitted = brac.fitted(given, EXACT)
    after = {}
    for warm_up in (0, 10):
        for scale in (1.0, 3.0):
            params = jax.tree.map(lambda x: x * scale, state.critic.params)  # noqa: B023
            critic = state.critic._replace(params=params)
            config = jax.tree.map(
                jnp.float32, brac.Options(width=8, critic_width=8, warm_up=warm_up)
            )
            found, _ = brac.update_with(
                state._replace(critic=critic), batch, NOISE, NOISE, config, fitted
            )
            after[warm_up, scale] = np.asarray(found.policy.params.small)
    assert np.array_equal(after[10, 1.0], after[10, 3.0])
    assert not np.array_equal(after[0, 1.0], after[0, 3.0])


def test_it_finds_the_better_arm(two_arms):
    """One Gaussian is wide where two sources differ, so Q may choose."""
    policy = train(
        two_arms,
        "brac_v",
        steps=800,
        behavior_steps=600,
        warm_up=200,
        batch_size=64,
        width=16,
        behavior_width=16,
        critic_width=32,
        policy_rate=3e-3,
        critic_rate=3e-3,
        discount=0.0,
        value_weight=10.0,
        episodes=0,
    )
    assert policy.act([1.0])[0] > 0.3
