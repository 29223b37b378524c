"""CQL's losses and updates against a float64 computation of its own."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import batch_of, doubles, forward, layers, members, slope
from scipy.special import logsumexp

from manyhands.algos import cql
from manyhands.algos.algorithm import Given
from manyhands.algos.cql import Noise, Options
from manyhands.nn.bundle import Bundle
from manyhands.nn.optimizer import Trained
from manyhands.types import Batch, Box

STATES, ACTIONS, WIDTH, ROWS, SAMPLES = 3, 2, 8, 12, 4
LOW, HIGH = np.array([-1.0, -2.0]), np.array([1.0, 3.0])
CENTER, SCALE = (HIGH + LOW) / 2, (HIGH - LOW) / 2
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))
OPTIONS = Options(
    width=WIDTH,
    critic_width=WIDTH,
    samples=SAMPLES,
    conservatism=3.0,
    discount=0.9,
    lagrange=True,
    threshold=1.5,
    warm_up=1,
    target_rate=0.05,
)


@pytest.fixture(scope="module")
def state() -> cql.State:
    """Every parameter drawn at random: last layers start nearly at zero."""
    given = Given(STATES, ACTIONS, BOX)
    random = np.random.default_rng(4)

    def like(name: str):
        state = cql.start(jax.random.key(3), given, OPTIONS)
        return getattr(state, name).tree()

    def drawn(name: str) -> Any:
        def draw(leaf):
            inputs = leaf.shape[-2] if leaf.ndim > 1 else 4
            number = random.normal(size=leaf.shape) / np.sqrt(inputs)
            return jnp.asarray(number, jnp.float32)

        return jax.tree.map(draw, jax.eval_shape(partial(like, name)))

    actor, critic, target, weight = map(
        drawn, ("actor", "critic", "target", "log_weight")
    )
    return cql.State(
        Trained.of(actor), Trained.of(critic), Bundle.of(target), Trained.of(weight)
    )


@pytest.fixture(scope="module")
def batch() -> Batch:
    return batch_of(ROWS, STATES, LOW, HIGH)


@pytest.fixture(scope="module")
def noise() -> Noise:
    random = np.random.default_rng(1)
    one, many = (ROWS, ACTIONS), (SAMPLES, ROWS, ACTIONS)
    normal = [random.normal(size=shape) for shape in (one, one, many, many)]
    return Noise(
        *(jnp.asarray(x, jnp.float32) for x in (*normal, random.uniform(size=many)))
    )


# The same in NumPy, float64, written from the equations


class Reference:
    def __init__(self, state: cql.State, batch: Batch, noise: Noise):
        self.batch = doubles(batch)
        self.noise = Noise(*(np.asarray(x, np.float64) for x in noise))
        actor = state.actor.tree()
        self.actor, self.alpha = layers(actor.net), np.exp(float(actor.log_alpha))
        self.log_alpha = float(actor.log_alpha)
        self.critic, self.target = (
            members(b.tree()) for b in (state.critic, state.target)
        )
        self.weight = np.exp(float(state.log_weight.tree()))

    def gaussian(self, s):
        out = forward(self.actor, s)
        return out[:, :ACTIONS], np.exp(np.clip(out[:, ACTIONS:], -5, 2))

    def sample(self, s, noise):
        mean, std = self.gaussian(s)
        a = CENTER + SCALE * np.tanh(mean + std * noise)
        return a, self.log_prob(s, a)

    def log_prob(self, s, a):
        mean, std = self.gaussian(s)
        z = (a - CENTER) / SCALE
        normal = -0.5 * ((np.arctanh(z) - mean) / std) ** 2 - np.log(std)
        density = normal - 0.5 * np.log(2 * np.pi) - np.log((1 - z**2) * SCALE)
        return density.sum(axis=-1)

    def q(self, critics, s, a):
        return np.stack([forward(c, s, a)[:, 0] for c in critics])

    def y(self):
        b = self.batch
        a, _ = self.sample(b.next_observations, self.noise.following)
        q = self.q(self.target, b.next_observations, a).min(axis=0)
        return b.rewards + 0.9 * (1 - b.terminals) * q

    def gaps(self):
        """C_1 and C_2, action by action."""
        b, terms = self.batch, []
        for i in range(SAMPLES):
            u = LOW + (HIGH - LOW) * self.noise.uniform[i]
            terms.append(self.q(self.critic, b.observations, u) + np.log(2 * 5))
            for s, noise in (
                (b.next_observations, self.noise.many_following[i]),
                (b.observations, self.noise.many_now[i]),
            ):
                a, log_prob = self.sample(s, noise)
                terms.append(self.q(self.critic, b.observations, a) - log_prob)
        logged = self.q(self.critic, b.observations, b.actions)
        return (logsumexp(terms, axis=0) - logged).mean(axis=1)

    def bellman(self):
        b = self.batch
        q = self.q(self.critic, b.observations, b.actions)
        return sum(np.mean((q[j] - self.y()) ** 2) for j in range(2))

    def critic_loss(self):
        return self.bellman() + self.weight * 3.0 * self.gaps().sum()

    def policy_loss(self, cloning=False):
        b = self.batch
        a, log_prob = self.sample(b.observations, self.noise.now)
        worth = self.q(self.critic, b.observations, a).min(axis=0)
        if cloning:
            worth = self.log_prob(b.observations, b.actions)
        return np.mean(self.alpha * log_prob - worth)

    def alpha_gradient(self):
        """By log alpha; the entropy is judged in units of the box."""
        _, log_prob = self.sample(self.batch.observations, self.noise.now)
        return -np.mean(log_prob + np.log(SCALE).sum() - ACTIONS)


@pytest.fixture(scope="module")
def reference(state, batch, noise) -> Reference:
    return Reference(state, batch, noise)


@partial(jax.jit, static_argnames="cloning")
def losses(state, batch, noise, cloning):
    actor, critic = state.actor.tree(), state.critic.tree()
    y = cql.critic_target(
        actor, state.target.tree(), batch, noise.following, OPTIONS, BOX
    )
    proposals = cql.propose(actor.net, batch, noise, BOX)
    weight = cql.weight_of(state.log_weight.tree())
    of_critic = jax.value_and_grad(cql.critic_loss, has_aux=True)(
        critic, batch, y, proposals, weight, OPTIONS
    )
    of_actor = jax.value_and_grad(cql.actor_loss, has_aux=True)(
        actor, critic, batch, noise.now, jnp.bool_(cloning), BOX
    )
    return y, of_critic, of_actor


def test_target_and_critic_loss(state, batch, noise, reference):
    y, ((loss, metrics), gradient), _ = losses(state, batch, noise, False)
    np.testing.assert_allclose(y, reference.y(), rtol=1e-4, atol=1e-4)
    assert float(loss) == pytest.approx(reference.critic_loss(), rel=1e-4)
    assert float(metrics["critic/loss"]) == pytest.approx(reference.bellman(), rel=1e-4)
    gap = reference.gaps().mean()
    assert float(metrics["critic/gap"]) == pytest.approx(gap, rel=1e-4)
    random = np.random.default_rng(2)
    for member in range(2):
        for layer, arrays in enumerate(reference.critic[member]):
            for name, array in zip("wb", arrays):
                index = tuple(random.integers(n) for n in array.shape)
                found = getattr(gradient.layers[layer], name)[(member, *index)]
                expected = slope(reference.critic_loss, array, index)
                assert float(found) == pytest.approx(expected, rel=2e-3, abs=1e-3)


@pytest.mark.parametrize("cloning", [False, True])
def test_policy_loss(state, batch, noise, reference, cloning):
    (loss, metrics), gradient = losses(state, batch, noise, cloning)[-1]
    expected = reference.policy_loss(cloning)
    by_alpha = reference.alpha_gradient()
    total = expected + reference.log_alpha * by_alpha
    assert float(loss) == pytest.approx(total, rel=1e-3)
    assert float(gradient.log_alpha) == pytest.approx(by_alpha, rel=1e-3)
    assert float(metrics["actor/alpha"]) == pytest.approx(reference.alpha, rel=1e-5)
    random = np.random.default_rng(3)
    for layer, arrays in enumerate(reference.actor):
        for name, array in zip("wb", arrays):
            index = tuple(random.integers(n) for n in array.shape)
            found = getattr(gradient.net.layers[layer], name)[index]
            expected = slope(lambda: reference.policy_loss(cloning), array, index)
            assert float(found) == pytest.approx(expected, rel=1e-2, abs=2e-3)


def test_weight_loss(state, reference):
    gap = reference.gaps().mean()
    (loss, _), gradient = jax.value_and_grad(cql.weight_loss, has_aux=True)(
        state.log_weight.tree(), jnp.float32(gap), OPTIONS
    )
    expected = -reference.weight * (3.0 * gap - 1.5)
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert float(gradient) == pytest.approx(expected, rel=1e-4)  # d exp = exp
    # It has an end.
    assert float(cql.weight_of(jnp.float32(50.0))) == 1e6


update = jax.jit(cql.update_with)


def test_one_update_steps_everything_from_the_same_parameters(
    state, batch, noise, reference
):
    after, metrics = update(state, batch, noise, OPTIONS, BOX)
    # Adam's first step is the rate, against the gradient's sign. The first update
    # still clones.
    for loss, found, rate in (
        (
            lambda: reference.policy_loss(cloning=True),
            (after.actor.tree().net.layers[1].b - state.actor.tree().net.layers[1].b),
            1e-4,
        ),
        (
            reference.critic_loss,
            (after.critic.tree().layers[1].b - state.critic.tree().layers[1].b)[0],
            3e-4,
        ),
    ):
        array = (reference.actor if rate == 1e-4 else reference.critic[0])[1][1]
        slopes = np.array([slope(loss, array, (i,)) for i in range(WIDTH)])
        clear = np.abs(slopes) > 1e-3
        assert clear.sum() > 2
        np.testing.assert_allclose(
            found[clear], -rate * np.sign(slopes[clear]), rtol=1e-2
        )
    moved = float(after.log_weight.tree() - state.log_weight.tree())
    up = np.sign(3.0 * reference.gaps().mean() - 1.5)
    assert moved == pytest.approx(3e-4 * up, rel=1e-2)
    assert float(metrics["critic/weight"]) == pytest.approx(reference.weight, rel=1e-5)
    # Targets follow the critics as they are after the step.
    for old, new, critic in zip(
        *map(jax.tree.leaves, (state.target, after.target, after.critic.params))
    ):
        np.testing.assert_allclose(new, old + 0.05 * (critic - old), atol=1e-6)


def test_the_policy_learns_by_its_values_after_warming_up(state, batch, noise):
    # Without a price of entropy, which has the last word otherwise.
    actor = eqx.tree_at(lambda a: a.log_alpha, state.actor.tree(), jnp.float32(-9.0))
    quiet = state._replace(actor=Trained.of(actor))
    reference, signs = Reference(quiet, batch, noise), []
    array = reference.actor[-1][0]
    for cloning in (True, False):
        slopes = [
            slope(partial(reference.policy_loss, cloning), array, index)
            for index in np.ndindex(array.shape)
        ]
        clear = np.abs(slopes) > 1e-2
        signs.append(-np.sign(slopes)[clear])
        steps = jnp.int32(0 if cloning else 1)
        begun = eqx.tree_at(lambda s: s.actor.steps, quiet, steps)
        after, _ = update(begun, batch, noise, OPTIONS, BOX)
        moved = after.actor.tree().net.layers[-1].w - actor.net.layers[-1].w
        assert clear.sum() > 5
        assert (np.sign(moved).reshape(-1)[clear] == signs[-1]).all()
    assert not np.array_equal(*signs)
