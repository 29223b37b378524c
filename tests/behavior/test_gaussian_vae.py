"""The single Gaussian and the VAE: their formulas in float64, and known answers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from manyhands import Trajectories, fit, make
from manyhands.behavior import gaussian, vae
from manyhands.behavior.methods import METHODS
from manyhands.behavior.options import Options
from manyhands.types import Batch, Box

STATES, ACTIONS, WIDTH, ROWS = 3, 2, 8, 50
LOW, HIGH = np.array([-1.0, -2.0]), np.array([1.0, 3.0])


def model(method: str, states: int, actions: int, size: float = 1.0):
    """A model whose parameters are all drawn at random, biases too."""
    found = METHODS[method]
    state = found.init(
        jax.random.key(0), states, actions, 1, 1, Options(policy_width=WIDTH)
    )
    random = np.random.default_rng(0)

    def draw(leaf):
        scale = size / np.sqrt(max(1, leaf.shape[0]) if leaf.ndim > 1 else 4)
        return jnp.asarray(random.normal(size=leaf.shape) * scale, jnp.float32)

    return jax.tree.map(draw, found.model(state))


def box_of(low, high) -> Box:
    return Box(jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32))


def batch_of(observations, actions) -> Batch:
    rows = len(observations)
    return Batch(
        observations=jnp.asarray(observations, jnp.float32),
        actions=jnp.asarray(actions, jnp.float32),
        rewards=jnp.zeros(rows),
        next_observations=jnp.asarray(observations, jnp.float32),
        terminals=jnp.zeros(rows),
        trajectory=jnp.zeros(rows, jnp.int32),
    )


@pytest.fixture(scope="module")
def batch() -> Batch:
    random = np.random.default_rng(1)
    actions = random.uniform(LOW + 0.1, HIGH - 0.1, size=(ROWS, ACTIONS))
    return batch_of(random.normal(size=(ROWS, STATES)), actions)


# The same in float64


def double(x) -> np.ndarray:
    return np.asarray(x, np.float64)


def dense(layer, x) -> np.ndarray:
    return x @ double(layer.w) + double(layer.b)


def relu_layers(x, *layers) -> np.ndarray:
    for layer in layers:
        x = np.maximum(dense(layer, x), 0)
    return x


def tanh_normal(outputs, actions, low, high) -> np.ndarray:
    """log p(a) of a = center + scale tanh(u), u ~ N(mean, exp(log_std))."""
    mean, log_std = np.split(outputs, 2, axis=-1)
    scale = (high - low) / 2
    z = (double(actions) - (high + low) / 2) / scale
    normal = stats.norm.logpdf(np.arctanh(z), mean, np.exp(np.clip(log_std, -10, 10)))
    return np.sum(normal - np.log1p(-(z**2)) - np.log(scale), axis=-1)


def gaussian64(m, observations, actions) -> np.ndarray:
    h = relu_layers(double(observations), m.trunk.first, m.trunk.second)
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-3)
    h = h * double(m.trunk.scale) + double(m.trunk.bias)
    outputs = dense(m.head.last, relu_layers(h, m.head.first))
    return tanh_normal(outputs, actions, LOW, HIGH)


def network(net, *parts) -> np.ndarray:
    joint = np.concatenate([double(x) for x in parts], axis=-1)
    return dense(net.last, relu_layers(joint, net.first, net.second))


# Gaussian


def test_loss_of_the_gaussian(batch):
    m = model("gaussian", STATES, ACTIONS)
    loss, metrics = gaussian.loss(m, batch, box_of(LOW, HIGH))
    expected = gaussian64(m, batch.observations, batch.actions).mean()
    assert float(loss) == pytest.approx(-expected, rel=1e-4)
    assert float(metrics["behavior/log_prob"]) == pytest.approx(expected, rel=1e-4)


def test_log_probs_of_the_gaussian_also_at_the_bounds(batch):
    m = model("gaussian", STATES, ACTIONS)
    found = gaussian.log_probs(m, box_of(LOW, HIGH), batch.observations, batch.actions)
    assert found.shape == (ROWS, 1)
    expected = gaussian64(m, batch.observations, batch.actions)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-3, atol=1e-3)
    for bound in (LOW, HIGH):
        at = jnp.broadcast_to(jnp.asarray(bound, jnp.float32), (ROWS, ACTIONS))
        log_probs = gaussian.log_probs(m, box_of(LOW, HIGH), batch.observations, at)
        margin = 1e-3 * (HIGH - LOW) / 2
        inside = np.clip(bound, LOW + margin, HIGH - margin)
        expected = gaussian64(
            m, batch.observations, np.broadcast_to(inside, (ROWS, ACTIONS))
        )
        np.testing.assert_allclose(log_probs[:, 0], expected, rtol=1e-2)


# VAE


def test_evidence_lower_bound(batch):
    m = model("vae", STATES, ACTIONS)
    noise = np.random.default_rng(2).normal(size=(ROWS, 2 * ACTIONS))
    loss, metrics = vae.loss(
        m, batch, jnp.asarray(noise, jnp.float32), box_of(LOW, HIGH)
    )
    mean, log_std = np.split(
        network(m.encoder, batch.observations, batch.actions), 2, axis=-1
    )
    std = np.exp(np.clip(log_std, -4, 15))
    latents = mean + std * noise
    outputs = network(m.decoder, batch.observations, latents)
    fit_term = tanh_normal(outputs, batch.actions, LOW, HIGH).mean()
    # KL(N(mean, std) || N(0, 1)) in closed form
    kl = np.sum((mean**2 + std**2 - 1) / 2 - np.log(std), axis=-1).mean()
    assert float(metrics["behavior/kl"]) == pytest.approx(kl, rel=1e-4)
    assert float(metrics["behavior/log_prob"]) == pytest.approx(fit_term - kl, rel=1e-4)
    assert float(loss) == pytest.approx(kl - fit_term, rel=1e-4)


ONE_LOW, ONE_HIGH = np.array([-1.0]), np.array([1.0])


def marginal(m, observation, action) -> float:
    """log of the integral of p(a|s, z) N(z; 0, 1) over both latents, on a grid."""
    axis = np.linspace(-7, 7, 141)
    latents = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    states = np.broadcast_to(double(observation), (len(latents), len(observation)))
    given = tanh_normal(network(m.decoder, states, latents), action, ONE_LOW, ONE_HIGH)
    prior = stats.norm.logpdf(latents).sum(axis=-1)
    return float(logsumexp(given + prior) + 2 * np.log(axis[1] - axis[0]))


@pytest.fixture(scope="module")
def tiny():
    """One action, two latents, some rows, and their exact log-probabilities."""
    m = model("vae", 2, 1, size=0.8)
    # An encoder that stays close to the prior: a poor one would need far more draws.
    m = eqx.tree_at(
        lambda m: (m.encoder.last.w, m.encoder.last.b),
        m,
        replace_fn=lambda leaf: 0.3 * leaf,
    )
    random = np.random.default_rng(3)
    observations = random.normal(size=(12, 2)).astype(np.float32)
    actions = random.uniform(-0.9, 0.9, size=(12, 1)).astype(np.float32)
    exact = [marginal(m, s, a) for s, a in zip(observations, actions)]
    return m, jnp.asarray(observations), jnp.asarray(actions), np.array(exact)


def test_the_grid_finds_a_density_that_integrates_to_one(tiny):
    m, observations, _, _ = tiny
    u = np.linspace(-5, 5, 101)  # even steps before the tanh: da = (1 - a^2) du
    density = [np.exp(marginal(m, observations[0], np.tanh([x]))) for x in u]
    total = np.sum(density * (1 - np.tanh(u) ** 2)) * (u[1] - u[0])
    assert total == pytest.approx(1, abs=0.01)


def test_log_probs_of_the_vae_approach_the_integral_from_below(tiny, monkeypatch):
    m, observations, actions, exact = tiny
    box = box_of(ONE_LOW, ONE_HIGH)

    def errors(repeats: int) -> np.ndarray:
        """[row, repeat] how far the log-probabilities are from the integral."""
        found = jax.vmap(
            lambda key: vae.log_probs(m, box, observations, actions, key)[:, 0]
        )(jax.random.split(jax.random.key(0), repeats))
        return np.asarray(found).T - exact[:, None]

    reported = errors(100)
    assert np.abs(reported).mean() < 0.15
    # Never above it by more than the noise of a mean of a hundred.
    noise = reported.std(axis=1) / np.sqrt(100)
    assert (reported.mean(axis=1) < 4 * noise).all()
    monkeypatch.setattr(vae, "SAMPLES", 10_000)
    assert np.abs(errors(1)).max() < 0.03
    # One draw makes the evidence lower bound: clearly below.
    monkeypatch.setattr(vae, "SAMPLES", 1)
    assert (errors(1000).mean(axis=1) < -0.1).all()


# Problems with known answers


def heldout(fitted) -> float:
    return fitted.summary["behavior"]["heldout_log_prob"]


@pytest.mark.learns
def test_gaussian_finds_the_log_probabilities_of_one_gaussian():
    data = make("fork-1", 6000)
    fitted = fit(data, "gaussian", k=1, steps=2000, policy_width=64)
    _, held = data.split_within(0.1, seed=0)  # as `prepare` does
    true = held.log_probs.mean()
    assert heldout(fitted) == pytest.approx(true, abs=0.15)
    assert fitted.summary["behavior"]["calibration"]["bias"] == pytest.approx(
        0, abs=0.15
    )


def two_ways(rows: int = 4000) -> Trajectories:
    """Actions of about +-0.6, whatever the state: what one Gaussian cannot say."""
    random = np.random.default_rng(0)
    actions = random.choice([-0.6, 0.6], size=(rows, 1))
    return Trajectories.from_arrays(
        observations=random.normal(size=(rows, 2)),
        actions=actions + 0.05 * random.normal(size=(rows, 1)),
        rewards=np.zeros(rows),
        terminals=np.zeros(rows),
        trajectory=np.arange(rows) // 20,
    )


@pytest.mark.learns
def test_vae_finds_two_ways_where_the_gaussian_finds_none():
    data = two_ways()
    # On so little data the default decay would leave nothing of the latent.
    options = dict(k=1, steps=2000, policy_width=64, policy_rate=1e-3, weight_decay=0.0)
    one, two = (heldout(fit(data, m, **options)) for m in ("gaussian", "vae"))
    # E log of (N(a; -0.6, 0.05) + N(a; 0.6, 0.05)) / 2, the two being far apart
    true = -np.log(2) - np.log(0.05 * np.sqrt(2 * np.pi * np.e))
    assert two > one + 1.0
    assert true - 0.4 < two < true + 0.1
