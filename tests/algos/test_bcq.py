"""BCQ against a float64 computation of its own, and on problems with known answers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import batch_of, doubles, forward, layers, members, slope
from float64 import double
from untaught import untaught

from manyhands import Trajectories, evaluate, make, train
from manyhands.algos import bcq
from manyhands.algos.algorithm import Given
from manyhands.options import choose
from manyhands.types import Batch, Box

STATES, ACTIONS, ROWS, SAMPLES = 3, 2, 12, 4
LATENTS = 2 * ACTIONS
LOW, HIGH = np.array([-1.0, -2.0]), np.array([1.0, 3.0])
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))
PHI, LAMBDA, GAMMA, TAU = 0.3, 0.6, 0.97, 0.01
CONFIG = bcq.Options(
    vae_width=8,
    width=8,
    samples=SAMPLES,
    phi=PHI,
    minimum_weight=LAMBDA,
    discount=GAMMA,
    target_rate=TAU,
)
GIVEN = Given(STATES, ACTIONS, BOX)
FITTED = bcq.fitted(GIVEN, CONFIG)


@pytest.fixture(scope="module")
def state() -> bcq.State:
    return untaught(lambda key: bcq.start(key, GIVEN, CONFIG))


@pytest.fixture(scope="module")
def batch() -> Batch:
    return batch_of(ROWS, STATES, LOW, HIGH, seed=1)


@pytest.fixture(scope="module")
def noise() -> bcq.Noise:
    random = np.random.default_rng(2)
    shapes = (ROWS, LATENTS), (SAMPLES, ROWS, LATENTS), (ROWS, LATENTS)
    return bcq.Noise(*(jnp.asarray(random.normal(size=s), jnp.float32) for s in shapes))


# The same in NumPy, float64, written from the equations


class Reference:
    def __init__(self, state: bcq.State, batch: Batch, noise: bcq.Noise):
        self.batch = doubles(batch)
        self.noise = bcq.Noise(*map(double, noise))
        self.decoder = layers(state.vae.tree().decoder)
        self.xi, self.xi_target = (
            layers(b.tree()) for b in (state.perturbation, state.perturbation_target)
        )
        self.critic, self.target = (
            members(b.tree()) for b in (state.critic, state.critic_target)
        )

    def decoded(self, s, noise):
        z = np.clip(noise, -0.5, 0.5)
        raw = np.tanh(forward(self.decoder, s, z))
        return (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * raw

    def perturbed(self, xi, s, a):
        moved = a + PHI * (HIGH - LOW) / 2 * np.tanh(forward(xi, s, a))
        return np.clip(moved, LOW, HIGH)

    def y(self):
        b, best = self.batch, np.full(ROWS, -np.inf)
        for noise in self.noise.following:
            s = b.next_observations
            a = self.perturbed(self.xi_target, s, self.decoded(s, noise))
            q0, q1 = (forward(critic, s, a)[:, 0] for critic in self.target)
            mixed = LAMBDA * np.minimum(q0, q1) + (1 - LAMBDA) * np.maximum(q0, q1)
            best = np.maximum(best, mixed)
        return b.rewards + GAMMA * (1 - b.terminals) * best

    def critic_loss(self):
        b, y = self.batch, self.y()
        return sum(
            np.mean((forward(c, b.observations, b.actions)[:, 0] - y) ** 2)
            for c in self.critic
        )

    def perturbation_loss(self):
        s = self.batch.observations
        a = self.perturbed(self.xi, s, self.decoded(s, self.noise.now))
        return -forward(self.critic[0], s, a)[:, 0].mean()


def with_gradient(loss):
    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def test_losses_and_gradients_agree_with_float64(state, batch, noise):
    reference = Reference(state, batch, noise)
    decoder, critic = state.vae.tree().decoder, state.critic.tree()
    targets = state.perturbation_target.tree(), state.critic_target.tree()
    y = jax.jit(bcq.critic_target)(
        decoder, *targets, batch, noise.following, CONFIG, FITTED
    )
    np.testing.assert_allclose(y, reference.y(), rtol=1e-4, atol=1e-4)
    (loss, _), by_critic = with_gradient(bcq.critic_loss)(critic, batch, y)
    assert float(loss) == pytest.approx(reference.critic_loss(), rel=1e-4)
    xi = state.perturbation.tree()
    (loss, metrics), by_xi = with_gradient(bcq.perturbation_loss)(
        xi, decoder, critic, batch, noise.now, FITTED
    )
    expected = reference.perturbation_loss()
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert float(metrics["actor/q"]) == pytest.approx(-expected, rel=1e-4)
    assert 0 < float(metrics["actor/shift"]) < PHI
    random = np.random.default_rng(3)
    for layer in range(3):
        array = reference.xi[layer][0]
        index = tuple(random.integers(n) for n in array.shape)
        found = by_xi.layers[layer].w[index]
        wanted = slope(reference.perturbation_loss, array, index)
        assert float(found) == pytest.approx(wanted, rel=2e-3, abs=1e-5)
        for member in range(2):
            array = reference.critic[member][layer][0]
            found = by_critic.layers[layer].w[(member, *[0] * array.ndim)]
            wanted = slope(reference.critic_loss, array, (0, 0))
            assert float(found) == pytest.approx(wanted, rel=2e-3, abs=1e-5)


def test_one_update_goes_from_the_vae_to_the_critics_to_the_perturbation(
    state, batch, noise
):
    after, metrics = jax.jit(bcq.update_with)(state, batch, noise, CONFIG, FITTED)
    # The critics learn with the decoder as it is after its step.
    reference = Reference(state._replace(vae=after.vae), batch, noise)
    before = Reference(state, batch, noise).critic_loss()
    assert float(metrics["critic/loss"]) != pytest.approx(before, rel=1e-5)
    assert float(metrics["critic/loss"]) == pytest.approx(
        reference.critic_loss(), rel=1e-4
    )
    # Adam's first step is the rate, against the gradient's sign.
    moved = after.critic.tree().layers[2].b - state.critic.tree().layers[2].b
    for member in range(2):
        bias = reference.critic[member][2][1]
        sign = np.sign(slope(reference.critic_loss, bias, (0,)))
        assert float(moved[member, 0]) == pytest.approx(-1e-3 * sign, rel=1e-2)
    # The perturbation learns with both as they are then.
    changed = state._replace(vae=after.vae, critic=after.critic)
    reference = Reference(changed, batch, noise)
    assert float(metrics["actor/q"]) == pytest.approx(
        -reference.perturbation_loss(), rel=1e-5
    )
    moved = (
        after.perturbation.tree().layers[2].b - state.perturbation.tree().layers[2].b
    )
    for i in range(ACTIONS):
        sign = np.sign(slope(reference.perturbation_loss, reference.xi[2][1], (i,)))
        assert float(moved[i]) == pytest.approx(-1e-3 * sign, rel=1e-2)
    # Targets follow what there is after the steps.
    for old, new, online in (
        (state.critic_target, after.critic_target, after.critic),
        (state.perturbation_target, after.perturbation_target, after.perturbation),
    ):
        for o, n, p in zip(*map(jax.tree.leaves, (old, new, online))):
            np.testing.assert_allclose(n, o + TAU * (p - o), atol=1e-6)


def test_networks_have_the_papers_sizes():
    def networks():
        state = bcq.start(jax.random.key(0), Given(17, 6, BOX), bcq.Options())
        parts = state.critic, state.perturbation, state.vae
        return [part.tree() for part in parts]

    critic, perturbation, vae = jax.eval_shape(networks)
    shapes = [layer.w.shape for layer in critic.layers]
    assert shapes == [(2, 23, 400), (2, 400, 300), (2, 300, 1)]
    shapes = [layer.w.shape for layer in perturbation.layers]
    assert shapes == [(23, 400), (400, 300), (300, 6)]
    # 750, and two in every layer that do nothing
    shapes = [layer.w.shape for layer in vae.encoder.layers]
    assert shapes == [(23, 752), (752, 752), (752, 24)]
    shapes = [layer.w.shape for layer in vae.decoder.layers]
    assert shapes == [(29, 752), (752, 752), (752, 6)]


def test_it_acts_by_the_best_of_a_hundred(state, batch, noise):
    reference = Reference(state, batch, noise)
    keys = jax.random.split(jax.random.key(0), ROWS)
    model = bcq.model(state, FITTED)
    found = jax.jit(bcq.act)(model, BOX, batch.observations, keys)
    for row, key in enumerate(keys):
        z = double(jax.random.normal(key, (100, LATENTS)))
        s = np.broadcast_to(reference.batch.observations[row], (100, STATES))
        a = reference.perturbed(reference.xi, s, reference.decoded(s, z))
        q = forward(reference.critic[0], s, a)[:, 0]
        own = forward(reference.critic[0], s[0], double(found[row]))[0]
        assert own == pytest.approx(q.max(), abs=1e-4)
        assert np.abs(a - double(found[row])).max(axis=1).min() < 1e-4


# Problems with known answers: of one size, so that one program learns both

SMALL: dict[str, Any] = dict(
    vae_width=64, width=64, batch_size=128, samples=5, steps=4000
)


@pytest.fixture(scope="module")
def fork() -> Trajectories:
    return make("fork-2", 20_000)


def arms(transitions: int) -> Trajectories:
    """State 0, then, whatever is done, state 1, where one of two arms pays.

    Actions are about +0.5 or -0.5; in state 1 the first gives 1, the second nothing,
    and both end the episode. Three more observations and another action say nothing.
    """
    random = np.random.default_rng(0)
    rows = np.arange(transitions)
    second, good = rows % 2 == 1, random.random(transitions) < 0.5
    observations = np.zeros((transitions, 4))
    observations[:, 0] = second
    actions = 0.03 * random.normal(size=(transitions, 2))
    actions[:, 0] += np.where(good, 0.5, -0.5)
    return Trajectories.from_arrays(
        observations=observations,
        next_observations=np.tile(np.eye(4)[0], (transitions, 1)),
        actions=actions,
        rewards=good & second,
        terminals=second,
        trajectory=rows // 2,
    )


def test_targets_start_as_copies():
    options = choose(bcq.PRESETS, "default", SMALL)
    started = bcq.start(jax.random.key(0), Given(4, 2, BOX), options)
    for online, target in (
        (started.critic, started.critic_target),
        (started.perturbation, started.perturbation_target),
    ):
        for a, b in zip(*map(jax.tree.leaves, (online, target))):
            assert np.array_equal(a, b)


@pytest.mark.learns
def test_it_pulls_the_arm_that_pays_and_knows_what_that_is_worth(fork):
    policy = train(arms(fork.transitions), "bcq", discount=0.9, episodes=0, **SMALL)
    state, following = np.zeros(4), np.eye(4)[0]
    actions = policy.act(np.tile(following, (50, 1)))
    np.testing.assert_allclose(actions[:, 0], 0.5, atol=0.2)
    # What follows state 0 is worth what the better arm gives, not half of it.
    for at, arm, worth in (
        (following, 0.5, 1.0),
        (following, -0.5, 0.0),
        (state, 0.5, 0.9),
        (state, -0.5, 0.9),
    ):
        inputs = np.append(policy.scaling(at), [arm, 0]).astype(np.float32)
        found = policy.model.critic(jnp.asarray(inputs))[0]
        assert float(found) == pytest.approx(worth, abs=0.15)


@pytest.mark.slow
def test_it_passes_the_fork(fork):
    policy = train(fork, "bcq", episodes=0, **SMALL)
    returns = evaluate(policy, episodes=50, workers=1).returns
    assert (returns > 1).mean() >= 0.9
