"""Minari data sets: what we write Minari reads, and so do we."""

import sys
from dataclasses import replace
from pathlib import Path

import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari_files import MARKS, box, create, episode, read

from manyhands.data import formats
from manyhands.data import minari as our_minari
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError

pytestmark = MARKS


@pytest.fixture
def logged() -> Trajectories:
    """Five trajectories: two terminals, a time-out and two cut off; ends half known."""
    random = np.random.default_rng(0)
    lengths = np.array([1, 3, 2, 4, 2])
    ends = np.cumsum(lengths) - 1
    observations = random.normal(size=(12, 3)).astype(np.float32)
    following = np.roll(observations, -1, axis=0)
    following[ends] = random.normal(size=(5, 3))
    following[ends[1]] = observations[ends[1]]
    return Trajectories.from_arrays(
        observations,
        random.uniform(-0.3, 0.7, (12, 2)),
        random.normal(size=12),
        terminals=np.isin(np.arange(12), ends[[0, 3]]),
        timeouts=np.isin(np.arange(12), ends[[1]]),
        trajectory=np.repeat([4, 3, 2, 1, 0], lengths),
        next_observations=following,
        final_known=[True, False, True, True, False],
        source=[2, 0, 2, 3, 0],
        source_names=["zoë", "nobody", "ann", ""],
        log_probs=random.normal(size=12),
        action_bounds=([-0.3, -0.5], [0.7, 0.9]),
    )


@pytest.mark.parametrize("env_id", [None, "Pendulum-v1", "not registered"])
@pytest.mark.parametrize("where", ["logged-v3", "./logged", "deep/er/logged.minari"])
def test_round_trip(logged, store, where, env_id):
    data = replace(logged, env_id=env_id)
    formats.write(data, f"minari:{where}")
    again = read(where)
    assert again.fingerprint == data.fingerprint
    place = store / where if where == "logged-v3" else Path(where)
    assert (place / "data" / "main_data.hdf5").is_file()
    assert not list(place.parent.glob(".*"))


def test_round_trip_of_the_plainest_data(logged):
    data = replace(logged, sources=None, source_names=(), log_probs=None)
    data = replace(data, final_known=np.ones(5, bool))[1:3]
    formats.write(data, "minari:plain-v0")
    assert read("plain-v0").fingerprint == data.fingerprint


def test_minari_reads_what_we_wrote(logged):
    formats.write(replace(logged, env_id="Pendulum-v1"), "minari:logged-v3")
    assert list(minari.list_local_datasets()) == ["logged-v3"]
    theirs = minari.load_dataset("logged-v3")
    assert theirs.spec.total_episodes == 5
    assert theirs.spec.total_steps == 12
    assert theirs.action_space == spaces.Box(logged.action_low, logged.action_high)
    assert theirs.observation_space == box(3)
    for ours, their in zip(logged, theirs, strict=True):
        observations = [*ours.observations, ours.next_observations[-1]]
        np.testing.assert_array_equal(their.observations, observations)
        np.testing.assert_array_equal(their.actions, ours.actions)
        np.testing.assert_array_equal(their.rewards, ours.rewards)
        np.testing.assert_array_equal(their.terminations, ours.terminals)
        np.testing.assert_array_equal(their.truncations, ours.timeouts)
        np.testing.assert_array_equal(their.infos["log_prob"][1:], ours.log_probs)
        assert "infos" in repr(their)
    env = theirs.recover_environment()
    assert env.spec is not None
    assert env.spec.id == "Pendulum-v1"
    env.close()


def test_minari_reads_a_folder_we_wrote(logged):
    formats.write(logged[:2], "minari:some where/else")
    theirs = minari.MinariDataset("some where/else/data")
    assert theirs.spec.dataset_id == "else-v0"
    assert [len(their) for their in theirs] == [1, 3]


def test_sources_survive_where_minari_combines(logged):
    formats.write(replace(logged[:2], env_id="Pendulum-v1"), "minari:one-v0")
    formats.write(replace(logged[2:], env_id="Pendulum-v1"), "minari:two-v0")
    parts = [minari.load_dataset("one-v0"), minari.load_dataset("two-v0")]
    minari.combine_datasets(parts, "both-v0")
    data = read("both-v0")
    assert data.sources is not None
    who = [data.source_names[code] for code in data.sources]
    assert who == ["ann", "zoë", "ann", "", "zoë"]
    assert data.final_known.tolist() == logged.final_known.tolist()
    np.testing.assert_array_equal(data.log_probs, logged.log_probs)
    assert data.env_id == "Pendulum-v1"


def test_split_steps_are_refused(logged, store):
    kept, _ = logged[[1, 3]].split_within(0.4, seed=1)
    following, observations = kept.next_observations, kept.observations
    first = next(
        row
        for row in range(kept.transitions - 1)
        if kept.trajectory[row] == kept.trajectory[row + 1]
        and (following[row] != observations[row + 1]).any()
    )
    with pytest.raises(UserError, match=rf"next_observations: row {first}: expected"):
        formats.write(kept, "minari:kept-v0")
    assert not (store / "kept-v0").exists()


@pytest.mark.parametrize("where", ["name", "name-v", "na me-v0", "-vx"])
def test_bad_ids_are_refused(logged, where):
    with pytest.raises(UserError, match="expected an id for the local store"):
        formats.write(logged, f"minari:{where}")


def test_only_our_own_data_sets_are_replaced(logged, store):
    formats.write(logged, "minari:logged-v0")
    formats.write(logged[:2], "minari:logged-v0")
    assert read("logged-v0").fingerprint == logged[:2].fingerprint
    Path("empty").mkdir()
    formats.write(logged, "minari:./empty")

    create(episode(), dataset_id="downloaded-v0")
    Path("thesis").mkdir()
    Path("thesis/chapter").touch()
    for where in ("downloaded-v0", "./thesis", "./thesis/chapter", "."):
        with pytest.raises(UserError, match="not ours to replace"):
            formats.write(logged, f"minari:{where}")
    assert len(read("downloaded-v0")) == 1
    assert Path("thesis/chapter").is_file()


def test_an_interrupted_write_leaves_what_was_there(logged, store, monkeypatch):
    formats.write(logged[:2], "minari:old-v0")
    whole = our_minari._buffers

    def interrupted(data):
        yield from whole(data[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(our_minari, "_buffers", interrupted)
    for where in ("old-v0", "new-v0"):
        with pytest.raises(KeyboardInterrupt):
            formats.write(logged, f"minari:{where}")
    assert [path.name for path in store.iterdir()] == ["old-v0"]
    assert read("old-v0").fingerprint == logged[:2].fingerprint


def test_absent_package_names_the_extra(monkeypatch, logged):
    create(episode())
    monkeypatch.setitem(sys.modules, "minari", None)
    monkeypatch.setitem(sys.modules, "minari.storage", None)
    with pytest.raises(UserError, match=r"pip install 'manyhands\[minari\]'"):
        read("test-v0")
    with pytest.raises(UserError, match=r"pip install 'manyhands\[minari\]'"):
        formats.write(logged, "minari:other-v0")
