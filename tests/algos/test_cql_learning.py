"""CQL's start, and what it learns on problems with known answers."""

from dataclasses import replace
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fork_goals import share_at_goal

from manyhands import fleet
from manyhands.algos import cql
from manyhands.algos.algorithm import Given
from manyhands.algos.cql import Options
from manyhands.nn.optimizer import Trained
from manyhands.types import Box

# One state number, one action in +-1.
UNIT = Box(-jnp.ones(1), jnp.ones(1))
PROBE = Options(
    width=16,
    critic_width=32,
    samples=8,
    conservatism=1.0,
    warm_up=300,
    critic_rate=2e-3,
    policy_rate=1e-3,
    target_rate=0.05,
    discount=0.8,
)
TRANSITIONS = 4000


@cache
def begun() -> cql.State:
    return jax.jit(lambda: cql.start(jax.random.key(0), Given(1, 1, UNIT), PROBE))()


def test_the_start_is_the_released_codes():
    state = begun()
    net, critic, target = (
        state.actor.tree().net,
        state.critic.tree(),
        state.target.tree(),
    )
    assert [d.w.shape for d in net.layers] == [(1, 16), (16, 16), (16, 16), (16, 2)]
    assert critic.layers[0].w.shape == (2, 2, 32)
    for parts, width, bound in ((net.layers, 16, 1e-3), (critic.layers, 32, 3e-3)):
        for hidden in parts[1:3]:
            assert 0.9 < float(jnp.abs(hidden.w).max()) * width**0.5 <= 1
            assert (hidden.b == jnp.float32(0.1)).all()
        assert 0.8 * bound < float(jnp.abs(parts[3].w).max()) <= bound
    assert not np.allclose(target.layers[1].w, critic.layers[1].w)


def learn(
    rows: np.ndarray, bias: list[float] | None = None, **changes
) -> tuple[cql.State, dict[str, float]]:
    """After 1200 updates: the learner, and metrics of the last third.

    Args:
        bias: of the policy's last layer at the start: mean and log-deviation.
    """
    state = begun()
    if bias is not None:
        actor = eqx.tree_at(
            lambda a: a.net.layers[-1].b, state.actor.tree(), jnp.float32(bias)
        )
        state = state._replace(actor=Trained.of(actor))
    one = partial(jax.tree.map, lambda x: jnp.asarray(x, jnp.float32)[None])
    zero = jnp.zeros(1, jnp.int32)
    options = replace(PROBE, **changes)
    replicas = fleet.Replicas(
        zero.astype(jnp.uint32), zero, zero + len(rows), one(options), one(UNIT)
    )
    # A copy: a fleet gives its state up.
    state = jax.tree.map(lambda x: jnp.array(x)[None], state)
    data, metrics = fleet.Packed(jnp.asarray(rows, jnp.float32), 1, 1), {}
    for first in (0, 400, 800):
        state, metrics = fleet.advance(
            cql.update, state, replicas, data, first, 400, 64
        )
    state = jax.tree.map(lambda x: x[0], state)
    return state, {name: float(value[0]) for name, value in metrics.items()}


def rows_of(state, action, reward, following, terminal) -> np.ndarray:
    columns = np.broadcast_arrays(state, action, reward, following, terminal, 0.0)
    return np.stack(columns, axis=1).astype(np.float32)


def q_of(state: cql.State, s: float, actions: np.ndarray) -> np.ndarray:
    a = jnp.asarray(actions, jnp.float32)[:, None]
    rows = jnp.full_like(a, s)
    return np.asarray(cql.values_of(state.critic.tree(), rows, a).mean(axis=0))


WIDE = [0.6, np.log(0.8)]  # a policy that covers the box, but prefers large actions


def slope_of_rewards() -> np.ndarray:
    """One state, uniform actions a, reward 2 a, no future."""
    a = np.random.default_rng(0).uniform(-1, 1, TRANSITIONS)
    return rows_of(0.0, a, 2 * a, 0.0, 1.0)


@pytest.mark.learns
def test_values_are_where_the_loss_has_its_minimum():
    """That is where

        Q(a) = 2 a - w/2 (p(a) / u(a) - 1),  p = exp Q / integral of exp Q, u uniform

    whatever the policy is: that is what dividing by the densities is for. Here it
    stays where it starts."""
    state, _ = learn(slope_of_rewards(), WIDE, policy_rate=1e-9)
    grid = np.linspace(-1, 1, 2002)[1:-1]
    mean, log_std = WIDE
    z = (np.arctanh(grid) - mean) / np.exp(log_std)
    pi = np.exp(-0.5 * z**2) / (1 - grid**2)
    pi /= pi.mean()  # pi / u

    def minimum(proposed: np.ndarray | float) -> np.ndarray:
        q = np.zeros_like(grid)
        for _ in range(200):
            p = proposed * np.exp(q)
            q = 0.9 * q + 0.1 * (2 * grid - 0.5 * (p / p.mean() - 1))
        return q[100::200]

    found = q_of(state, 0.0, grid[100::200])
    np.testing.assert_allclose(found, minimum(1.0), atol=0.15)
    # What it would be without the division.
    assert np.abs(found - minimum((1 + 2 * pi) / 3)).max() > 0.25


@pytest.mark.learns
def test_values_add_up_over_time_without_the_term():
    """Two steps: nothing, then 1. What is left of it in the first state is gamma."""
    a = np.random.default_rng(0).uniform(-1, 1, TRANSITIONS // 2)
    first = rows_of(-1.0, a, 0.0, 1.0, 0.0)
    second = rows_of(1.0, a, 1.0, 0.0, 1.0)
    state, _ = learn(np.concatenate([first, second]), conservatism=0.0)
    some = np.linspace(-0.9, 0.9, 5)
    np.testing.assert_allclose(q_of(state, 1.0, some), 1.0, atol=0.05)
    np.testing.assert_allclose(q_of(state, -1.0, some), 0.8, atol=0.07)


def bandit() -> np.ndarray:
    """Actions near -0.5 and +0.5; the second ones are rewarded."""
    random = np.random.default_rng(0)
    a = random.choice([-0.5, 0.5], TRANSITIONS)
    a += 0.15 * random.normal(size=TRANSITIONS)
    return rows_of(0.0, np.clip(a, -1, 1), a > 0, 0.0, 1.0)


@pytest.mark.learns
def test_it_takes_the_better_of_two_logged_actions():
    state, metrics = learn(bandit())
    pi = cql.distribution(state.actor.tree().net, jnp.zeros((1, 1)), UNIT)
    assert float(pi.mode()[0, 0]) == pytest.approx(0.5, abs=0.15)
    logged, *never = q_of(state, 0.0, np.array([0.5, -0.95, 0.0, 0.95]))
    assert (np.array(never) < logged - 0.5).all()
    assert np.isfinite(list(metrics.values())).all()
    # Only a weight that is learnt moves.
    assert float(state.log_weight.tree()) == 0


@pytest.mark.learns
def test_a_learnt_weight_holds_the_term_at_its_threshold():
    """On uniform actions and a reward of 2 a the term is log 24 + log 2 = 3.87 if Q
    is flat, and log 24 + log 3.63 = 4.47 if Q is the reward."""
    changes = dict(threshold=4.1, policy_rate=1e-9)
    _, metrics = learn(slope_of_rewards(), WIDE, lagrange=True, **changes)
    assert metrics["critic/gap"] == pytest.approx(4.1, abs=0.07)


@pytest.mark.slow
def test_it_passes_the_fork():
    """Around the obstacle to the goal."""
    share = share_at_goal(
        "cql",
        steps=4000,
        width=32,
        critic_width=32,
        samples=2,
        conservatism=1.0,
        warm_up=500,
        batch_size=128,
        policy_rate=2e-3,
        critic_rate=2e-3,
        target_rate=0.03,
    )
    assert share >= 0.6
