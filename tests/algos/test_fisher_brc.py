"""Fisher-BRC against a float64 computation of its own, and on known problems."""

from dataclasses import replace
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import batch_of, doubles, forward, layers, members, slope
from fork_goals import share_at_goal
from scipy import stats
from scipy.special import log_softmax, logsumexp

from manyhands import fleet
from manyhands.algos import fisher_brc
from manyhands.algos.algorithm import Given
from manyhands.algos.fisher_brc import Fitted, Noise, Options
from manyhands.behavior import mixture
from manyhands.behavior.options import Options as FitOptions
from manyhands.nn.bundle import Bundle
from manyhands.nn.optimizer import Trained
from manyhands.types import Batch, Box

STATES, ACTIONS, WIDTH, ROWS, COMPONENTS = 3, 2, 8, 12, 5
LOW, HIGH = np.array([-1.0, -2.0]), np.array([1.0, 3.0])
CENTER, SCALE = (HIGH + LOW) / 2, (HIGH - LOW) / 2
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))
OPTIONS = Options(
    width=WIDTH,
    critic_width=WIDTH,
    penalty=0.3,
    bonus=2.0,
    discount=0.9,
    target_rate=0.05,
    policy_rate=1e-4,
)


def drawn(like, seed: int):
    """Every parameter at random: last layers start nearly at zero."""
    random = np.random.default_rng(seed)

    def draw(leaf):
        inputs = leaf.shape[-2] if leaf.ndim > 1 else 4
        number = random.normal(size=leaf.shape) / np.sqrt(inputs)
        return jnp.asarray(number, jnp.float32)

    return jax.tree.map(draw, like)


@pytest.fixture(scope="module")
def state() -> fisher_brc.State:
    given = Given(STATES, ACTIONS, BOX)

    def like(name: str):
        state = fisher_brc.start(jax.random.key(3), given, OPTIONS)
        return getattr(state, name).tree()

    names = ("actor", "critic", "target")
    actor, critic, target = (
        drawn(jax.eval_shape(partial(like, name)), seed)
        for seed, name in enumerate(names)
    )
    return fisher_brc.State(Trained.of(actor), Trained.of(critic), Bundle.of(target))


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    options = FitOptions(policy_width=WIDTH)

    def like():
        key = jax.random.key(0)
        return mixture.start(key, STATES, ACTIONS, 1, 1, options).model.tree().b

    return Fitted(BOX, drawn(jax.eval_shape(like), 5))


@pytest.fixture(scope="module")
def batch() -> Batch:
    return batch_of(ROWS, STATES, LOW + 0.1, HIGH - 0.1)


@pytest.fixture(scope="module")
def noise() -> Noise:
    random = np.random.default_rng(1)
    return Noise(*(jnp.float32(random.normal(size=(3, ROWS, ACTIONS)))))


# The same in NumPy, float64, written from the equations


class Reference:
    def __init__(self, state, batch: Batch, noise: Noise, fitted: Fitted):
        self.batch = doubles(batch)
        self.noise = Noise(*(np.asarray(x, np.float64) for x in noise))
        actor = state.actor.tree()
        self.actor, self.alpha = layers(actor.net), np.exp(float(actor.log_alpha))
        self.critic, self.target = (
            members(b.tree()) for b in (state.critic, state.target)
        )
        self.b = layers(fitted.behavior.net)

    def log_b(self, s, a):
        out = forward(self.b, s).reshape(-1, 3, COMPONENTS, ACTIONS)
        log_w, mean = log_softmax(out[:, 0], axis=1), out[:, 1]
        std = np.exp(3.5 * np.tanh(out[:, 2]) - 1.5)
        z = (np.clip(a, LOW + 1e-3 * SCALE, HIGH - 1e-3 * SCALE) - CENTER) / SCALE
        normal = stats.norm.logpdf(np.arctanh(z)[:, None], mean, std)
        density = logsumexp(log_w + normal, axis=1) - np.log((1 - z**2) * SCALE)
        return density.sum(axis=-1)

    def sample(self, s, noise):
        out = forward(self.actor, s)
        mean, log_std = out[:, :ACTIONS], np.clip(out[:, ACTIONS:], -20, 2)
        z = np.tanh(mean + np.exp(log_std) * noise)
        normal = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
        density = normal - np.log((1 - z**2) * SCALE)
        return CENTER + SCALE * z, density.sum(axis=-1)

    def offset(self, critics, s, a):
        return np.stack([forward(c, s, a)[:, 0] for c in critics])

    def y(self):
        b = self.batch
        a, _ = self.sample(b.next_observations, self.noise.following)
        q = self.offset(self.target, b.next_observations, a).min(axis=0)
        q = q + self.log_b(b.next_observations, a)
        return b.rewards + 2.0 + 0.9 * (1 - b.terminals) * q

    def steepness(self):
        """Through the layers by hand: which units are on decides the slope."""
        s = self.batch.observations
        a, _ = self.sample(s, self.noise.penalty)
        total = 0.0
        for net in self.critic:
            x, slopes = np.hstack([s, a]), np.eye(STATES + ACTIONS)[STATES:]
            slopes = np.broadcast_to(slopes, (ROWS, *slopes.shape))
            for w, b in net[:-1]:
                x = x @ w + b
                slopes = (slopes @ w) * (x > 0)[:, None]
                x = np.maximum(x, 0)
            slopes = (slopes @ net[-1][0])[..., 0] * SCALE
            total += np.mean(np.sum(slopes**2, axis=-1))
        return total

    def bellman(self):
        b = self.batch
        q = self.offset(self.critic, b.observations, b.actions)
        q = q + self.log_b(b.observations, b.actions)
        return sum(np.mean((q[j] - self.y()) ** 2) for j in range(2))

    def critic_loss(self):
        return self.bellman() + 0.3 * self.steepness()

    def policy_loss(self):
        s = self.batch.observations
        a, log_prob = self.sample(s, self.noise.now)
        q = self.offset(self.critic, s, a).min(axis=0) + self.log_b(s, a)
        return np.mean(self.alpha * log_prob - q)

    def alpha_loss(self):
        """The entropy is judged in units of the box."""
        _, log_prob = self.sample(self.batch.observations, self.noise.now)
        return self.alpha * np.mean(-log_prob - np.log(SCALE).sum() + ACTIONS)


@pytest.fixture(scope="module")
def reference(state, batch, noise, fitted) -> Reference:
    return Reference(state, batch, noise, fitted)


@jax.jit
def losses(state, batch, noise, fitted):
    actor, critic = state.actor.tree(), state.critic.tree()
    y = fisher_brc.critic_target(
        actor, state.target.tree(), batch, noise.following, OPTIONS, fitted
    )
    pi = fisher_brc.distribution(actor.net, batch.observations, BOX)
    flat_at, _ = pi.sample_with(noise.penalty)
    of_critic = jax.value_and_grad(fisher_brc.critic_loss, has_aux=True)(
        critic, batch, y, flat_at, OPTIONS, fitted
    )
    of_actor = jax.value_and_grad(fisher_brc.actor_loss, has_aux=True)(
        actor, critic, batch, noise.now, fitted
    )
    return y, of_critic, of_actor


def test_target_and_critic_loss_differentiated_twice(
    state, batch, noise, fitted, reference
):
    y, ((loss, metrics), gradient), _ = losses(state, batch, noise, fitted)
    np.testing.assert_allclose(y, reference.y(), rtol=1e-4, atol=1e-4)
    assert float(loss) == pytest.approx(reference.critic_loss(), rel=1e-4)
    steep = reference.steepness() / 2
    assert float(metrics["critic/steepness"]) == pytest.approx(steep, rel=1e-4)
    random = np.random.default_rng(2)
    by_penalty = []
    for member in range(2):
        for layer, arrays in enumerate(reference.critic[member]):
            for name, array in zip("wb", arrays):
                index = tuple(random.integers(n) for n in array.shape)
                found = getattr(gradient.layers[layer], name)[(member, *index)]
                expected = slope(reference.critic_loss, array, index)
                assert float(found) == pytest.approx(expected, rel=2e-3, abs=2e-3)
                by_penalty.append(slope(reference.steepness, array, index))
    # There is something to see of the second derivative.
    assert np.abs(by_penalty).max() > 0.1


def test_policy_loss(state, batch, noise, fitted, reference):
    (loss, metrics), gradient = losses(state, batch, noise, fitted)[-1]
    total = reference.policy_loss() + reference.alpha_loss()
    assert float(loss) == pytest.approx(total, rel=1e-3)
    # d alpha / d log alpha = alpha
    by_alpha = reference.alpha_loss()
    assert float(gradient.log_alpha) == pytest.approx(by_alpha, rel=1e-3)
    assert float(metrics["actor/alpha"]) == pytest.approx(reference.alpha, rel=1e-5)
    random = np.random.default_rng(3)
    for layer, arrays in enumerate(reference.actor):
        for name, array in zip("wb", arrays):
            index = tuple(random.integers(n) for n in array.shape)
            found = getattr(gradient.net.layers[layer], name)[index]
            expected = slope(reference.policy_loss, array, index)
            assert float(found) == pytest.approx(expected, rel=1e-2, abs=2e-3)


def test_the_policy_steps_by_the_new_critics(state, batch, noise, fitted, reference):
    after, _ = jax.jit(fisher_brc.update_with)(state, batch, noise, OPTIONS, fitted)
    # Adam's first step is the rate, against the gradient's sign.
    moved = (after.critic.tree().layers[1].b - state.critic.tree().layers[1].b)[0]
    array = reference.critic[0][1][1]
    slopes = np.array([slope(reference.critic_loss, array, (i,)) for i in range(WIDTH)])
    clear = np.abs(slopes) > 1e-3
    assert clear.sum() > 2
    np.testing.assert_allclose(moved[clear], -3e-4 * np.sign(slopes[clear]), rtol=1e-2)
    # Targets follow the critics as they are after the step.
    for old, new, critic in zip(
        *map(jax.tree.leaves, (state.target, after.target, after.critic.params))
    ):
        np.testing.assert_allclose(new, old + 0.05 * (critic - old), atol=1e-6)
    # What the policy's optimiser has seen is the gradient by the new critics.
    newer = Reference(state._replace(critic=after.critic), batch, noise, fitted)
    seen = after.actor.mean.tree().net.layers[-1].b / 0.1
    for i in range(2 * ACTIONS):
        expected = slope(newer.policy_loss, newer.actor[-1][1], (i,))
        assert float(seen[i]) == pytest.approx(expected, rel=1e-2, abs=1e-3)
        assert expected != slope(reference.policy_loss, reference.actor[-1][1], (i,))


# Problems with known answers: one state number, one action in +-1

UNIT = Box(-jnp.ones(1), jnp.ones(1))
PROBE = Options(
    width=16,
    critic_width=32,
    critic_rate=2e-3,
    policy_rate=2e-3,
    target_rate=0.05,
    discount=0.8,
    bonus=0.0,
)
TRANSITIONS = 4000


@cache
def begun() -> fisher_brc.State:
    given = Given(1, 1, UNIT)
    return jax.jit(lambda: fisher_brc.start(jax.random.key(0), given, PROBE))()


def behavior(weights, means, std: float) -> mixture.Model:
    """The same in every state: components with these weights and means (before the
    tanh)."""
    options = FitOptions(policy_width=1)

    def like():
        return mixture.start(jax.random.key(0), 1, 1, 1, 1, options).model.tree().b

    empty = jax.tree.map(lambda x: jnp.zeros(x.shape), jax.eval_shape(like))
    raw = np.arctanh((np.log(std) + 1.5) / 3.5)
    rest = [0.0] * (COMPONENTS - len(means))
    logits = [*np.log(weights), *[-30.0 for _ in rest]]
    bias = np.array([*logits, *means, *rest, *[raw] * COMPONENTS], np.float32)
    return eqx.tree_at(lambda m: m.net.layers[-1].b, empty, jnp.asarray(bias))


def learn(rows: np.ndarray, b: mixture.Model, **changes) -> fisher_brc.State:
    one = partial(jax.tree.map, lambda x: jnp.asarray(x, jnp.float32)[None])
    zero = jnp.zeros(1, jnp.int32)
    replicas = fleet.Replicas(
        zero.astype(jnp.uint32),
        zero,
        zero + len(rows),
        one(replace(PROBE, **changes)),
        one(Fitted(UNIT, b)),
    )
    state, _ = fleet.advance(
        fisher_brc.update,
        jax.tree.map(lambda x: jnp.array(x)[None], begun()),
        replicas,
        fleet.Packed(jnp.asarray(rows, jnp.float32), 1, 1),
        0,
        1000,
        64,
    )
    return jax.tree.map(lambda x: x[0], state)


def rows_of(state, action, reward, following, terminal) -> np.ndarray:
    columns = np.broadcast_arrays(state, action, reward, following, terminal, 0.0)
    return np.stack(columns, axis=1).astype(np.float32)


def q_of(state, b: mixture.Model, s: float, actions: np.ndarray) -> np.ndarray:
    a = jnp.asarray(actions, jnp.float32)[:, None]
    rows = jnp.full_like(a, s)
    offset = fisher_brc.values_of(state.critic.tree(), rows, a).mean(axis=0)
    return np.asarray(offset + fisher_brc.log_b(rows, a, Fitted(UNIT, b)))


def test_values_add_up_over_time():
    """Two steps: nothing, then 1, and a bonus of 0.5 a step. Without a penalty offsets
    make up for all of log b."""
    a = np.random.default_rng(0).uniform(-0.9, 0.9, TRANSITIONS // 2)
    first = rows_of(-1.0, a, 0.0, 1.0, 0.0)
    second = rows_of(1.0, a, 1.0, 0.0, 1.0)
    b = behavior([1.0], [0.0], 0.7)
    state = learn(np.concatenate([first, second]), b, penalty=0.0, bonus=0.5)
    some = np.linspace(-0.7, 0.7, 5)
    np.testing.assert_allclose(q_of(state, b, 1.0, some), 1.5, atol=0.1)
    np.testing.assert_allclose(q_of(state, b, -1.0, some), 0.5 + 0.8 * 1.5, atol=0.1)


def bandit() -> tuple[np.ndarray, mixture.Model]:
    """Actions near -0.5, and a third as many near +0.5, which are rewarded."""
    random = np.random.default_rng(0)
    std = 0.25
    way = random.choice([-1, 1], TRANSITIONS, p=[0.75, 0.25])
    a = np.tanh(way * np.arctanh(0.5) + std * random.normal(size=TRANSITIONS))
    b = behavior([0.75, 0.25], [-np.arctanh(0.5), np.arctanh(0.5)], std)
    return rows_of(0.0, a, 3.0 * (a > 0), 0.0, 1.0), b


@pytest.mark.parametrize(("penalty", "best"), [(0.05, 0.5), (300.0, -0.5)])
def test_the_penalty_decides_between_rewards_and_the_behavior(penalty, best):
    """With flat offsets Q is log b and a constant: the more frequent action wins."""
    rows, b = bandit()
    state = learn(rows, b, penalty=penalty)
    pi = fisher_brc.distribution(state.actor.tree().net, jnp.zeros((1, 1)), UNIT)
    assert float(pi.mode()[0, 0]) == pytest.approx(best, abs=0.15)
    # Where nobody went, Q falls off as b does.
    logged, *never = q_of(state, b, 0.0, np.array([best, -0.97, 0.97]))
    assert (np.array(never) < logged - 0.5).all()
    if penalty < 1:
        return
    # A flat offset is the mean of what log b lacks.
    a = jnp.asarray(rows[:, 1:2])
    log_b = fisher_brc.log_b(jnp.zeros_like(a), a, Fitted(UNIT, b))
    offset = fisher_brc.values_of(state.critic.tree(), jnp.zeros_like(a), a)
    expected = float(rows[:, 2].mean() - log_b.mean())
    np.testing.assert_allclose(offset, expected, atol=0.3)


def test_the_start_is_the_released_codes():
    state = begun()
    net, critic, target = (
        state.actor.tree().net,
        state.critic.tree(),
        state.target.tree(),
    )
    assert [d.w.shape for d in net.layers] == [(1, 16), (16, 16), (16, 16), (16, 2)]
    for w in (net.layers[1].w, critic.layers[2].w[1]):
        np.testing.assert_allclose(w @ w.T, 2 * np.eye(len(w)), atol=1e-5)
    last = net.layers[3].w
    np.testing.assert_allclose(last.T @ last, 1e-4 * np.eye(2), atol=1e-8)
    for one, other in zip(*map(jax.tree.leaves, (critic, target))):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_it_passes_the_fork():
    """Around the obstacle to the goal, though every step before it has a bonus."""
    share = share_at_goal(
        "fisher_brc",
        steps=2000,
        behavior_steps=2000,
        behavior_width=64,
        width=64,
        critic_width=64,
        batch_size=128,
        policy_rate=1e-3,
        critic_rate=1e-3,
    )
    assert share >= 0.8
