"""Rollouts in a model: they end where the world does; the buffer keeps their steps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands import UserError, make
from manyhands.dynamics import ensemble, termination
from manyhands.dynamics.imagination import Noise, World, ends, imagine
from manyhands.dynamics.rollouts import Buffer, Underway
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.envs import fork
from manyhands.nn.distributions import TanhNormal
from manyhands.nn.networks import MLP, Dense
from manyhands.types import Batch

STATES, ACTIONS, ROWS, HORIZON = 4, 2, 6, 4


endless = jax.jit(partial(imagine, ending="never"))
insert = jax.jit(Buffer.insert)


@partial(jax.jit, static_argnums=1)
def drawn(key: jax.Array, rows: int) -> Noise:
    return Noise.draw(key, rows, STATES, ACTIONS, elites=2)


def batch_of(numbers: np.ndarray) -> Batch:
    rows = jnp.asarray(numbers, jnp.float32)
    s = jnp.tile(rows[:, None], (1, 2))
    none = jnp.zeros(len(rows), jnp.int32)
    return Batch(s, s[:, :1], rows, s + 0.5, jnp.zeros(len(rows)), none)


def test_the_buffer_is_a_ring_that_skips_what_is_not_kept():
    buffer = Buffer.empty(5, 2, 1)
    buffer = insert(buffer, batch_of(np.arange(3)), jnp.array([True, False, True]))
    assert (int(buffer.place), int(buffer.filled)) == (2, 2)
    np.testing.assert_array_equal(buffer.rows[:, 0], [0, 2, 0, 0, 0])
    buffer = insert(buffer, batch_of(np.arange(10, 13)), jnp.ones(3, bool))
    buffer = insert(buffer, batch_of(np.arange(20, 23)), jnp.array([False, True, True]))
    assert (int(buffer.place), int(buffer.filled)) == (2, 5)
    np.testing.assert_array_equal(buffer.rows[:, 0], [21, 22, 10, 11, 12])
    buffer = insert(buffer, batch_of(np.arange(30, 33)), jnp.zeros(3, bool))
    assert (int(buffer.place), int(buffer.filled)) == (2, 5)
    drawn = buffer.sample(jax.random.key(0), 300, 2, 1)
    assert set(np.asarray(drawn.rewards)) == {21, 22, 10, 11, 12}
    np.testing.assert_array_equal(drawn.observations[:, 1], drawn.rewards)
    np.testing.assert_array_equal(drawn.next_observations[:, 0], drawn.rewards + 0.5)


def test_only_what_is_there_is_drawn():
    keep = jnp.array([True, False, True])
    buffer = Buffer.empty(1000, 2, 1).insert(batch_of(np.array([7, 8, 9])), keep)
    drawn = buffer.sample(jax.random.key(0), 50, 2, 1)
    assert set(np.asarray(drawn.rewards)) == {7, 9}


# In a world whose model is exact


@pytest.fixture(scope="module")
def world() -> World:
    """Of the fork: y grows by 0.05 + action; certain, and scaled by two."""
    settings = Settings("gaussian", 3, 2, 4, 1, 1, 0, 1e-3)
    start = jax.jit(lambda key: ensemble.start(key, STATES, ACTIONS, settings))
    state = start(jax.random.key(0))
    inputs = Inputs(jnp.zeros(STATES + ACTIONS), jnp.ones(STATES + ACTIONS))
    members = ensemble.members(state, inputs, settings)
    silent = jax.tree.map(jnp.zeros_like, members.net)
    net = ensemble.eqx.tree_at(
        lambda n: (n.mean.b, n.log_variance.b),
        silent,
        (
            # [reward, x, y, dx, dy] by member; the last member is no elite.
            jnp.array([[1, 0, 0.1, 0, -0.1], [1, 0, 0.1, 0, -0.1], [9, 9, 9, 9, 9.0]]),
            jnp.broadcast_to(jnp.array([-3.0, -8, -8, -8, -8]), (3, 5)),
        ),
    )
    highest, lowest = jnp.full((3, 5), 0.5), jnp.full((3, 5), -30.0)
    members = ensemble.Member(net, highest, lowest, members.inputs)
    elites = jnp.array([1, 0], jnp.int32)
    return World(members, elites, jnp.zeros(STATES), jnp.full(STATES, 0.5))


def still(rows: int) -> TanhNormal:
    shape = rows, ACTIONS
    return TanhNormal(
        jnp.zeros(shape), jnp.full(shape, -9.0), jnp.zeros(ACTIONS), jnp.ones(ACTIONS)
    )


def test_a_step_draws_from_an_elite_and_pays_for_doubt(world):
    noise = drawn(jax.random.key(0), ROWS)
    s = jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, STATES)), jnp.float32)
    said = endless(still(ROWS), s, noise, penalty=2.0, world=world)
    log_variance = np.array([-3.0, -8, -8, -8, -8])
    # The soft clamp from above.
    log_variance = 0.5 - np.log1p(np.exp(0.5 - log_variance))
    std = np.exp(log_variance / 2)
    price = np.sqrt(std[0] ** 2 + np.sum((0.5 * std[1:]) ** 2))  # in the task's units
    np.testing.assert_allclose(said.price, price, rtol=1e-4)
    expected = 1 + std[0] * np.asarray(noise.target[:, 0]) - 2 * price
    np.testing.assert_allclose(said.batch.rewards, expected, rtol=1e-4)
    change = np.array([0, 0.1, 0, -0.1]) + std[1:] * np.asarray(noise.target[:, 1:])
    np.testing.assert_allclose(said.batch.next_observations - s, change, atol=1e-5)
    assert said.sane.all()


def test_rollouts_never_cross_a_termination(world):
    """Points below the obstacle climb; in twice the units of the task."""
    rule = termination.RULES["fork"]
    step = jax.jit(partial(imagine, ending="fork"))
    outside = jax.jit(rule)
    random = np.random.default_rng(1)
    underway = Underway.none(HORIZON, ROWS, STATES)
    buffer = Buffer.empty(4000, STATES, ACTIONS)
    for number in range(60):
        x, y = random.uniform(-0.6, 0.6, ROWS), random.uniform(-0.6, -0.38, ROWS)
        starts = np.stack([x, y, -x, 0.85 - y], axis=1) / 0.5
        starts = starts[~np.asarray(outside(jnp.asarray(starts * 0.5)))]
        starts = jnp.asarray(np.resize(starts, (ROWS, STATES)), jnp.float32)
        s, alive = underway.joined(starts)
        noise = drawn(jax.random.key(number), len(s))
        said = step(still(len(s)), s, noise, penalty=0.0, world=world)
        keep = alive & said.sane
        buffer = insert(buffer, said.batch, keep)
        goes_on = keep & (said.batch.terminals == 0)
        underway = underway.moved(said.batch.next_observations, goes_on)
    rows = np.asarray(buffer.rows)[: int(buffer.filled)]
    before, after, terminal = rows[:, :4] * 0.5, rows[:, 7:11] * 0.5, rows[:, 11]
    # No step starts where the world has ended; a step is terminal where it does.
    assert not np.asarray(rule(jnp.asarray(before))).any()
    assert np.array_equal(np.asarray(rule(jnp.asarray(after))), terminal > 0)
    assert 30 < terminal.sum() < len(rows) / 2
    # All that ended early are missing from those of full length.
    assert len(rows) < 60 * ROWS * HORIZON - terminal.sum()


def test_a_lost_model_is_not_believed(world):
    s = jnp.zeros((ROWS, STATES)).at[0, 0].set(150.0).at[1, 2].set(jnp.nan)
    noise = drawn(jax.random.key(0), ROWS)
    said = endless(still(ROWS), s, noise, penalty=0.0, world=world)
    assert said.sane.tolist() == [False, False, *[True] * (ROWS - 2)]


def test_an_end_may_be_learnt(world):
    """Each of the elites has its own opinion; the mean of them is the chance."""
    layer = Dense(jnp.zeros((3, STATES, 1)), jnp.array([[2.0], [-2.0], [9.0]]))
    net = ensemble.eqx.tree_at(
        lambda n: n.ending,
        world.members.net,
        MLP((layer,)),
        is_leaf=lambda x: x is None,
    )
    members = ensemble.eqx.tree_at(lambda m: m.net, world.members, net)
    uniform = jnp.array([0.0, 0.49, 0.51, 1.0])
    found = ends(
        jnp.zeros((4, STATES)), uniform, "learned", world._replace(members=members)
    )
    assert found.tolist() == [True, True, False, False]


# When worlds end


def test_rules():
    hopper = jnp.zeros((4, 11)).at[:, 0].set(jnp.array([1.2, 0.6, 1.2, jnp.nan]))
    hopper = hopper.at[2, 5].set(-101.0)
    assert termination.hopper(hopper).tolist() == [False, True, True, True]
    tilted = hopper[:1].at[0, 1].set(-0.21)
    assert termination.hopper(tilted).tolist() == [True]
    walker = jnp.zeros((4, 17)).at[:, 0].set(jnp.array([1.2, 0.7, 2.1, 1.2]))
    walker = walker.at[3, 1].set(1.1)
    assert termination.walker2d(walker).tolist() == [False, True, True, True]
    assert termination.ant(jnp.array([[0.5, 0.0], [0.1, 0.0]])).tolist() == [
        False,
        True,
    ]
    assert not termination.never(walker).any()


def test_the_rule_of_the_fork_is_that_of_its_data():
    data = make("fork-2", 500)
    found = termination.RULES["fork"](jnp.asarray(data.next_observations))
    assert np.array_equal(found, data.terminals)
    middle = jnp.array([0.0, -0.34, 0.0, 1.0])
    assert bool(fork.hit_obstacle(middle))
    assert bool(termination.RULES["fork"](middle))


def test_which_rule(small):
    data = make("fork-1", 100)
    assert termination.decide("auto", data, "manyhands/Fork-v0") == "fork"
    assert termination.decide("auto", data, "manyhands/Leap-v0") == "fork"
    assert termination.decide("auto", data, "HalfCheetah-v5") == "never"
    assert termination.decide("auto", data, "walker2d-medium-v2") == "walker2d"
    assert termination.decide("auto", data, None) == "learned"
    assert termination.decide("hopper", data, None) == "hopper"
    assert small.terminals.any()
    assert termination.decide("auto", small, "Pendulum-v1") == "learned"


def test_an_end_that_nobody_saw_cannot_be_learnt():
    data = make("fork-1", 100)
    columns = dict(
        observations=data.observations,
        actions=data.actions,
        rewards=data.rewards,
        terminals=data.terminals,
        timeouts=data.timeouts,
        trajectory=data.trajectory,
    )
    blind = type(data).from_arrays(**columns)
    assert blind.next_known().transitions < blind.transitions
    with pytest.raises(UserError, match="ending: expected a rule"):
        termination.decide("auto", blind, None)
