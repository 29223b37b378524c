"""The loop that learns dynamics: who is kept, when it stops, how it goes on."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands import Trajectories, UserError
from manyhands.dynamics import fit as fitting
from manyhands.dynamics.fit import Dynamics, DynamicsStage, Job, fit
from manyhands.dynamics.prediction import predict_all, targets_of
from manyhands.dynamics.rows import prepare
from manyhands.dynamics.settings import Settings
from manyhands.training import loop

TINY = Settings("gaussian", 3, 2, 8, 60, 16, 2, 1e-2)


def same(x: np.ndarray) -> np.ndarray:
    return x


def silent(step: int, shown: dict[str, float]) -> None:
    """Nobody is watching."""


@pytest.fixture(autouse=True)
def short_epochs(monkeypatch):
    monkeypatch.setattr(fitting, "CHUNK", 20)


@pytest.fixture(scope="module")
def data(linear) -> Trajectories:
    return linear.data[:30]


def assert_same(one: Dynamics, other: Dynamics) -> None:
    for a, b in zip(jax.tree.leaves(one[:5]), jax.tree.leaves(other[:5]), strict=True):
        assert np.array_equal(a, b)
    assert one.report == other.report


def test_those_that_are_done_do_not_feel_how_long_others_take(data, linear):
    hasty = Settings("gaussian", 3, 2, 8, 2000, 16, 1, 3e-2)
    alone = fit([(data, same)], [Job(0, 0, hasty)], None, silent, 1e9)[0]
    places = [(data, same), (linear.data[:60], same)]
    found = fit(places, [Job(1, 1, hasty), Job(0, 0, hasty)], None, silent, 1e9)
    assert_same(found[1], alone)
    assert found[0].report["updates"] != found[1].report["updates"]


def test_rows_are_held_out_and_never_learnt_from(data):
    rows = prepare(data, same, unit_rewards=False)
    assert len(rows.held.rewards) == 60
    assert len(rows.packed.rows) == 240
    everything = np.concatenate([rows.held.rewards, rows.packed.rows[:, 3]])
    np.testing.assert_array_equal(np.sort(everything), np.sort(data.rewards))
    np.testing.assert_allclose(
        rows.inputs.center[:2], rows.packed.rows[:, :2].mean(axis=0), atol=1e-6
    )
    unit = prepare(data, lambda x: x * 2, unit_rewards=True)
    rewards = np.concatenate([unit.held.rewards, unit.packed.rows[:, 3]])
    assert (rewards.min(), rewards.max()) == (0, 1)
    assert unit.rewards == (data.rewards.min(), data.rewards.max())
    np.testing.assert_allclose(unit.held.observations, 2 * rows.held.observations)
    change = targets_of(unit.held)[:, 1:]
    np.testing.assert_allclose(change, 2 * targets_of(rows.held)[:, 1:], atol=1e-5)


def test_too_little_data_is_refused(data):
    few = Trajectories.from_arrays(
        observations=data.observations[:5],
        actions=data.actions[:5],
        rewards=data.rewards[:5],
        terminals=np.zeros(5, bool),
        timeouts=np.arange(5) == 4,
    )
    # The last one's next observation is not known.
    with pytest.raises(UserError, match="expected at least 10 transitions .* got 4"):
        prepare(few, same, unit_rewards=False)


@pytest.fixture(scope="module")
def alone(data) -> Dynamics:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "CHUNK", 20)
        return fit([(data, same)], [Job(0, 4, TINY)], None, silent, 1e9)[0]


def test_a_replica_is_what_it_would_be_alone(data, alone):
    jobs = [Job(0, seed, TINY) for seed in (3, 4, 3)]
    found = fit([(data, same)], jobs, None, silent, 1e9)
    assert_same(found[1], alone)
    assert found[0] is found[2]
    assert found[0].report != found[1].report


def test_on_several_data_sets_it_is_what_it_would_be_alone(data, alone, linear):
    """The larger one has epochs of 40 updates, not 20; the last ones begin anew."""
    large = linear.data[:60]
    places = [(large, lambda x: 2 * x), (data, same)]
    jobs = [Job(0, 4, TINY), Job(1, 4, TINY), Job(0, 5, TINY)]
    found = fit(places, jobs, None, silent, 1e9)
    assert_same(found[1], alone)
    by_itself = fit(places[:1], [Job(0, 5, TINY)], None, silent, 1e9)[0]
    assert_same(found[2], by_itself)
    assert found[0].report != found[1].report


def test_an_interrupted_fit_goes_on_to_the_same_bits(data, alone, tmp_path):
    def stop(step: int, shown: dict[str, float]) -> None:
        if step == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit([(data, same)], [Job(0, 4, TINY)], tmp_path, stop, 0.0)
    assert (tmp_path / "checkpoints").exists()
    again = fit([(data, same)], [Job(0, 4, TINY)], tmp_path, silent, 0.0)[0]
    assert_same(again, alone)
    assert not (tmp_path / "checkpoints").exists()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [20, 40, 60]
    # What is there is read, not learnt again.
    read = fit([(data, same)], [Job(0, 4, TINY)], tmp_path, stop, 0.0)[0]
    assert_same(read, alone)


def test_the_best_of_every_member_is_kept_and_waiting_ends(data):
    settings = Settings("gaussian", 3, 2, 8, 10_000, 16, 1, 3e-2)
    one = DynamicsStage([prepare(data, same, False)], [Job(0, 0, settings)])
    one.start()
    seen = []
    keep = one._keep_best

    def watched(place: int, mine: list[int]) -> np.ndarray:
        seen.append(keep(place, mine)[0])
        return seen[-1][None]

    one._keep_best = watched
    found = one.judged(0, loop.train(one, None, silent, 1e9).history)
    errors, kept = np.array(seen), np.full(3, np.inf)
    waited = 0
    for row in errors:
        better = row < 0.99 * kept
        kept = np.where(better, row, kept)
        waited = 0 if better.any() else waited + 1
    assert waited == 2  # one more than its patience
    assert found.report["updates"] == len(errors) * 20 < 10_000
    assert (kept < errors[-1]).any()  # it did get worse again
    np.testing.assert_allclose(
        found.report["heldout"]["squared_error"], kept, rtol=1e-4
    )
    assert found.elites.tolist() == np.argsort(kept)[:2].tolist()
    held = one.places[0].held
    said = predict_all(found.members, held.observations, held.actions)
    mse = jnp.mean((said.mean - targets_of(held)) ** 2, axis=(1, 2))
    np.testing.assert_allclose(mse, kept, rtol=1e-4)
