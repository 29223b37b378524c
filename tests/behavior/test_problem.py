"""Data made ready for fitting: what is learned from, what is held out, and how."""

import jax.numpy as jnp
import numpy as np
import pytest

from manyhands import Trajectories, UserError
from manyhands.behavior import problem as module
from manyhands.behavior.problem import Scaling, Table, prepare

LENGTHS = [3, 40, 100, 10, 25, 200]


def numbered(lengths=LENGTHS) -> Trajectories:
    """Every row can be told by its observation: its number, and a column of sevens."""
    rows = sum(lengths)
    random = np.random.default_rng(0)
    return Trajectories.from_arrays(
        observations=np.stack([np.arange(rows), np.full(rows, 7)], axis=1),
        actions=random.uniform(-1, 3, size=(rows, 2)),
        rewards=np.arange(rows) / 8,
        terminals=np.zeros(rows),
        trajectory=np.repeat(np.arange(len(lengths)), lengths),
        action_bounds=(-1.0, [3.0, 4.0]),
    )


def row_numbers(scaling: Scaling, observations) -> np.ndarray:
    """Which rows these are, from their standardised observations."""
    exact = np.asarray(observations)[:, 0] * scaling.scale[0] + scaling.center[0]
    return np.rint(exact).astype(int)


# Scaling


def test_scaling_in_float64():
    raw = np.random.default_rng(0).normal([5, -300], [2, 0.1], size=(500, 2))
    raw = raw.astype(np.float32)
    scaling = Scaling.of(raw)
    exact = raw.astype(np.float64)
    np.testing.assert_allclose(scaling.center, exact.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scaling.scale, exact.std(axis=0), rtol=1e-3)
    scaled = scaling(raw)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=1e-3)


def test_a_column_that_hardly_varies_is_not_blown_up():
    raw = np.random.default_rng(0).normal([0, 0, 1000], [1, 1e-7, 1e-4], size=(500, 3))
    scaling = Scaling.of(raw.astype(np.float32))
    assert np.array_equal(scaling.scale[1:], [1, 1])
    assert np.abs(scaling(raw.astype(np.float32))[:, 1:]).max() < 1e-2


def test_scaling_of_many_rows():
    raw = np.full((300_000, 2), 0.1, np.float32)
    raw[:, 1] = np.random.default_rng(0).normal(50, 0.01, size=len(raw))
    scaling = Scaling.of(raw)
    assert scaling.scale[0] == 1  # it does not vary
    np.testing.assert_allclose(scaling(raw)[:, 1].mean(), 0, atol=1e-3)
    np.testing.assert_allclose(scaling(raw)[:, 1].std(), 1, atol=1e-3)


def test_no_scaling_changes_nothing():
    raw = np.array([[3.0, -2.0]], np.float32)
    assert np.array_equal(Scaling.none(2)(raw), raw)


# Table


def test_a_table_has_a_limited_number_of_rows_of_every_trajectory():
    data = numbered()
    table = Table.of(data, len(data))
    assert table.counts.tolist() == [3, 40, 64, 10, 25, 64]
    assert np.array_equal(np.bincount(table.trajectory), table.counts)
    number = table.observations[:, 0].astype(int)
    assert len(set(number)) == len(number)
    assert np.array_equal(data.trajectory[number], table.trajectory)
    assert np.array_equal(data.actions[number], table.actions)
    # Drawn at random, not the first ones; and the same ones again.
    assert number[table.trajectory == 5].max() > data.offsets[5] + 150
    assert np.array_equal(Table.of(data, len(data)).observations, table.observations)


def test_a_table_of_many_trajectories_has_a_limited_number_of_rows(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 31)
    data = numbered()
    assert Table.of(data, len(data)).counts.tolist() == [3, 5, 5, 5, 5, 5]
    monkeypatch.setattr(module, "ROWS", 2)  # but one row of each, whatever it costs
    assert Table.of(data, len(data)).counts.tolist() == [1] * 6


def test_a_table_of_a_part_counts_by_position_in_the_whole():
    data = numbered()
    table = Table.of(data[[4, 1]], len(data))
    assert table.counts.tolist() == [0, 40, 0, 0, 25, 0]
    assert set(table.trajectory) == {1, 4}


def test_sums_by_trajectory():
    data = numbered()
    table = Table.of(data[[5, 3, 2]], len(data))
    values = np.random.default_rng(1).normal(size=(len(table.trajectory), 3))
    sums = table.sums(values.astype(np.float32))
    assert sums.dtype == np.float64
    expected = np.zeros((6, 3))
    for trajectory, value in zip(table.trajectory, values.astype(np.float32)):
        expected[trajectory] += value
    np.testing.assert_allclose(sums, expected, rtol=1e-12)


# Prepare


@pytest.fixture
def prepared():
    return prepare(numbered(), holdout=0.2, standardise=True, seed=0)


def test_steps_to_learn_from_and_steps_held_out_are_disjoint_and_complete(prepared):
    data, packed = prepared.data, prepared.packed
    learned = packed.batch(jnp.arange(prepared.transitions))
    kept = row_numbers(prepared.scaling, learned.observations)
    held = row_numbers(prepared.scaling, prepared.test.observations)
    assert sorted([*kept, *held]) == list(range(data.transitions))
    # A fifth of every trajectory; of 3 steps a fifth is 1.
    assert prepared.test.counts.tolist() == [1, 8, 20, 2, 5, 40]
    judged = row_numbers(prepared.scaling, prepared.train.observations)
    assert set(judged) <= set(kept)
    assert prepared.train.counts.tolist() == [2, 32, 64, 8, 20, 64]


def test_rows_to_learn_from_are_whole(prepared):
    data = prepared.data
    batch = prepared.packed.batch(jnp.arange(prepared.transitions))
    kept = row_numbers(prepared.scaling, batch.observations)
    assert np.array_equal(batch.actions, data.actions[kept])
    assert np.array_equal(batch.rewards, data.rewards[kept])
    assert np.array_equal(batch.trajectory, data.trajectory[kept])
    following = row_numbers(prepared.scaling, batch.next_observations)
    assert np.array_equal(following, data.next_observations[kept, 0])
    held = row_numbers(prepared.scaling, prepared.test.observations)
    assert np.array_equal(prepared.test.actions, data.actions[held])
    assert np.array_equal(prepared.test.trajectory, data.trajectory[held])


def test_observations_are_standardised_by_those_learned_from(prepared):
    batch = prepared.packed.batch(jnp.arange(prepared.transitions))
    kept = row_numbers(prepared.scaling, batch.observations).astype(np.float64)
    np.testing.assert_allclose(prepared.scaling.center, [kept.mean(), 7], rtol=1e-5)
    np.testing.assert_allclose(prepared.scaling.scale, [kept.std(), 1], rtol=1e-4)
    np.testing.assert_allclose(batch.observations.mean(axis=0), 0, atol=1e-4)
    plain = prepare(numbered(), 0.2, standardise=False, seed=0)
    assert np.array_equal(plain.scaling.scale, [1, 1])
    assert np.array_equal(plain.test.observations[:, 1], np.full(76, 7))


def test_the_box_is_that_of_the_actions(prepared):
    assert np.array_equal(prepared.box.low, [-1, -1])
    assert np.array_equal(prepared.box.high, [3, 4])


def test_trajectories_of_a_view_are_counted_anew():
    """`ids` of a view are positions in the data set that it was taken from."""
    view = numbered()[[5, 0, 2]]
    found = prepare(view, holdout=0.1, standardise=True, seed=0)
    assert found.data.ids.tolist() == [0, 1, 2]
    assert found.test.counts.tolist() == [20, 1, 10]  # of 3 steps, one
    assert found.train.counts.tolist() == [64, 2, 64]


def test_data_too_short_to_hold_anything_out():
    with pytest.raises(UserError, match="expected a trajectory of at least 2 steps"):
        prepare(numbered([1, 1]), holdout=0.1, standardise=True, seed=0)
