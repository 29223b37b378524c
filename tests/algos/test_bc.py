"""Cloning against float64 computations, and on a problem with a known answer."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import double, log_prob, mlp, slope

from manyhands import train
from manyhands.algos import bc
from manyhands.algos.algorithm import Given

CONFIG = jax.tree.map(jnp.float32, bc.Options(width=8, policy_rate=1e-2))
NOISE = np.random.default_rng(1).normal(size=(8, 2))


@pytest.fixture(scope="module")
def state(box) -> bc.State:
    return bc.start(jax.random.key(0), Given(3, 2, box), CONFIG)


def terms(net, batch, box, noise) -> tuple[float, float]:
    """The likelihood of the logged actions, the mean log-probability of sampled."""
    outputs = mlp(net, batch.observations)
    mean, log_std = outputs[:, :2], -5 + 2.5 * (1 + np.tanh(outputs[:, 2:]))
    center, scale = double(box.center), double(box.scale)
    likelihood = log_prob(batch.actions, mean, log_std, center, scale).mean()
    sampled = center + scale * np.tanh(mean + np.exp(log_std) * noise)
    return likelihood, log_prob(sampled, mean, log_std, center, scale).mean()


@pytest.mark.parametrize("alpha", [0.7, -0.2])
def test_loss(state, batch, box, alpha):
    """Below 0 alpha does not count, and may only rise."""
    policy = bc.Policy(state.policy.tree().net, jnp.float32(alpha))
    loss = lambda p: bc.policy_loss(p, batch, jnp.asarray(NOISE, jnp.float32), box)  # noqa: E731
    (value, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(policy)
    likelihood, negative_entropy = terms(policy.net, batch, box, NOISE)
    surplus = -negative_entropy + 2
    if alpha < 0:
        surplus = min(surplus, 0)
    expected = max(alpha, 0) * negative_entropy - likelihood + alpha * surplus
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    np.testing.assert_allclose(metrics["actor/log_prob"], likelihood, rtol=1e-4)
    np.testing.assert_allclose(gradient.alpha, surplus, rtol=1e-4, atol=1e-5)


def test_gradient(state, batch, box):
    policy = bc.Policy(state.policy.tree().net, jnp.float32(0.7))
    noise = jnp.asarray(NOISE, jnp.float32)
    gradient, _ = jax.grad(bc.policy_loss, has_aux=True)(policy, batch, noise, box)
    w = double(policy.net.layers[1].w)

    def loss(array):
        layers = list(policy.net.layers)
        layers[1] = SimpleNamespace(w=array, b=layers[1].b)
        net = SimpleNamespace(layers=layers)
        likelihood, negative_entropy = terms(net, batch, box, NOISE)
        return 0.7 * negative_entropy - likelihood

    for index in ((0, 0), (3, 5), (7, 2)):
        expected = slope(loss, w, index)
        found = gradient.net.layers[1].w[index]
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_one_gaussian_aims_between_two_arms(two_arms):
    policy = train(
        two_arms, "bc", steps=600, batch_size=64, width=16, policy_rate=3e-3, episodes=0
    )
    assert abs(policy.act([1.0])[0]) < 0.15  # where nobody has been
