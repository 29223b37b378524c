"""The mixture: its formulas in float64, and problems with known answers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, logsumexp

from manyhands import Trajectories, fit
from manyhands.behavior import mixture
from manyhands.behavior.options import Options
from manyhands.nn.optimizer import Trained
from manyhands.types import Batch, Box

# Compiled: a program takes less time to make than its pieces.
log_probs, sample = map(jax.jit, (mixture.log_probs, mixture.sample))
loss_of = jax.jit(jax.value_and_grad(mixture.loss, has_aux=True))
STATES, ACTIONS, WIDTH, ROWS, COMPONENTS = 3, 2, 8, 40, 5
LOW, HIGH = np.array([-1.0, -2.0]), np.array([1.0, 3.0])
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))


@pytest.fixture(scope="module")
def learnt() -> mixture.Learnt:
    """All parameters drawn at random."""
    options = Options(policy_width=WIDTH)

    def start() -> mixture.State:
        return mixture.start(jax.random.key(0), STATES, ACTIONS, 1, 1, options)

    random = np.random.default_rng(0)

    def draw(leaf):
        size = leaf.shape[0] if leaf.ndim > 1 else 4
        return jnp.asarray(random.normal(size=leaf.shape) / np.sqrt(size), jnp.float32)

    like = jax.eval_shape(lambda: start().model.tree())
    return jax.tree.map(draw, like)


@pytest.fixture(scope="module")
def batch() -> Batch:
    random = np.random.default_rng(1)
    s = jnp.asarray(random.normal(size=(ROWS, STATES)), jnp.float32)
    a = random.uniform(LOW + 0.1, HIGH - 0.1, size=(ROWS, ACTIONS))
    zeros = jnp.zeros(ROWS)
    return Batch(
        s, jnp.asarray(a, jnp.float32), zeros, s, zeros, jnp.zeros(ROWS, jnp.int32)
    )


@pytest.fixture(scope="module")
def noise() -> mixture.Noise:
    random = np.random.default_rng(2)
    return mixture.Noise(
        jnp.asarray(random.gumbel(size=(ROWS, COMPONENTS, ACTIONS)), jnp.float32),
        jnp.asarray(random.normal(size=(ROWS, ACTIONS)), jnp.float32),
    )


# The same in float64


class Reference:
    def __init__(self, learnt: mixture.Learnt):
        self.layers = [
            [np.array(x, np.float64) for x in (d.w, d.b)] for d in learnt.b.net.layers
        ]
        self.alpha = np.exp(float(learnt.log_alpha))

    def parts(self, s):
        x = np.asarray(s, np.float64)
        for w, b in self.layers[:-1]:
            x = np.maximum(x @ w + b, 0)
        x = x @ self.layers[-1][0] + self.layers[-1][1]
        logits, mean, raw = x.reshape(-1, 3, COMPONENTS, ACTIONS).transpose(1, 0, 2, 3)
        return log_softmax(logits, axis=1), mean, np.exp(3.5 * np.tanh(raw) - 1.5)

    def log_prob(self, s, a):
        log_w, mean, std = self.parts(s)
        scale = (HIGH - LOW) / 2
        z = (np.asarray(a, np.float64) - (HIGH + LOW) / 2) / scale
        normal = stats.norm.logpdf(np.arctanh(z)[:, None], mean, std)
        by_dimension = logsumexp(log_w + normal, axis=1) - np.log((1 - z**2) * scale)
        return by_dimension.sum(axis=-1)

    def sample(self, s, noise):
        log_w, mean, std = self.parts(s)
        k = np.argmax(log_w + np.asarray(noise.choice), axis=1)
        rows, columns = np.arange(len(k))[:, None], np.arange(ACTIONS)
        u = mean[rows, k, columns] + std[rows, k, columns] * np.asarray(noise.normal)
        margin = 1e-3 * (HIGH - LOW) / 2
        a = (HIGH + LOW) / 2 + (HIGH - LOW) / 2 * np.tanh(u)
        return np.clip(a, LOW + margin, HIGH - margin)

    def fitting_loss(self, batch, noise):
        s = batch.observations
        negative_entropy = self.log_prob(s, self.sample(s, noise)).mean()
        return self.alpha * negative_entropy - self.log_prob(s, batch.actions).mean()

    def alpha_loss(self, batch, noise):
        s = batch.observations
        entropy = -self.log_prob(s, self.sample(s, noise)).mean()
        floor = np.log((HIGH - LOW) / 2).sum() - ACTIONS
        return self.alpha * (entropy - floor)


def test_log_probabilities(learnt, batch):
    expected = Reference(learnt).log_prob(batch.observations, batch.actions)
    found = log_probs(learnt.b, BOX, batch.observations, batch.actions)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-4, atol=1e-4)
    # At a bound: as a little away from it.
    margin = 1e-3 * (HIGH - LOW) / 2
    at, off = (np.broadcast_to(x, (ROWS, ACTIONS)) for x in (HIGH, HIGH - margin))
    found = log_probs(learnt.b, BOX, batch.observations, jnp.float32(at))
    expected = Reference(learnt).log_prob(batch.observations, off)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-2)


def test_losses_and_their_gradients(learnt, batch, noise):
    reference = Reference(learnt)
    (loss, metrics), gradient = loss_of(learnt, batch, noise, BOX)
    first, second = (
        f(batch, noise) for f in (reference.fitting_loss, reference.alpha_loss)
    )
    assert float(loss) == pytest.approx(first + second, rel=1e-4)
    log_prob = reference.log_prob(batch.observations, batch.actions).mean()
    assert float(metrics["behavior/log_prob"]) == pytest.approx(log_prob, rel=1e-4)
    # d alpha / d log alpha = alpha
    assert float(gradient.log_alpha) == pytest.approx(second, rel=1e-4)
    random = np.random.default_rng(3)
    for layer, arrays in enumerate(reference.layers):
        for name, array in zip("wb", arrays):
            for _ in range(3):
                index = tuple(random.integers(n) for n in array.shape)
                before, ends = array[index], []
                for step in (1e-6, -1e-6):
                    array[index] = before + step
                    ends.append(reference.fitting_loss(batch, noise))
                array[index] = before
                found = getattr(gradient.b.net.layers[layer], name)[index]
                expected = (ends[0] - ends[1]) / 2e-6
                assert float(found) == pytest.approx(expected, rel=2e-3, abs=2e-4)


def test_draws_have_the_density_that_is_claimed(learnt):
    """E over draws of any f is the integral of f times the density: here E[1/b] over a
    part of the box is its volume."""
    many = 20_000
    s = jnp.broadcast_to(jnp.full((1, STATES), 0.3), (many, STATES))
    codes = jnp.zeros(many, jnp.int32)
    a = np.asarray(sample(learnt.b, BOX, s, codes, jax.random.key(1)))
    log_b = np.asarray(log_probs(learnt.b, BOX, s, jnp.asarray(a)))[:, 0]
    center, scale = (HIGH + LOW) / 2, (HIGH - LOW) / 2
    inner = (np.abs(a - center) < 0.5 * scale).all(axis=1)
    volume = np.mean(np.exp(-log_b) * inner)
    assert volume == pytest.approx(np.prod(scale), rel=0.1)


# Problems with known answers


def logged(actions: np.ndarray) -> Trajectories:
    rows = len(actions)
    return Trajectories.from_arrays(
        observations=np.random.default_rng(5).normal(size=(rows, 2)),
        actions=actions,
        rewards=np.zeros(rows),
        terminals=np.zeros(rows),
        trajectory=np.arange(rows) // 20,
        action_bounds=(-1.0, 1.0),
    )


def test_it_finds_two_ways():
    random = np.random.default_rng(0)
    way = random.choice([-0.6, 0.6], size=(4000, 1))
    data = logged(way + 0.05 * random.normal(size=way.shape))
    found = fit(
        data, "mixture", steps=600, batch_size=64, policy_width=16, policy_rate=5e-3
    )
    # E log of (N(a; -0.6, 0.05) + N(a; 0.6, 0.05)) / 2, the two being far apart
    true = -np.log(2) - np.log(0.05 * np.sqrt(2 * np.pi * np.e))
    heldout = found.summary["behavior"]["heldout_log_prob"]
    assert true - 0.15 < heldout < true + 0.05
    draws = found.sample(np.zeros((1000, 2)), 0)[:, 0]
    near = (np.abs(draws[:, None] - [-0.6, 0.6]) < 0.2).mean(axis=0)
    assert near.sum() > 0.97
    assert near.min() > 0.4


def test_the_entropy_has_a_floor():
    """One action logged again and again: a deviation of e^-5 by likelihood alone."""
    rows = 64
    batch = Batch(
        jnp.zeros((rows, 1)),
        jnp.full((rows, 1), 0.3),
        jnp.zeros(rows),
        jnp.zeros((rows, 1)),
        jnp.zeros(rows),
        jnp.zeros(rows, jnp.int32),
    )
    box = Box(-jnp.ones(1), jnp.ones(1))
    options = Options(policy_width=8)
    state = jax.jit(lambda: mixture.start(jax.random.key(0), 1, 1, 1, 1, options))()
    started = eqx.tree_at(lambda m: m.log_alpha, state.model.tree(), jnp.zeros(()))
    numbers = dict.fromkeys(mixture.Config._fields, jnp.float32(0))
    numbers |= dict(
        policy_rate=jnp.float32(0.01),
        decay_from=jnp.float32(1e8),
        decay_to=jnp.float32(1e9),
    )
    config = mixture.Config(**numbers)
    given = mixture.Fitted(box, jnp.ones(1, bool))

    def one(state, key):
        return mixture.update(state, batch, key, config, given)

    keys = jax.random.split(jax.random.key(1), 3000)

    @jax.jit
    def entropies(start: mixture.Learnt):
        begun = state._replace(model=Trained.of(start))
        return jax.lax.scan(one, begun, keys)[1]["behavior/entropy"]

    def entropy(start: mixture.Learnt) -> float:
        return float(entropies(start)[-2000:].mean())

    # It swings about the floor: the price follows the entropy, and that the price.
    assert entropy(started) == pytest.approx(-1, abs=0.4)
    free = eqx.tree_at(lambda m: m.log_alpha, started, jnp.float32(-50))
    assert entropy(free) < -3
