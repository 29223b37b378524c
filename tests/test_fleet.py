"""The training loop with a learner whose answer is known: least squares by SGD."""

import functools
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands import Trajectories, fleet
from manyhands.types import Batch

TRUTH = np.array([2.0, -1.0, 0.5])


def make_data(rows: int, slope: float, seed: int = 0) -> Trajectories:
    """Rewards are slope * <TRUTH, observation>, exactly."""
    observations = np.random.default_rng(seed).normal(size=(rows, 3))
    return Trajectories.from_arrays(
        observations,
        np.zeros((rows, 1)),
        slope * observations @ TRUTH,
        np.zeros(rows),
        trajectory=np.arange(rows) // 10,
    )


class State(NamedTuple):
    weights: jax.Array
    noise: jax.Array  # the sum of all random numbers it was given


def update(state: State, batch: Batch, key, config, fitted):
    def loss(weights):
        return jnp.mean((batch.observations @ weights - batch.rewards) ** 2)

    value, gradient = jax.value_and_grad(loss)(state.weights)
    weights = state.weights - config["rate"] * gradient + fitted
    noise = state.noise + jax.random.normal(key)
    metrics = {"loss": value, "first": batch.trajectory[0].astype(jnp.float32)}
    return State(weights, noise), metrics


def replicas(seeds, rates, starts, sizes) -> fleet.Replicas:
    return fleet.Replicas(
        seed=jnp.asarray(seeds, jnp.uint32),
        start=jnp.asarray(starts, jnp.int32),
        size=jnp.asarray(sizes, jnp.int32),
        config={"rate": jnp.asarray(rates, jnp.float32)},
        fitted=jnp.zeros((len(seeds), 3)),
    )


def fresh(many: int) -> State:
    return State(jnp.zeros((many, 3)), jnp.zeros(many))


advance = functools.partial(fleet.advance, update)


@pytest.mark.parametrize("together", [True, False])
def test_every_replica_learns_its_own_problem(together):
    parts = [make_data(200, 1.0), make_data(100, -3.0, seed=1)]
    rows = np.concatenate([fleet.Packed.of(part).rows for part in parts])
    packed = fleet.Packed(jnp.asarray(rows), 3, 1)
    group = replicas([0, 1], [0.1, 0.05], [0, 200], [200, 100])
    state, metrics = advance(fresh(2), group, packed, 0, 400, 32, together)
    np.testing.assert_allclose(state.weights[0], TRUTH, atol=1e-4)
    np.testing.assert_allclose(state.weights[1], -3 * TRUTH, atol=1e-4)
    assert metrics["loss"].shape == (2,)
    # The mean over all steps: the first ones were far off.
    assert float(metrics["loss"][0]) > 1e-3


@pytest.mark.parametrize("together", [True, False])
def test_a_replica_does_not_feel_the_others(together):
    packed = fleet.Packed.of(make_data(200, 1.0))
    group = replicas([3, 4, 5], [0.1, 0.01, 0.02], [0, 0, 0], [200, 200, 150])
    state, _ = advance(fresh(3), group, packed, 0, 50, 16, together)
    for r in range(3):
        alone = jax.tree.map(lambda x: x[r : r + 1], group)  # noqa: B023
        single, _ = advance(fresh(1), alone, packed, 0, 50, 16, together)
        np.testing.assert_allclose(state.weights[r], single.weights[0], rtol=1e-5)
        assert float(state.noise[r]) == pytest.approx(float(single.noise[0]), rel=1e-5)
    assert len({float(x) for x in state.noise}) == 3  # no key is used twice


@pytest.mark.parametrize("together", [True, False])
def test_stopping_at_any_step_and_going_on_gives_the_same_bits(together):
    packed = fleet.Packed.of(make_data(200, 1.0))
    group = replicas([7, 8], [0.1, 0.1], [0, 0], [200, 200])
    straight, _ = advance(fresh(2), group, packed, 0, 30, 16, together)
    for stop in (1, 13, 29):
        state, _ = advance(fresh(2), group, packed, 0, stop, 16, together)
        state, _ = advance(state, group, packed, stop, 30 - stop, 16, together)
        for a, b in zip(straight, state):
            assert np.array_equal(a, b)


def test_batches_come_from_the_replicas_range_only():
    packed = fleet.Packed.of(make_data(200, 1.0))
    group = replicas([0], [0.0], [150], [50])
    for step in range(0, 60, 20):
        _, metrics = advance(fresh(1), group, packed, step, 1, 8)
        assert 15 <= float(metrics["first"][0]) < 20


def test_a_packed_row_is_the_transition():
    data = make_data(30, 1.0)
    batch = fleet.Packed.of(data).batch(jnp.array([3, 29]))
    np.testing.assert_array_equal(batch.observations, data.observations[[3, 29]])
    np.testing.assert_array_equal(
        batch.next_observations, data.next_observations[[3, 29]]
    )
    np.testing.assert_array_equal(batch.rewards, data.rewards[[3, 29]])
    assert batch.trajectory.tolist() == [0, 2]
    assert batch.terminals.tolist() == [0, 0]


def test_several_data_sets_lie_side_by_side():
    parts = [
        fleet.Packed.of(make_data(rows, value))
        for rows, value in ((30, 1.0), (20, 5.0))
    ]
    joined, ranges = fleet.Packed.join(parts)
    assert ranges == [range(30), range(30, 50)]
    for part, rows in zip(parts, ranges):
        np.testing.assert_array_equal(joined.rows[rows.start : rows.stop], part.rows)
    alone, (whole,) = fleet.Packed.join(parts[:1])
    assert alone is parts[0]
    assert whole == range(30)


def test_a_packed_row_knows_what_came_next():
    data = make_data(30, 1.0)
    actions = np.linspace(-1, 1, 30, dtype=np.float32)[:, None]
    batch = fleet.Packed.of(replace(data, actions=actions)).batch(jnp.arange(30))
    ends = np.arange(30) % 10 == 9
    np.testing.assert_array_equal(np.isnan(batch.next_actions[:, 0]), ends)
    following = np.roll(actions, -1, axis=0)
    np.testing.assert_array_equal(batch.next_actions[~ends], following[~ends])
    # Files may have rounded the two copies of a state differently.
    rounded = replace(data, next_observations=data.next_observations * (1 + 1e-6))
    batch = fleet.Packed.of(rounded).batch(jnp.arange(30))
    np.testing.assert_array_equal(np.isnan(batch.next_actions[:, 0]), ends)
    # Rows that were left out break it, too.
    kept, _ = replace(data, actions=actions).split_within(0.3, 0)
    batch = fleet.Packed.of(kept).batch(jnp.arange(kept.transitions))
    known = ~np.isnan(batch.next_actions[:, 0])
    step = actions[1] - actions[0]
    moved = batch.next_actions[known] - batch.actions[known]
    np.testing.assert_allclose(moved, step[None].repeat(known.sum(), 0), atol=1e-6)
    assert 0 < known.sum() < kept.transitions - len(kept)


def test_rows_may_have_no_next_actions():
    packed = fleet.Packed.of(make_data(30, 1.0))
    bare = fleet.Packed(packed.rows[:, :-1], 3, 1)
    assert bare.batch(jnp.arange(2)).next_actions is None


def test_no_steps_is_no_change():
    packed = fleet.Packed.of(make_data(30, 1.0))
    group = replicas([0], [0.1], [0], [30])
    state, metrics = advance(fresh(1), group, packed, 5, 0, 8)
    assert not state.weights.any()
    assert metrics == {}
