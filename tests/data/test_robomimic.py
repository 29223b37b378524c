import json
from typing import Any

import h5py
import numpy as np
import pytest

from manyhands import Trajectories, UserError, load, save

STEPS = {"demo_2": 3, "demo_10": 2, "demo_0": 4}  # written in this order


def write(path, steps=STEPS, masks=None, drop=(), attributes=None, **fields):
    """A file as the project's own scripts make it from human demonstrations.

    `fields` adds datasets, as functions of a demonstration's number and length.
    """
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for name, length in steps.items():
            number = int(name.removeprefix("demo_"))
            rows = np.arange(length, dtype=np.float64)
            demo = data.create_group(name)
            demo.attrs["num_samples"] = length
            demo.attrs["model_file"] = "<mujoco/>"
            arrays = {
                "actions": np.stack([rows / 10, -rows / 10], axis=1),
                "states": np.zeros((length, 45)),
                "rewards": (rows == length - 1).astype(np.float64),
                "dones": (rows >= length - 2).astype(np.int64),
            }
            for group, shift in (("obs", 0), ("next_obs", 1)):
                later = rows + shift
                arrays |= {
                    f"{group}/robot0_eef_pos": np.stack([later, later + 100], axis=1),
                    f"{group}/object": np.full((length, 1), number) + 1000.0,
                    f"{group}/gripper": later * 2,  # (T,)
                    f"{group}/agentview_image": np.zeros((length, 8, 8, 3), np.uint8),
                    f"{group}/depth": np.zeros((length, 8, 8)),
                    f"{group}/code": np.zeros((length, 4), np.uint8),
                }
            arrays |= {field: make(number, length) for field, make in fields.items()}
            for field, array in arrays.items():
                if not any(field.startswith(dropped) for dropped in drop):
                    demo[field] = array
            for attribute, make in (attributes or {}).items():
                demo.attrs[attribute] = make(number)
        data.attrs["total"] = sum(steps.values())
        data.attrs["env_args"] = json.dumps(
            {"env_name": "Lift", "env_type": 1, "env_kwargs": {"robots": ["Panda"]}}
        )
        for mask, demos in (masks or {}).items():
            file[f"mask/{mask}"] = np.array(demos, "S")
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "low_dim.hdf5"


def sources(data: Trajectories) -> list[str]:
    return [data.source_names[code] for code in data.sources]


def test_demonstrations_in_numeric_order_and_keys_in_alphabetical(path):
    data = load(write(path))
    assert data.lengths.tolist() == [4, 3, 2]  # demo_0, demo_2, demo_10
    # gripper, object, robot0_eef_pos; the images are left out
    assert data.observations[:2].tolist() == [[0, 1000, 0, 100], [2, 1000, 1, 101]]
    assert data.observations[4].tolist() == [0, 1002, 0, 100]
    assert data.next_observations[3].tolist() == [8, 1000, 4, 104]
    assert data.final_known.all()
    assert data.actions[5].tolist() == pytest.approx([0.1, -0.1])
    assert data.rewards.tolist() == [0, 0, 0, 1, 0, 0, 1, 0, 1]
    assert data.action_low.tolist() == [-1, -1]
    assert data.env_id == "Lift"
    assert data.sources is None
    assert data.name == "low_dim"


def test_chosen_keys_come_in_their_own_order(path):
    data = load(write(path), keys=("robot0_eef_pos", "gripper"))
    assert data.observations[1].tolist() == [1, 101, 2]
    assert data.next_observations[1].tolist() == [2, 102, 4]


@pytest.mark.parametrize("key", ["velocity", "agentview_image", "depth", "code"])
def test_a_key_that_cannot_be_used_is_an_error_with_those_that_can(path, key):
    known = r"\['gripper', 'object', 'robot0_eef_pos'\]"
    with pytest.raises(UserError, match=f"demo_0/obs: .*'{key}'.*found {known}"):
        load(write(path), keys=("object", key))


def test_only_a_done_in_the_last_row_is_a_terminal(path):
    def dones(number, length):  # demo_2 succeeds in the middle and goes on
        return np.eye(length)[0 if number == 2 else -1]

    data = load(write(path, dones=dones))
    assert np.flatnonzero(data.terminals).tolist() == [3, 8]
    assert np.flatnonzero(data.timeouts).tolist() == [6]


def test_time_outs_of_ours_overrule_dones_and_their_absence_is_a_cut_off(path):
    def last(*numbers):
        return lambda number, length: (
            (np.arange(length) == length - 1) & (number in numbers)
        )

    data = load(write(path, dones=last(0, 2), timeouts=last(2)))
    assert np.flatnonzero(data.terminals).tolist() == [3]
    assert np.flatnonzero(data.timeouts).tolist() == [6]


def test_raw_recordings_have_no_rewards_no_dones_and_no_next_observations(path):
    data = load(write(path, drop=("rewards", "dones", "next_obs")))
    assert not data.rewards.any()
    assert not data.terminals.any()
    assert np.flatnonzero(data.timeouts).tolist() == [3, 6, 8]
    assert not data.final_known.any()
    assert data.next_observations[2].tolist() == data.observations[3].tolist()
    assert data.next_observations[3].tolist() == data.observations[3].tolist()


MASKS = {
    "better": ["demo_0", "demo_10"],
    "worse": ["demo_2"],
    "train": ["demo_0", "demo_2"],
    "valid": ["demo_10"],
    "better_train": ["demo_0"],
}


def test_filter_reads_one_mask_in_numeric_order(path):
    data = load(write(path, masks={"some": ["demo_10", "demo_2"]}), filter="some")
    assert data.lengths.tolist() == [3, 2]


def test_masks_as_sources_without_the_splits(path):
    data = load(write(path, masks=MASKS), source_from="mask")
    assert sources(data) == ["better", "worse", "better"]
    assert data.source_names == ("better", "worse")


def test_splits_are_sources_where_there_is_nothing_else(path):
    splits = {mask: MASKS[mask] for mask in ("train", "valid")}
    data = load(write(path, masks=splits), source_from="mask")
    assert sources(data) == ["train", "train", "valid"]


def test_chosen_masks_as_sources(path):
    masks = MASKS | {"half": ["demo_0"]}
    data = load(write(path, masks=masks), source_from="mask:worse, better")
    assert sources(data) == ["better", "worse", "better"]


def test_the_filter_is_not_one_of_the_sources(path):
    masks = MASKS | {"half": ["demo_0", "demo_2"]}
    data = load(write(path, masks=masks), source_from="mask", filter="half")
    assert sources(data) == ["better", "worse"]


@pytest.mark.parametrize(
    ("masks", "choice", "message"),
    [
        ({"a": ["demo_0"]}, "mask", r"demo_2: .*masks \['a'\], got it in none"),
        (
            {"a": ["demo_0", "demo_2"], "b": ["demo_2", "demo_10"]},
            "mask",
            r"demo_2: .*got it in \['a', 'b'\]; choose masks",
        ),
        ({}, "mask", "demo_0: .*got it in none"),
        ({"a": []}, "mask:a,z", r"mask/z: expected this mask, found \['a'\]"),
    ],
)
def test_every_demonstration_is_in_exactly_one_mask(path, masks, choice, message):
    with pytest.raises(UserError, match=message):
        load(write(path, masks=masks), source_from=choice)


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"a": ["demo_0"]}, r"mask/z: expected this mask, found \['a'\]"),
        ({"z": []}, "mask/z: expected at least one demo"),
        ({"z": ["demo_0", "demo_7"]}, "mask/z: demo_7: expected a demo"),
    ],
)
def test_a_filter_that_cannot_be_used(path, masks, message):
    with pytest.raises(UserError, match=message):
        load(write(path, masks=masks), filter="z")


def test_attributes_as_sources(path):
    attributes = {"operator": lambda number: ["ann", "bob"][number // 10]}
    write(path, attributes=attributes | {"grade": lambda number: 12 - number})
    assert sources(load(path, source_from="operator")) == ["ann", "ann", "bob"]
    grades = load(path, source_from="grade")
    assert grades.source_names == ("2", "10", "12")  # ordered as numbers
    assert sources(grades) == ["12", "10", "2"]


def test_the_attribute_source_is_used_without_being_asked_for(path):
    attributes = {"source": lambda number: ["z", "a"][number // 10]}
    data = load(write(path, attributes=attributes))
    assert data.source_names == ("a", "z")
    assert sources(data) == ["z", "z", "a"]


def test_attributes_that_cannot_be_sources(path):
    write(path, attributes={"pair": lambda number: [1, 2]})
    with pytest.raises(UserError, match=r"demo_0: pair: expected a single value"):
        load(path, source_from="pair")
    with pytest.raises(UserError, match=r"demo_0: .*'who', found \['model_file', "):
        load(path, source_from="who")
    with h5py.File(path, "a") as file:
        file["data/demo_0"].attrs["source"] = "ann"
    with pytest.raises(UserError, match="demo_2: expected an attribute 'source'"):
        load(path)
    write(path, attributes={"source": lambda number: f"n{number}"})
    with h5py.File(path, "a") as file:
        file["data"].attrs["source_names"] = '["n0", "n10"]'
    with pytest.raises(UserError, match=r"demo_2: source: .*\['n0', 'n10'\], got 'n2'"):
        load(path)


def small(**changes) -> Trajectories:
    """Five trajectories: terminal, time-out, cut off, cut off and unknown, time-out."""
    trajectory = np.repeat(np.arange(5), [2, 3, 1, 2, 1])
    rows = np.arange(9, dtype=np.float32)
    arguments = {
        "observations": np.stack([rows, rows**2], axis=1),
        "actions": np.stack([rows / 3, -rows], axis=1),
        "rewards": rows / 7,
        "terminals": rows == 1,
        "timeouts": (rows == 4) | (rows == 8),
        "trajectory": trajectory,
        "next_observations": np.stack([rows + 0.1, rows + 0.2], axis=1),
        "final_known": [True, False, True, False, True],
        "source": [2, 0, 0, 3, 4],
        "source_names": ["b", "never used", "a", "train", "x/y"],
        "log_probs": -rows / 11,
        "action_bounds": ([0.0, -9.0], [3.0, 0.1]),
        "env_id": "Hopper-v5",
    }
    return Trajectories.from_arrays(**(arguments | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"source": None, "source_names": None, "env_id": None},
        {"log_probs": None, "final_known": None, "source_names": [*"abcde"]},
        {"source": ["", ".", "..", "ä", "a b"], "source_names": None},
    ],
)
def test_round_trip(tmp_path, changes):
    data = small(**changes)
    save(data, f"robomimic:{tmp_path / 'out.hdf5'}")
    again = load(tmp_path / "out.hdf5")
    assert again.fingerprint == data.fingerprint


def test_many_sources_fit(tmp_path):
    names = tuple(f"operator {number}" for number in range(5000))
    data = small(source_names=names)
    save(data, f"robomimic:{tmp_path / 'out.hdf5'}")
    assert load(tmp_path / "out.hdf5").source_names == names


def test_the_layout_is_the_project_s_own(path):
    save(small(), f"robomimic:{path}")
    with h5py.File(path) as opened:
        file: Any = opened
        data = file["data"]
        assert set(data) == {f"demo_{m}" for m in range(5)}
        assert data.attrs["total"] == 9
        args = json.loads(data.attrs["env_args"])
        assert args == {"env_name": "Hopper-v5", "env_type": 2, "env_kwargs": {}}
        demo = data["demo_1"]
        assert demo.attrs["num_samples"] == 3
        assert demo["obs/flat"][:].tolist() == [[2, 4], [3, 9], [4, 16]]
        assert demo["next_obs/flat"].shape == (3, 2)
        assert demo["dones"][:].tolist() == [0, 0, 0]
        assert data["demo_0/dones"][:].tolist() == [0, 1]
        assert file["mask/b"][:].tolist() == [b"demo_1", b"demo_2"]
        assert file["mask/never used"].shape == (0,)
        assert set(file["mask"]) == {"a", "b", "never used", "train"}


def test_our_files_can_be_read_with_options(path):
    save(small()[:3], f"robomimic:{path}")
    assert load(path, filter="a").lengths.tolist() == [2]
    assert sources(load(path, source_from="mask:a,b")) == ["a", "b", "b"]
    assert load(path, action_bounds=(-9.0, 9.0)).action_low.tolist() == [-9, -9]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"drop": ["actions"]},
            "demo_0/actions: expected this field, found .*'states'",
        ),
        ({"drop": ["obs"]}, r"demo_0/obs: expected low-dimensional keys, found \[\]"),
        (
            {"drop": ["next_obs/gripper"]},
            "demo_0/next_obs/gripper: expected this field",
        ),
        (
            {"rewards": lambda number, length: np.zeros(5)},
            r"demo_0/rewards: expected \(4, 1\), got \(5,\)",
        ),
        (
            {"actions": lambda number, length: np.zeros((length, 2 + number // 10))},
            r"demo_10/actions: expected \(2, 2\), got \(2, 3\)",
        ),
        (
            {"actions": lambda number, length: np.zeros((length, 2, 2))},
            r"demo_0/actions: expected \(4, 2\), got \(4, 2, 2\)",
        ),
        (
            {"actions": lambda number, length: np.float32(0)},
            r"demo_0/actions: expected one or more steps, got \(\)",
        ),
        (
            {"steps": STEPS | {"demo_2": 0}},
            r"demo_2/actions: expected one or more steps, got \(0, 2\)",
        ),
        (
            {"rewards": lambda number, length: np.array([b"much"] * length)},
            "demo_0/rewards: expected an array of numbers",
        ),
        ({"steps": {}}, "data: expected at least one demo, got none"),
        (
            {"timeouts": lambda number, length: np.ones(length)},
            "timeouts: row 0: expected true only at the end",
        ),
        (
            {"actions": lambda number, length: np.full((length, 2), 3)},
            r"actions: row 0, column 0: expected a value in \[-1, 1\], got 3",
        ),
    ],
)
def test_bad_files_are_named(path, change, message):
    with pytest.raises(UserError, match=f"low_dim.hdf5: {message}"):
        load(f"robomimic:{write(path, **change)}")


def test_a_field_that_only_some_demonstrations_have(path):
    write(path)
    with h5py.File(path, "a") as file:
        del file["data/demo_2/rewards"]
    with pytest.raises(UserError, match="demo_2/rewards: expected this field, found"):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"), [("{env", "Expecting"), ("[1]", r"\[1\]"), (7, "int")]
)
def test_bad_env_args(path, text, message):
    write(path)
    with h5py.File(path, "a") as file:
        file["data"].attrs["env_args"] = text
    with pytest.raises(UserError, match=f"env_args: expected a JSON dict, .*{message}"):
        load(path)


def test_files_that_are_something_else(path):
    path.write_bytes(b"not HDF5")
    with pytest.raises(UserError, match="expected an HDF5 file"):
        load(f"robomimic:{path}")
    with h5py.File(path, "w") as file:
        file["observations"] = np.zeros(3)
    with pytest.raises(UserError, match=r"data: expected .* found \['observations'\]"):
        load(f"robomimic:{path}")


def test_actions_outside_are_clipped_on_request(path):
    write(path, actions=lambda number, length: np.full((length, 2), 3))
    assert load(path, clip=True).clipped == 18
