"""PLAS against a float64 computation of its own, and on problems with known answers."""

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import batch_of, doubles, forward, layers, members, slope
from untaught import untaught

from manyhands import Policy, Trajectories, evaluate, load_policy, make, train
from manyhands.algos import plas
from manyhands.algos.algorithm import Given
from manyhands.nn.bundle import Bundle
from manyhands.nn.networks import MLP
from manyhands.nn.optimizer import Trained
from manyhands.options import choose
from manyhands.types import Batch, Box

STATES, ACTIONS, ROWS = 3, 2, 12
LATENTS = 2 * ACTIONS
LOW, HIGH = np.array([-1.0, -2.0]), np.array([1.0, 3.0])
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))
PHI, BOUND, LAMBDA, GAMMA, TAU = 0.3, 1.5, 0.6, 0.97, 0.01
CONFIG = plas.Options(
    width=8,
    perturbed=True,
    phi=PHI,
    latent_bound=BOUND,
    minimum_weight=LAMBDA,
    discount=GAMMA,
    target_rate=TAU,
)


@pytest.fixture(scope="module")
def given() -> Given:
    decoder = MLP.init(jax.random.key(1), [STATES + LATENTS, 8, 8, ACTIONS])
    return Given(STATES, ACTIONS, BOX, decoder)


@pytest.fixture(scope="module")
def state(given) -> plas.State:
    return untaught(lambda key: plas.start(key, given, CONFIG))


@pytest.fixture(scope="module")
def batch() -> Batch:
    return batch_of(ROWS, STATES, LOW, HIGH, seed=1)


def plain(state: plas.State) -> plas.State:
    """The same without the perturbation."""
    policy, target = (
        plas.Policy(part.tree().latent, None)
        for part in (state.policy, state.policy_target)
    )
    return state._replace(policy=Trained.of(policy), policy_target=Bundle.of(target))


# The same in NumPy, float64, written from the equations


class Policy64:
    def __init__(self, policy: plas.Policy):
        self.latent = layers(policy.latent)
        xi = policy.perturbation
        self.xi = None if xi is None else layers(xi)


class Reference:
    def __init__(self, state: plas.State, batch: Batch, decoder: MLP):
        self.batch = doubles(batch)
        self.decoder = layers(decoder)
        self.policy = Policy64(state.policy.tree())
        self.policy_target = Policy64(state.policy_target.tree())
        self.critic, self.target = (
            members(b.tree()) for b in (state.critic, state.critic_target)
        )

    def action(self, policy: Policy64, s):
        z = BOUND * np.tanh(forward(policy.latent, s))
        half = (HIGH - LOW) / 2
        a = (LOW + HIGH) / 2 + half * np.tanh(forward(self.decoder, s, z))
        if policy.xi is None:
            return a
        moved = a + PHI * half * np.tanh(forward(policy.xi, s, a))
        return np.clip(moved, LOW, HIGH)

    def y(self):
        b, s = self.batch, self.batch.next_observations
        a = self.action(self.policy_target, s)
        q0, q1 = (forward(critic, s, a)[:, 0] for critic in self.target)
        mixed = LAMBDA * np.minimum(q0, q1) + (1 - LAMBDA) * np.maximum(q0, q1)
        return b.rewards + GAMMA * (1 - b.terminals) * mixed

    def critic_loss(self):
        b, y = self.batch, self.y()
        return sum(
            np.mean((forward(c, b.observations, b.actions)[:, 0] - y) ** 2)
            for c in self.critic
        )

    def policy_loss(self):
        s = self.batch.observations
        return -forward(self.critic[0], s, self.action(self.policy, s))[:, 0].mean()


@pytest.mark.parametrize("perturbed", [True, False])
def test_losses_and_gradients_agree_with_float64(state, batch, given, perturbed):
    state = state if perturbed else plain(state)
    fitted = plas.fitted(given, CONFIG)
    reference = Reference(state, batch, given.behavior)
    y = jax.jit(plas.critic_target)(
        state.policy_target.tree(), state.critic_target.tree(), batch, CONFIG, fitted
    )
    np.testing.assert_allclose(y, reference.y(), rtol=1e-4, atol=1e-4)
    with_gradient = jax.jit(jax.value_and_grad(plas.policy_loss, has_aux=True))
    (loss, metrics), gradient = with_gradient(
        state.policy.tree(), state.critic.tree(), batch, fitted
    )
    expected = reference.policy_loss()
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert float(metrics["actor/q"]) == pytest.approx(-expected, rel=1e-4)
    assert 0 < float(metrics["actor/latent_size"]) < 1
    nets = [(reference.policy.latent, gradient.latent)]
    if perturbed:
        nets.append((reference.policy.xi, gradient.perturbation))
    random = np.random.default_rng(3)
    for net, found in nets:
        for (w, _), layer in zip(net, found.layers):
            index = tuple(random.integers(n) for n in w.shape)
            wanted = slope(reference.policy_loss, w, index)
            assert float(layer.w[index]) == pytest.approx(wanted, rel=2e-3, abs=1e-5)
    found = jax.jit(plas.act)(
        plas.model(state, fitted),
        BOX,
        batch.observations,
        jax.random.split(jax.random.key(0), ROWS),
    )
    s = reference.batch.observations
    expected = reference.action(reference.policy, s)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_one_update_goes_from_the_critics_to_the_policy(state, batch, given):
    fitted = plas.fitted(given, CONFIG)
    after, metrics = jax.jit(plas.update)(
        state, batch, jax.random.key(0), CONFIG, fitted
    )
    reference = Reference(state, batch, given.behavior)
    assert float(metrics["critic/loss"]) == pytest.approx(
        reference.critic_loss(), rel=1e-4
    )
    # Adam's first step is the rate, against the gradient's sign.
    moved = after.critic.tree().layers[2].b - state.critic.tree().layers[2].b
    for member in range(2):
        bias = reference.critic[member][2][1]
        sign = np.sign(slope(reference.critic_loss, bias, (0,)))
        assert float(moved[member, 0]) == pytest.approx(-1e-3 * sign, rel=1e-2)
    # The policy learns with the critics as they are then.
    reference = Reference(state._replace(critic=after.critic), batch, given.behavior)
    assert float(metrics["actor/q"]) == pytest.approx(
        -reference.policy_loss(), rel=1e-5
    )
    old, new = (part.policy.tree().latent.layers[2].b for part in (state, after))
    for i in range(LATENTS):
        bias = reference.policy.latent[2][1]
        sign = np.sign(slope(reference.policy_loss, bias, (i,)))
        assert float(new[i] - old[i]) == pytest.approx(-1e-4 * sign, rel=1e-2)
    # Targets follow what there is after the steps.
    for old, new, online in (
        (state.critic_target, after.critic_target, after.critic),
        (state.policy_target, after.policy_target, after.policy),
    ):
        for o, n, p in zip(*map(jax.tree.leaves, (old, new, online))):
            np.testing.assert_allclose(n, o + TAU * (p - o), atol=1e-6)


def test_networks_have_the_papers_sizes():
    def networks():
        options = replace(plas.Options(), perturbed=True)
        state = plas.start(jax.random.key(0), Given(17, 6, BOX), options)
        return state.critic.tree(), state.policy.tree()

    critic, policy = jax.eval_shape(networks)
    for net, expected in (
        (critic, [(2, 23, 400), (2, 400, 300), (2, 300, 1)]),
        (policy.latent, [(17, 400), (400, 300), (300, 12)]),
        (policy.perturbation, [(23, 400), (400, 300), (300, 6)]),
    ):
        assert [layer.w.shape for layer in net.layers] == expected


# Problems with known answers: of one size, so that one program fits the VAE of both

SMALL: dict[str, Any] = dict(
    behavior_width=64,
    behavior_steps=2000,
    width=64,
    batch_size=128,
    steps=2000,
    policy_rate=1e-3,
)


@pytest.fixture(scope="module")
def fork() -> Trajectories:
    return make("fork-2", 20_000)


def arms(transitions: int) -> Trajectories:
    """State 0, then, whatever is done, state 1, where one of two arms pays.

    Actions are about +0.5 or, more often, -0.5; in state 1 the first gives 1, the
    second nothing, and both end the episode. Three more observations and another
    action say nothing.
    """
    random = np.random.default_rng(0)
    rows = np.arange(transitions)
    second, good = rows % 2 == 1, random.random(transitions) < 0.3
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


def test_presets_are_the_printed_ones(fork, tmp_path):
    assert len(plas.PRESETS) == 3 + 12
    assert plas.PRESETS["medium-replay"].behavior_width == 128
    found = plas.PRESETS["hopper-medium-replay-perturbed"]
    assert (found.perturbed, found.phi, found.behavior_width) == (True, 0.2, 128)
    # The VAE's are the paper's, too.
    small: Any = dict(steps=1, behavior_steps=1, behavior_width=8, width=8, episodes=0)
    preset = "hopper-medium-perturbed"
    policy = train(fork, "plas", preset=preset, out=tmp_path, **small)
    assert isinstance(policy, Policy)
    assert policy.model.policy.perturbation is not None
    options = json.loads((tmp_path / "config.json").read_text())["options"][0]
    assert (options["phi"], options["batch_size"]) == (0.01, 100)
    first = json.loads((tmp_path / "behavior" / "config.json").read_text())
    assert first["preset"] == "paper"


def test_targets_start_as_copies():
    options = choose(plas.PRESETS, "default", {"perturbed": True} | SMALL)
    started = plas.start(jax.random.key(0), Given(4, 2, BOX), options)
    for online, target in (
        (started.critic, started.critic_target),
        (started.policy, started.policy_target),
    ):
        for a, b in zip(*map(jax.tree.leaves, (online, target))):
            assert np.array_equal(a, b)


@pytest.mark.learns
def test_it_pulls_the_arm_that_pays(fork, tmp_path):
    data = arms(fork.transitions)
    policy = train(data, "plas", discount=0.9, perturbed=True, episodes=0, **SMALL)
    following = np.tile(np.eye(4)[0], (2, 1))
    np.testing.assert_allclose(policy.act(following)[:, 0], 0.5, atol=0.2)
    policy.save(tmp_path)
    again = load_policy(tmp_path)
    assert np.array_equal(again.act(following), policy.act(following))


@pytest.mark.slow
def test_it_passes_the_fork(fork):
    policy = train(fork, "plas", episodes=0, **SMALL)
    returns = evaluate(policy, episodes=50, workers=1).returns
    assert (returns > 1).mean() >= 0.9
