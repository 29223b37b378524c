"""Several data sets in one program: every replica is what it would be alone."""

import csv
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from manyhands import UserError, fit, load_policy, make, train, write_report

SMALL: dict[str, Any] = dict(steps=16, policy_width=16, batch_size=32)
POLICY: dict[str, Any] = dict(steps=12, batch_size=32, critic_width=16)


@pytest.fixture(scope="module")
def sets():
    """With other boxes, other numbers of trajectories, other environments; the second
    one, to be padded, is that of the contracts, whose programs it shares."""
    leap, fork = make("leap-2", 2000), make("fork-2", 1000)
    wide = replace(
        leap,
        actions=2 * leap.actions + 1,
        action_low=2 * leap.action_low + 1,
        action_high=2 * leap.action_high + 1,
    )
    assert len(wide) > len(fork)
    return [wide, fork]


def same_bits(one, other) -> None:
    pairs = zip(jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


@pytest.fixture(scope="module")
def fitted(sets, tmp_path_factory):
    """Interrupted on the way."""
    folder = tmp_path_factory.mktemp("fitted")
    how = dict(k=[2, 3], seed=1, out=folder, checkpoint_seconds=0.0) | SMALL

    def stop(step: int, shown: dict[str, float]) -> None:
        del shown
        if step == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(sets, progress=stop, **how)
    return fit(sets, **how), folder


def test_behaviors_are_what_they_would_be_alone(sets, fitted):
    together, _ = fitted
    about = [(b.summary["data"]["name"], b.summary["behavior"]) for b in together]
    order = [(name, row["k"], row["seed"]) for name, row in about]
    assert order == [(d.name, k, 1) for d in sets for k in (2, 3)]
    alone = fit(sets[1], k=[2, 3], seed=1, **SMALL)
    for one, other in zip(together[2:], alone, strict=True):
        assert len(one.codes) == len(sets[1])
        assert np.array_equal(one.codes, other.codes)
        assert one.summary["behavior"] == other.summary["behavior"]
        same_bits(one, other)


def test_each_has_a_folder_with_its_own_trajectories(sets, fitted):
    together, folder = fitted
    for r, behavior in enumerate(together):
        data = sets[r // 2]
        with (folder / f"replica-{r}" / "assignments.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [float(row["return"]) for row in rows] == pytest.approx(data.returns)
        assert [int(row["code"]) for row in rows] == behavior.codes.tolist()


def test_there_is_no_page_for_several_data_sets(fitted):
    _, folder = fitted
    with pytest.raises(UserError, match="a run on one data set, got one on 2"):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_policies_are_what_they_would_be_alone(sets, tmp_path):
    """And so is what they fit first."""
    how = POLICY | dict(behavior_steps=12, width=16, samples=2, episodes=2, workers=1)
    how |= dict(scale_actions=True)
    together = train(sets, "brac_v", seed=[3, 4], evaluations=1, out=tmp_path, **how)
    assert len(together) == 4
    alone: Any = train(sets[1], "brac_v", seed=4, **how)
    one = together[3]
    same_bits(one, alone)
    assert one.summary["policy"] == alone.summary["policy"]
    assert [policy.env_id for policy in together[::2]] == [d.env_id for d in sets]
    rows = sets[1].observations[:20]
    assert np.array_equal(one.act(rows), alone.act(rows))
    again = load_policy(tmp_path / "replica-3")
    assert np.array_equal(again.act(rows), one.act(rows))


def test_trajectories_that_learn_with_the_policy_are_padded_and_cut(sets, fitted):
    given = [b for b in fitted[0] if b.summary["behavior"]["k"] == 3]
    how = POLICY | dict(joint=True, held_to="own", episodes=1, evaluations=2)
    how |= dict(scale_actions=True)
    seen: dict[int, Any] = {}
    look = seen.__setitem__
    together = train(sets, behavior=given, seed=1, inspect=look, workers=1, **how)
    alone: Any = train(sets[1], behavior=given[1], seed=1, **how | dict(episodes=0))
    one = together[1]
    assert len(one.model.W) == len(alone.model.W) == len(sets[1])
    assert [len(p.model.E) for p in together] == [b.k for b in given]
    # So they are where they are looked at along the way, where they begin as they were.
    assert list(seen) == [0, 6]
    for model, behavior in zip(seen[0], given, strict=True):
        assert np.array_equal(model.W, behavior.model.W)
        assert np.array_equal(model.E, behavior.model.E)
    assert not np.array_equal(seen[6][1].W, one.model.W)
    # Codes may be padded to the same number, which changes the order of sums.
    rows = sets[1].observations[:20]
    np.testing.assert_allclose(one.model.W, alone.model.W, atol=1e-5)
    np.testing.assert_allclose(one.act(rows), alone.act(rows), atol=1e-4)


def test_so_are_models_of_the_dynamics(sets):
    """And what plans in them. (Of MOPO's: tests/dynamics/test_dynamics_fit.py.)"""
    how: dict[str, Any] = dict(steps=8, model_steps=8, members=2, elites=1)
    how |= dict(model_width=8, batch_size=64, critic_width=8, episodes=0)
    together = train(sets, "mopp", seed=2, **how)
    alone: Any = train(sets[1], "mopp", seed=2, **how)
    same_bits(together[1], alone)
    assert together[1].summary["dynamics"] == alone.summary["dynamics"]


def test_what_cannot_train_together_is_refused(sets, fitted, tmp_path):
    leap = sets[0]
    one_action = replace(
        leap,
        actions=leap.actions[:, :1],
        action_low=leap.action_low[:1],
        action_high=leap.action_high[:1],
    )
    for wrong, words in [
        ([], "data: expected at least one data set, got none"),
        (
            [sets[1], one_action],
            "data: expected sets with as many numbers",
        ),
    ]:
        with pytest.raises(UserError, match=words):
            fit(wrong, out=tmp_path / "run")
    with pytest.raises(UserError, match="of the 1 seeds and 2 data sets"):
        train(sets, behavior=fitted[0][:3], out=tmp_path / "run")
    with pytest.raises(UserError, match="fitted to this data set"):
        train(sets[::-1], behavior=fitted[0], out=tmp_path / "run")
    nowhere = replace(sets[1], env_id=None)
    with pytest.raises(UserError, match="env: expected an environment's id"):
        train([sets[0], nowhere], "bc", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_finished_can_be_read_in_place_of_being_trained_again(sets, tmp_path):
    """Every replica, of all sets, options and seeds; and nothing else."""
    how: dict[str, Any] = dict(seed=[0, 1], steps=5, batch_size=32, width=16)
    how |= dict(policy_rate=[1e-3, 3e-3], episodes=0, out=tmp_path)
    trained = train(sets, "bc", **how)
    written = (tmp_path / "policy.safetensors").stat().st_mtime_ns
    found = train(sets, "bc", retrain=False, **how)
    assert len(found) == 2 * 2 * 2
    for one, other in zip(trained, found, strict=True):
        same_bits(one, other)
        assert one.options == other.options
        assert one.summary == other.summary
    assert (tmp_path / "policy.safetensors").stat().st_mtime_ns == written
    with pytest.raises(UserError, match=r"holds another run: options\[0\].width is 16"):
        train(sets, "bc", retrain=False, **how | {"width": 32})
    with pytest.raises(UserError, match="holds another run: scale_actions"):
        train(sets, "bc", retrain=False, scale_actions=True, **how)
    train(sets, "bc", **how)
    assert (tmp_path / "policy.safetensors").stat().st_mtime_ns > written
