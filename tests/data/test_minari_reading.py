"""Minari data sets: what Minari wrote is read or refused."""

import json
from pathlib import Path

import gymnasium as gym
import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari_files import ABOUT, MARKS, box, create, episode, read

from manyhands.data import formats
from manyhands.errors import UserError

STORAGES = ("hdf5", "arrow", "parquet")
pytestmark = MARKS


def finish(collector: minari.DataCollector, dataset_id: str) -> None:
    collector.create_dataset(dataset_id, **ABOUT)
    collector._tmp_dir.cleanup()  # close() leaves that to the garbage collector


def edit_metadata(folder: Path, **changes) -> None:
    """Set keys of metadata.json; None removes one."""
    path = folder / "data" / "metadata.json"
    metadata = json.loads(path.read_text()) | changes
    kept = {key: value for key, value in metadata.items() if value is not None}
    path.write_text(json.dumps(kept))


class Garden(gym.Env):
    """Observations of many parts, none of them in alphabetical order."""

    observation_space = spaces.Dict(
        [
            ("wind", spaces.Box(-9, 9, (2,), np.float64)),
            ("season", spaces.Discrete(3, start=1)),
            (
                "beds",
                spaces.Tuple(
                    [
                        spaces.Box(-9, 9, (2, 2), np.float32),
                        spaces.Dict([("soil", box(1)), ("air", box())]),
                    ]
                ),
            ),
        ]
    )
    action_space = spaces.Box(np.array([-1, -2]), np.array([3, 4]), dtype=np.float64)

    def look(self):
        t = self.time
        return {
            "wind": np.array([t, -t], np.float64),
            "season": np.int64(1 + t % 3),
            "beds": (
                np.array([[t + 0.1, t + 0.2], [t + 0.3, t + 0.4]], np.float32),
                {
                    "soil": np.array([t / 7], np.float32),
                    "air": np.array(t / 3, np.float32),
                },
            ),
        }

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.look(), {}

    def step(self, action):
        self.time += 1
        return self.look(), float(action.sum()), self.time == 4, False, {}


@pytest.mark.parametrize("storage", STORAGES)
def test_collected_in_an_environment(store, storage):
    env = gym.make("Pendulum-v1", max_episode_steps=5)
    collector = minari.DataCollector(env, data_format=storage)
    env.action_space.seed(0)
    befores, actions, rewards, afters = [], [], [], []
    for seed in range(3):
        now, _ = collector.reset(seed=seed)
        for _ in range(5):
            befores.append(now)
            actions.append(env.action_space.sample())
            now, reward, *_ = collector.step(actions[-1])
            rewards.append(reward)
            afters.append(now)
    finish(collector, "pendulum/few-v0")

    data = read("pendulum/few-v0")
    np.testing.assert_array_equal(data.observations, befores)
    np.testing.assert_array_equal(data.actions, actions)
    np.testing.assert_array_equal(data.rewards, np.array(rewards, np.float32))
    np.testing.assert_array_equal(data.next_observations, afters)
    assert data.offsets.tolist() == [0, 5, 10, 15]
    assert np.flatnonzero(data.timeouts).tolist() == [4, 9, 14]
    assert not data.terminals.any()
    assert data.final_known.all()
    assert (data.action_low, data.action_high) == (-2, 2)
    assert data.env_id == "Pendulum-v1"
    assert data.name == "pendulum/few-v0"
    assert data.sources is None
    assert data.log_probs is None

    folder = store / "pendulum" / "few-v0"
    for where in (folder, folder / "data"):
        assert read(where).fingerprint == data.fingerprint
    assert formats.read(folder).fingerprint == data.fingerprint  # detected
    edit_metadata(folder, observation_space=None)
    with pytest.raises(UserError, match="expected observation_space, found"):
        read(folder)  # no environment is made to find it out


@pytest.mark.parametrize("storage", STORAGES)
def test_parts_are_joined_as_gymnasium_does(storage):
    env = Garden()
    collector = minari.DataCollector(env, data_format=storage)
    seen = []
    for _ in range(2):
        seen.append(collector.reset()[0])
        for t in range(4):
            seen.append(collector.step(np.array([t / 2, -t / 2]))[0])
    finish(collector, "garden-v0")

    data = read("garden-v0")
    flat = [spaces.flatten(env.observation_space, look) for look in seen]
    flat = np.array(flat, np.float32).reshape(2, 5, 11)
    np.testing.assert_array_equal(data.observations, flat[:, :-1].reshape(8, 11))
    np.testing.assert_array_equal(data.next_observations, flat[:, 1:].reshape(8, 11))
    assert data.observations[1].tolist() == pytest.approx(
        [1, -1, 0, 1, 0, 1.1, 1.2, 1.3, 1.4, 1 / 7, 1 / 3]
    )
    assert np.flatnonzero(data.terminals).tolist() == [3, 7]
    assert data.action_low.tolist() == [-1, -2]
    assert data.action_high.tolist() == [3, 4]
    assert data.env_id is None


@pytest.mark.parametrize("storage", STORAGES)
def test_ends(storage):
    where = create(
        episode(3, terminated=[2]),
        episode(3, terminated=[0, 1]),  # success early on, and then cut off
        episode(2, truncated=[0, 1]),
        episode(1, terminated=[0], truncated=[0]),
        storage=storage,
    )
    data = read(where)
    assert data.lengths.tolist() == [3, 3, 2, 1]
    assert np.flatnonzero(data.terminals).tolist() == [2, 8]
    assert np.flatnonzero(data.timeouts).tolist() == [7]
    assert data.next_observations.ravel().tolist() == [1, 2, 3, 1, 2, 3, 1, 2, 1]


@pytest.mark.parametrize("storage", STORAGES)
def test_infos(storage):
    def infos(log_probs, policy, crew):
        rows = len(log_probs)
        return {
            "log_prob": log_probs,
            "source": [policy] * rows,
            "crew": {"number": np.full((rows, 1), crew)},
        }

    where = create(
        episode(2, infos=infos([9.0, -1.0, -2.0], "tom", 7)),
        episode(1, infos=infos([9.0, -3.0], "ann", 5)),
        storage=storage,
    )
    data = read(where)
    assert data.log_probs is not None
    assert data.log_probs.tolist() == [-1, -2, -3]
    assert data.source_names == ("ann", "tom")
    assert data.sources is not None
    assert data.sources.tolist() == [1, 0]
    crews = read(where, source_from="crew/number")
    assert crews.source_names == ("5", "7")
    assert crews.sources is not None
    assert crews.sources.tolist() == [1, 0]


def test_infos_without_a_row_for_the_reset():
    where = create(episode(2, infos={"log_prob": [-1.0, -2.0], "source": [4, 4]}))
    data = read(where)
    assert data.log_probs is not None
    assert data.log_probs.tolist() == [-1, -2]
    assert data.source_names == ("4",)


def test_action_bounds():
    low, high = np.array([[0, -2, 0], [5, np.inf, 3]], np.float32)
    actions = np.array([[0, 0, 0], [4, 1, 2]], np.float32)
    where = create(episode(2, actions=actions), action_space=spaces.Box(low, high))
    data = read(where)
    assert data.action_low.tolist() == [0, -1, 0]
    assert data.action_high.tolist() == [5, 1, 3]
    data = read(where, action_bounds=(-6, 6))
    assert data.action_low.tolist() == [-6, -6, -6]
    assert data.action_high.tolist() == [6, 6, 6]
    data = read(where, action_bounds=(-1, 1.5), clip=True)
    assert data.actions.max() == 1.5
    assert data.clipped == 2
    with pytest.raises(UserError, match=r"row 1, column 0.* got 4 "):
        read(where, action_bounds=(-1, 1.5))


def test_absent_id_names_the_closest(store, monkeypatch):
    def offline(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", offline)
    with pytest.raises(UserError, match="no data set is there"):
        read("hopper-v0")
    for dataset_id in ("hopper-v1", "mujoco/hopper-v0", "walker-v0", "pen-v0"):
        create(episode(), dataset_id=dataset_id)
    (store / ".hopper-v0-x" / "data").mkdir(parents=True)
    (store / ".hopper-v0-x" / "data" / "metadata.json").touch()
    with pytest.raises(UserError) as error:
        read("hopper-v0")
    assert f"an id in {store}, found neither" in str(error.value)
    assert "closest there: hopper-v1, mujoco/hopper-v0, " in str(error.value)
    assert ".hopper" not in str(error.value)


@pytest.mark.parametrize(
    ("space", "observations", "message"),
    [
        (
            spaces.Dict(eye=spaces.Box(0, 255, (3, 2, 1), np.uint8), x=box(1)),
            {"eye": np.zeros((4, 3, 2, 1), np.uint8), "x": np.zeros((4, 1))},
            r"observations/eye: expected Box or Discrete, got an image of .*3, 2, 1",
        ),
        (
            spaces.Tuple([box(1), spaces.Dict(note=spaces.Text(5))]),
            (np.zeros((4, 1)), {"note": ["a"] * 4}),
            "observations/1/note: expected Box or Discrete, got Text",
        ),
        (
            spaces.Discrete(2),
            np.array([0, 1, 2, 0]),
            "episode 0: observations: expected values from 0 to 1, got 0 to 2",
        ),
        (
            box(1),
            np.zeros((3, 1)),
            r"episode 0: observations: expected shape \(4, 1\), got \(3, 1\)",
        ),
        (box(1), np.full((4, 1), np.nan), "observations: row 0, column 0: .* finite"),
    ],
)
def test_refused_observations(space, observations, message):
    where = create(episode(observations=observations), observation_space=space)
    with pytest.raises(UserError, match=message):
        read(where)


def test_refused_actions():
    space = spaces.Discrete(3)
    where = create(episode(actions=np.array([0, 1, 2])), action_space=space)
    with pytest.raises(UserError, match=r"actions: expected continuous.*got Discrete"):
        read(where)


def test_refused_infos():
    where = create(
        episode(2, infos={"source": [1, 1, 2], "pilot": [1, 1, 1], "log_prob": [0.0]})
    )
    with pytest.raises(UserError, match=r"infos/log_prob: expected shape \(3, 1\)"):
        read(where)
    where = create(
        episode(2, infos={"source": [1, 1, 2], "pilot": [1, 1, 1]}),
        episode(2, infos={"source": [1, 1, 1]}),
        dataset_id="other-v0",
    )
    with pytest.raises(UserError, match=r"episode 0: infos/source: .* got 1 and 2"):
        read(where)
    with pytest.raises(UserError, match=r"episode 1: infos/pilot: .* found source"):
        read(where, source_from="pilot")
    infos = {"log_prob": [0.0, 0.0, 0.0]}
    where = create(episode(2, infos=infos), episode(2), dataset_id="some-v0")
    with pytest.raises(UserError, match="episode 1: infos/log_prob: expected this"):
        read(where)


@pytest.mark.parametrize("storage", STORAGES)
def test_refused_files(store, storage):
    where = create(episode(), episode(), storage=storage)
    for changes, message in [
        ({"total_episodes": 3}, f"expected 3 episodes in {storage}, got"),
        ({"total_episodes": 1}, "total_steps: expected the episodes' 3, got 6"),
        ({"total_steps": 4}, "episode 1: total_steps: expected at least 6, got 4"),
        ({"minari_version": "9.0.0"}, "minari_version: .*, got 9.0.0"),
        ({"data_format": None}, "metadata.json: expected data_format, found total_"),
    ]:
        path = store / where / "data" / "metadata.json"
        before = path.read_text()
        edit_metadata(store / where, **changes)
        with pytest.raises(UserError, match=message):
            read(where)
        path.write_text(before)
    path.write_text("{")
    with pytest.raises(UserError, match=r"metadata[.]json: expected JSON"):
        read(where)
