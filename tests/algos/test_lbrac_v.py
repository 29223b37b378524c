"""LBRAC-v's default against float64 computations.

What the paper printed is compared with the released code in `test_lbrac_fixture.py`.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import double, kl, log_prob, slope

from manyhands.algos import lbrac_v
from manyhands.algos.algorithm import Given
from manyhands.algos.lbrac_v import Noise, State
from manyhands.algos.lbrac_v_printed import LBRAC_V, Options
from manyhands.algos.starting_sets import Start
from manyhands.behavior import vq, vq_learning
from manyhands.nn.optimizer import Trained, for_all, polyak

OPTIONS = Options(
    critic_width=8, beta=0.7, value_penalty=0.6, value_weight=1.5, warm_up=0
)
SHARE = 0.3  # of the data, by the best behavior
NOW, NEXT = slice(8), slice(8, 16)  # rows for s, and for s'
random = np.random.default_rng(2)
ACTION, SAMPLES = random.normal(size=(16, 2)), random.normal(size=(3, 16, 2))
NOISE = tuple(
    Noise(jnp.asarray(ACTION[rows]), jnp.asarray(SAMPLES[:, rows]))
    for rows in (NOW, NEXT)
)


def own(**changes) -> Options:
    return jax.tree.map(
        jnp.float32, Options(**vars(OPTIONS) | dict(held_to="own") | changes)
    )


@pytest.fixture(scope="module")
def given(box) -> Given:
    """Four trajectories, three codes, the last of which is padding."""
    behaviors = vq_learning.init(
        jax.random.key(3), 3, 2, 3, 4, policy_width=8, values=False
    )
    codes = np.array([True, True, False])
    found = Start(behaviors.policy.tree(), None, 1, SHARE, codes, trajectories=4)
    return Given(3, 2, box, found)


@pytest.fixture(scope="module")
def state(given) -> State:
    """pi is moved off the behavior that it starts as."""
    state = lbrac_v.start(jax.random.key(0), given, OPTIONS)
    other = lbrac_v.start(jax.random.key(7), given, OPTIONS)
    policy = state.policy.tree()
    policy = eqx.tree_at(lambda p: p.e_pi, policy, jnp.arange(8.0) - 3)
    return state._replace(policy=Trained.of(policy), target=other.critic.params)


update = jax.jit(lbrac_v.update_with)


class Learnt(NamedTuple):
    """From one batch."""

    loss: Any  # L_actor
    of_policy: Any  # its gradient
    of_critic: Any  # the gradient of L_critic
    metrics: Any


@jax.jit
def learnt(state, batch, noise, config, fitted) -> Learnt:
    """Losses and gradients, all at the same parameters."""
    policy, critic, target = (
        part.tree() for part in (state.policy, state.critic, state.target)
    )
    now, following = noise
    e = fitted.best
    if config.held_to == "own":
        _, e, _ = vq.assign(fitted.behaviors, batch.trajectory, fitted.codes)
    then = lbrac_v.decode(policy, batch.next_observations, e, fitted)
    y = lbrac_v.critic_target(target, then, batch, following, config, fitted.box)
    of_critic, metrics = jax.grad(lbrac_v.critic_loss, has_aux=True)(critic, batch, y)
    (loss, more), of_policy = jax.value_and_grad(lbrac_v.policy_loss, has_aux=True)(
        policy, critic, batch, e, now, config, fitted
    )
    return Learnt(loss, of_policy, of_critic, metrics | more)


class Reference:
    """Everything once more."""

    def __init__(self, state, batch, given, config):
        self.policy, self.b = state.policy.tree(), given.behavior.behaviors
        self.critic, self.target = state.critic.tree(), state.target.tree()
        self.center, self.scale = double(given.box.center), double(given.box.scale)
        self.best, self.config, self.batch = given.behavior.best, config, batch
        both = [batch.observations, batch.next_observations]
        self.states = double(np.concatenate(both))
        self.trajectory = np.tile(batch.trajectory, 2)

    def normal(self, rows):
        rows = double(rows)
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

    def trunk(self, trunk, x):
        for layer in (trunk.first, trunk.second):
            x = np.maximum(double(x) @ double(layer.w) + double(layer.b), 0)
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-3)
        return x * double(trunk.scale) + double(trunk.bias)

    def head(self, head, features, embedding):
        w, b = double(head.first.w), double(head.first.b)
        h = np.maximum(features @ w + b + embedding @ double(head.embed), 0)
        return h @ double(head.last.w) + double(head.last.b)

    def pi(self, policy, rows):
        features = self.trunk(policy.trunk, self.states[rows])
        return np.split(
            self.head(policy.head, features, self.normal(policy.e_pi)), 2, -1
        )

    def behavior(self, rows):
        E, W = self.normal(self.b.E), self.normal(self.b.W)
        z = np.argmax((W @ E.T)[:, :2], axis=1)[self.trajectory[rows]]
        if self.config.held_to == "best":
            z = np.full(len(z), self.best)
        features = self.trunk(self.b.trunk, self.states[rows])
        return np.split(self.head(self.b.head, features, E[z]), 2, -1)

    def action(self, policy, rows, noise=ACTION):
        mean, log_std = self.pi(policy, rows)
        inside = 0.999 * np.abs(self.scale)
        squashed = self.scale * np.tanh(mean + np.exp(log_std) * noise[..., rows, :])
        return self.center + np.clip(squashed, -inside, inside)

    def divergence(self, policy, rows):
        pi, b = self.pi(policy, rows), self.behavior(rows)
        if self.config.divergence == "exact":
            return kl(*pi, *b)
        actions = self.action(policy, rows, SAMPLES)
        log_pi, log_b = (
            log_prob(actions, *one, self.center, self.scale) for one in (pi, b)
        )
        return np.maximum((log_pi - log_b).mean(axis=0), 0)

    def q(self, critic, rows, actions):
        x = np.concatenate([self.states[rows], actions], axis=1)
        values = []
        for j in range(2):
            member = jax.tree.map(lambda leaf: leaf[j], critic)  # noqa: B023
            features = self.trunk(member.trunk, x)
            values.append(
                self.head(member.head, features, self.normal(member.h_pi))[:, 0]
            )
        return np.stack(values)

    def value(self, actions):
        """In s, of the worse critic."""
        return self.q(self.critic, NOW, actions).min(axis=0)

    def slope(self):
        """Of that, where pi acts."""
        actions, small = self.action(self.policy, NOW), 1e-5
        ends = [
            [self.value(actions + step) for step in (across, -across)]
            for across in np.eye(2) * small
        ]
        return np.stack([(up - down) / (2 * small) for up, down in ends], axis=-1)

    def change(self):
        """Of that, over a step of one deviation of the behavior."""
        _, log_std = self.behavior(NOW)
        z = (self.action(self.policy, NOW) - self.center) / self.scale
        deviation = np.exp(log_std) * self.scale * (1 - z**2)
        return np.sqrt(((self.slope() * deviation) ** 2).sum(axis=1).mean())

    def factor(self):
        """Of Q in L_actor."""
        if self.config.value_scale == "none":
            return 1
        size = np.abs(self.value(self.action(self.policy, NOW))).mean()
        best = self.config.held_to == "best" and self.config.value_share
        weight = 1.5 * (SHARE if best else 1)
        return min(weight / size, float(self.config.reach) / self.change())

    def y(self):
        q = self.q(self.target, NEXT, self.action(self.policy, NEXT)).min(axis=0)
        future = q - 0.6 * 0.7 * self.divergence(self.policy, NEXT)
        alive = 1 - double(self.batch.terminals)
        return double(self.batch.rewards) + 0.99 * alive * future

    def critic_loss(self, critic, y):
        q = self.q(critic, NOW, double(self.batch.actions))
        return ((q - y) ** 2).mean(axis=1).sum()

    def actor_loss(self, policy, factor):
        q = self.value(self.action(policy, NOW))
        return 0.7 * self.divergence(policy, NOW).mean() - factor * q.mean()


in_every_way = pytest.mark.parametrize(
    "changes",
    [
        pytest.param(dict(held_to="best", reach=0.1), id="best, small reach"),
        pytest.param(dict(held_to="best", reach=1e9), id="best, by its share"),
        pytest.param(
            dict(held_to="best", reach=1e9, value_share=False), id="best, whole weight"
        ),
        pytest.param(dict(held_to="own", reach=1e9), id="own, large reach"),
        pytest.param(dict(divergence="sampled"), id="own, sampled"),
        pytest.param(dict(held_to="best", value_scale="none"), id="best, unscaled"),
    ],
)


@in_every_way
def test_losses(state, batch, given, changes):
    config = own(**changes)
    reference = Reference(state, batch, given, config)
    fitted = lbrac_v.fitted(given, config)
    found, y = learnt(state, batch, NOISE, config, fitted), reference.y()
    np.testing.assert_allclose(found.metrics["critic/target"], y.mean(), rtol=1e-3)
    loss = reference.critic_loss(reference.critic, y)
    np.testing.assert_allclose(found.metrics["critic/loss"], loss, rtol=1e-3)
    d = reference.divergence(reference.policy, NOW).mean()
    np.testing.assert_allclose(found.metrics["actor/divergence"], d, rtol=1e-3)
    q = reference.value(reference.action(reference.policy, NOW)).mean()
    np.testing.assert_allclose(found.metrics["actor/q"], q, rtol=1e-3, atol=1e-4)
    factor = reference.factor()
    if "reach" in changes:
        within = factor * reference.change() == pytest.approx(changes["reach"])
        assert within == (changes["reach"] < 1)
    loss = reference.actor_loss(reference.policy, factor)
    np.testing.assert_allclose(found.loss, loss, rtol=1e-3, atol=1e-4)


@in_every_way
def test_gradients_of_losses(state, batch, given, changes):
    config = own(**changes)
    reference = Reference(state, batch, given, config)
    found = learnt(state, batch, NOISE, config, lbrac_v.fitted(given, config))
    y, factor = reference.y(), reference.factor()
    check_gradient(
        found.of_critic, lambda c: reference.critic_loss(c, y), reference.critic
    )
    check_gradient(
        found.of_policy, lambda p: reference.actor_loss(p, factor), reference.policy
    )


def check_gradient(gradient, loss, tree):
    """Along a random direction in each array of the tree."""
    random = np.random.default_rng(5)
    gradients = jax.tree.leaves(gradient)
    largest = max(map(np.linalg.norm, gradients))
    leaves, structure = jax.tree.flatten(tree)
    for place, (leaf, found) in enumerate(zip(leaves, gradients, strict=True)):
        way = random.normal(size=leaf.shape)

        def at(step, place=place, leaf=leaf, way=way):
            moved = [*leaves[:place], double(leaf) + step * way, *leaves[place + 1 :]]
            return loss(jax.tree.unflatten(structure, moved))

        expected = slope(at, np.zeros(1), (0,))
        np.testing.assert_allclose(
            np.sum(found * way), expected, rtol=1e-4, atol=1e-5 * largest
        )


def same(one, other) -> bool:
    pairs = zip(*map(jax.tree.leaves, (one, other)), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_who_learns_from_what(state, batch, given):
    """The policy from its actions in s. The critics from logged ones only, by what pi
    would do in s' and the targets: from these the policy learns nothing."""
    config = own(divergence="sampled")
    fitted = lbrac_v.fitted(given, config)

    def changed(state, noise):
        """Whether the gradients of the policy and of the critics are other ones."""
        other = learnt(state, batch, noise, config, fitted)
        return tuple(
            not same(getattr(other, name), getattr(found, name))
            for name in ("of_policy", "of_critic")
        )

    found = learnt(state, batch, NOISE, config, fitted)
    now, following = NOISE
    other_now, other_following = jax.tree.map(lambda x: x + 0.3, NOISE)
    assert changed(state, NOISE) == (False, False)
    assert changed(state, (other_now, following)) == (True, False)
    assert changed(state, (now, other_following)) == (False, True)
    assert changed(state._replace(target=state.critic.params), NOISE) == (False, True)


def stepped(trained: Trained, gradient: Any, rate: float) -> Trained:
    return trained.descend(gradient, for_all(rate, gradient))


@pytest.mark.parametrize("held_to", ["best", "own"])
def test_targets_then_critics_then_the_policy(state, batch, given, held_to):
    """y is by targets that have followed, L_actor by critics that have learnt."""
    rates = dict(policy_rate=0.02, critic_rate=0.03, target_rate=0.1)
    config = own(held_to=held_to, **rates)
    fitted = lbrac_v.fitted(given, config)
    for _ in range(2):  # the second time with moments that are not 0
        target = polyak(state.target, state.critic, 0.1)
        moved = state._replace(target=target)
        by_old = learnt(moved, batch, NOISE, config, fitted)
        critic = stepped(state.critic, by_old.of_critic, 0.03)
        moved = moved._replace(critic=critic)
        by_new = learnt(moved, batch, NOISE, config, fitted)
        policy = stepped(state.policy, by_new.of_policy, 0.02)
        expected = State(policy, critic, target)
        after, metrics = update(state, batch, *NOISE, config, fitted)
        for one, other in zip(*map(jax.tree.leaves, (after, expected)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)

        # The same in float64: whose y, and whose Q of pi's actions.
        reference = Reference(moved, batch, given, config)
        old = reference.q(state.critic.tree(), NOW, double(batch.actions))
        y, q = reference.y(), reference.value(reference.action(reference.policy, NOW))
        np.testing.assert_allclose(metrics["critic/target"], y.mean(), rtol=1e-3)
        np.testing.assert_allclose(metrics["critic/q"], old.mean(), rtol=1e-3)
        np.testing.assert_allclose(metrics["actor/q"], q.mean(), rtol=1e-3)
        assert abs(by_old.metrics["actor/q"] - q.mean()) > 0.01
        state = after


def test_pi_starts_as_the_best_behavior(given, batch):
    state = lbrac_v.start(jax.random.key(0), given, OPTIONS)
    fitted = lbrac_v.fitted(given, OPTIONS)
    pi, held_to = lbrac_v.decode(
        state.policy.tree(), batch.observations, fitted.best, fitted
    )
    b = given.behavior.behaviors
    outputs = b.head(b.trunk(batch.observations), vq.normalize(b.E[1]))
    assert np.array_equal(pi.mean, jnp.split(outputs, 2, axis=-1)[0])
    assert np.array_equal(pi.mean, held_to.mean)


def test_pi_waits_for_the_critics(state, batch, given):
    config = own(warm_up=2)
    fitted = lbrac_v.fitted(given, config)
    for learning in (False, False, True):
        after, _ = update(state, batch, *NOISE, config, fitted)
        assert same(after.policy.params, state.policy.params) != learning
        assert not same(after.critic.params, state.critic.params)
        state = after


@pytest.mark.parametrize("joint", [False, True])
def test_padding_changes_nothing(given, batch, joint):
    """Where behaviors go on learning, too."""
    config = own(joint=joint, divergence="sampled")
    found = given.behavior
    b = eqx.tree_at(lambda b: b.E, found.behaviors, found.behaviors.E[:2])
    alone = given._replace(behavior=found._replace(behaviors=b, codes=found.codes[:2]))
    after = []
    for these in (alone, given):
        state = LBRAC_V.start(jax.random.key(0), these, config)
        fitted = LBRAC_V.fitted(these, config)
        state, _ = jax.jit(LBRAC_V.update)(
            state, batch, jax.random.key(1), config, fitted
        )
        after.append((state.policy.tree(), state.critic.tree()))
    for one, other in zip(*map(jax.tree.leaves, after), strict=True):
        # A row more, of E and of H, at its end.
        rest = other[tuple(map(slice, one.shape))]
        np.testing.assert_allclose(rest, one, rtol=1e-4, atol=1e-6)
    if joint:
        policy, critic = after[1]
        before = vq.init_critics(jax.random.key(0), 5, 3, OPTIONS.critic_width)
        assert np.array_equal(policy.E[2], found.behaviors.E[2])
        assert np.array_equal(critic.H[:, 2], before.H[:, 2])
