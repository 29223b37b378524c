import h5py
import numpy as np
import pytest

from manyhands import UserError, load

ROWS = 6


def write(path, **fields):
    arrays = {
        "observations": np.arange(ROWS * 2, dtype=np.float32).reshape(ROWS, 2),
        "actions": np.zeros((ROWS, 1), np.float32),
        "rewards": np.ones(ROWS, np.float32),
        "terminals": np.array([0, 0, 1, 0, 0, 0], bool),
    }
    with h5py.File(path, "w") as file:
        for key, array in (arrays | fields).items():
            if array is not None:
                file[key] = array
    return path


def test_v2_file_with_next_observations_time_outs_and_extras(tmp_path):
    following = np.full((ROWS, 2), 7, np.float32)
    path = write(
        tmp_path / "hopper_medium-v2.hdf5",
        next_observations=following,
        timeouts=np.array([0, 0, 0, 0, 1, 0], bool),
        source=np.array([3, 3, 3, 1, 1, 1]),
        **{"infos/action_log_probs": np.arange(ROWS), "infos/qpos": np.ones((ROWS, 3))},
    )
    data = load(path)
    assert data.lengths.tolist() == [3, 2, 1]  # the last trajectory is cut off
    assert data.next_observations.tolist() == following.tolist()
    assert data.final_known.all()
    assert [data.source_names[s] for s in data.sources] == ["3", "1", "1"]
    assert data.log_probs.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.name == "hopper_medium-v2"


def test_v0_file_with_columns_and_without_time_outs_or_next_observations(tmp_path):
    path = write(
        tmp_path / "demo.hdf5",
        rewards=np.ones((ROWS, 1), np.float32),
        terminals=np.array([0, 0, 1, 0, 0, 0], bool)[:, None],
        infos=np.arange(ROWS),  # an array where later files have a group
    )
    data = load(path)
    assert data.lengths.tolist() == [3, 3]
    assert not data.final_known.any()
    assert data.next_observations[2].tolist() == data.observations[2].tolist()
    assert load(path, max_steps=2).lengths.tolist() == [2, 1, 2, 1]


def test_v0_mujoco_files_have_the_time_limit_of_their_environments(tmp_path):
    rows = 2500
    path = write(
        tmp_path / "walker2d_medium.hdf5",
        observations=np.zeros((rows, 2)),
        actions=np.zeros((rows, 1)),
        rewards=np.ones(rows),
        terminals=np.arange(rows) == 1200,
    )
    data = load(path)
    assert data.lengths.tolist() == [1000, 201, 1000, 299]
    assert np.flatnonzero(data.timeouts).tolist() == [999, 2200]


def test_source_from_another_field(tmp_path):
    path = write(
        tmp_path / "x.hdf5",
        timeouts=np.zeros(ROWS, bool),
        **{"infos/operator": np.array([b"al"] * 3 + [b"zoe"] * 3)},
    )
    data = load(path, source_from="infos/operator")
    assert [data.source_names[s] for s in data.sources] == ["al", "zoe"]
    with pytest.raises(UserError, match="infos/who: expected this field to name"):
        load(path, source_from="infos/who")


def test_missing_fields_and_other_files_are_named(tmp_path):
    path = write(tmp_path / "x.hdf5", rewards=None)
    with pytest.raises(UserError, match=r"x\.hdf5: rewards: expected this field"):
        load(path)
    text = tmp_path / "text.hdf5"
    text.write_text("no")
    with pytest.raises(UserError, match=r"text\.hdf5: expected an HDF5 file"):
        load(text)
    with pytest.raises(UserError, match="expected an HDF5 file"):
        load(f"d4rl:{text}")


REAL = {  # trajectories, transitions, sources, terminals, time-outs: counted with h5py
    "halfcheetah_brac_example": (10, 10_000, 3, 0, 10),
    "pendulum_rllib_sac": (100, 20_000, 2, 0, 100),
    "door_human_dapg": (25, 6_729, 0, 0, 25),
    "kitchen_complete_d4rl_v0": (19, 3_680, 0, 19, 0),
}


@pytest.mark.parametrize("name", REAL)
def test_files_that_others_made(real_data, name):
    path = real_data / f"{name}.hdf5"
    if name == "door_human_dapg":
        with pytest.raises(UserError, match=r"actions: row 4, column 4: .*10,595 of"):
            load(path)
    data = load(path, clip=name == "door_human_dapg")
    assert REAL[name] == (
        len(data),
        data.transitions,
        len(data.source_names),
        data.terminals.sum(),
        data.timeouts.sum(),
    )
    with h5py.File(path) as file:
        assert np.array_equal(data.observations, file["observations"][()])  # pyright: ignore
