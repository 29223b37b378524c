"""The VAE of BCQ and PLAS: its loss in float64, and what it must find."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands import Trajectories, train
from manyhands.algos import vae_bc
from manyhands.algos.algorithm import Given
from manyhands.types import Batch, Box

STATES, ACTIONS, WIDTH, ROWS = 3, 2, 8, 20
LATENTS = 2 * ACTIONS
LOW, HIGH = np.array([-1.0, -2.0]), np.array([1.0, 3.0])
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))
KL_WEIGHT = 0.3


@pytest.fixture(scope="module")
def model() -> vae_bc.Model:
    given = Given(STATES, ACTIONS, BOX)
    found = jax.jit(lambda: vae_bc.init(jax.random.key(0), given, WIDTH))()
    random = np.random.default_rng(0)
    found = jax.tree.map(
        lambda x: x + jnp.asarray(0.4 * random.normal(size=x.shape), jnp.float32), found
    )
    # Some deviations below the lowest, so that the clip is seen.
    return eqx.tree_at(
        lambda m: m.encoder.layers[-1].b, found, replace_fn=lambda b: b - 2
    )


@pytest.fixture(scope="module")
def batch() -> Batch:
    random = np.random.default_rng(1)
    s = jnp.asarray(random.normal(size=(ROWS, STATES)), jnp.float32)
    a = jnp.asarray(random.uniform(LOW, HIGH, (ROWS, ACTIONS)), jnp.float32)
    zero = jnp.zeros(ROWS)
    return Batch(s, a, zero, s, zero, zero.astype(int))


NOISE = np.random.default_rng(2).normal(size=(ROWS, LATENTS))


# The same in NumPy, float64, written from the equations


def layers(net) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.array(d.w, np.float64), np.array(d.b, np.float64)) for d in net.layers]


def forward(net, *parts):
    x = np.hstack(parts)
    for w, b in net[:-1]:
        x = np.maximum(x @ w + b, 0)
    return x @ net[-1][0] + net[-1][1]


def decode(decoder, s, z):
    return (HIGH + LOW) / 2 + (HIGH - LOW) / 2 * np.tanh(forward(decoder, s, z))


def terms(encoder, decoder, batch: Batch) -> tuple[float, float]:
    s, a = np.asarray(batch.observations, float), np.asarray(batch.actions, float)
    out = forward(encoder, s, a)
    assert 0 < (out[:, LATENTS:] < -4).mean() < 1
    mean, std = out[:, :LATENTS], np.exp(np.clip(out[:, LATENTS:], -4, 15))
    off = (decode(decoder, s, mean + std * NOISE) - a) / ((HIGH - LOW) / 2)
    kl = -0.5 * np.mean(1 + np.log(std**2) - mean**2 - std**2)
    return float(np.mean(off**2)), float(kl)


def test_loss_and_gradients_agree_with_float64(model, batch):
    noise = jnp.asarray(NOISE, jnp.float32)
    with_gradient = jax.jit(jax.value_and_grad(vae_bc.vae_loss, has_aux=True))
    (loss, metrics), gradient = with_gradient(model, batch, noise, KL_WEIGHT, BOX)
    encoder, decoder = layers(model.encoder), layers(model.decoder)

    def expected() -> float:
        error, kl = terms(encoder, decoder, batch)
        return error + KL_WEIGHT * kl

    error, kl = terms(encoder, decoder, batch)
    assert float(metrics["behavior/error"]) == pytest.approx(error, rel=1e-4)
    assert float(metrics["behavior/kl"]) == pytest.approx(kl, rel=1e-4)
    assert float(loss) == pytest.approx(expected(), rel=1e-4)
    random = np.random.default_rng(3)
    for net, found in ((encoder, gradient.encoder), (decoder, gradient.decoder)):
        for (w, _), part in zip(net, found.layers):
            index = tuple(random.integers(n) for n in w.shape)
            before, ends = w[index], []
            for step in (1e-6, -1e-6):
                w[index] = before + step
                ends.append(expected())
            w[index] = before
            slope = (ends[0] - ends[1]) / 2e-6
            assert float(part.w[index]) == pytest.approx(slope, rel=2e-3, abs=1e-5)


def test_it_acts_by_latents_that_are_not_far_out(model, batch):
    keys = jax.random.split(jax.random.key(0), ROWS)
    noise = [np.asarray(jax.random.normal(key, (LATENTS,)), float) for key in keys]
    z = np.clip(noise, -0.5, 0.5)
    assert (np.abs(noise) > 0.5).any()
    found = jax.jit(vae_bc.act)(model.decoder, BOX, batch.observations, keys)
    s = np.asarray(batch.observations, float)
    expected = decode(layers(model.decoder), s, z)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# Problems with known answers


def logged(actions: np.ndarray) -> Trajectories:
    """These, whatever the state; another action is about 0."""
    random = np.random.default_rng(0)
    rows = len(actions)
    return Trajectories.from_arrays(
        observations=random.normal(size=(rows, 4)),
        actions=np.stack([actions, 0.1 * random.normal(size=rows)], axis=1),
        rewards=np.zeros(rows),
        next_observations=np.zeros((rows, 4)),
        terminals=np.zeros(rows),
        trajectory=np.arange(rows) // 20,
    )


def sampled(data: Trajectories) -> np.ndarray:
    policy = train(data, "vae_bc", steps=2000, width=64, episodes=0)
    return policy.act(data.observations[:1000])


@pytest.mark.learns
def test_two_ways_and_one_that_is_only_shaky():
    """A weight of 1/2 is a decoder 0.35 wide: finer differences are all noise to it."""
    random = np.random.default_rng(1)
    noise = random.normal(size=10_000)
    narrow = sampled(logged(0.2 + 0.1 * noise))
    np.testing.assert_allclose(narrow, np.tile([0.2, 0], (1000, 1)), atol=0.08)
    ways = random.choice([-0.6, 0.6], size=10_000)
    wide = sampled(logged(ways + 0.05 * noise))[:, 0]
    near = np.abs(np.abs(wide) - 0.6) < 0.15
    assert near.mean() > 0.6
    assert 0.25 < (wide > 0).mean() < 0.75
