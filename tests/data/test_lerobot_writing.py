"""LeRobot data sets: what we write is in the project's layout and is read again."""

import json
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_files import V3_PATH, write_v3

from manyhands import Trajectories, UserError, load, save
from manyhands.data import formats


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
        "source": [2, 0, 0, 3, 2],
        "source_names": ["b", "never used", "a", "ä/\u4e16"],
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
        {"log_probs": None, "final_known": None},
        {
            "observations": np.arange(9),
            "next_observations": np.arange(9),
            "actions": np.arange(9) / 3,
            "action_bounds": (-5, 5),
        },
    ],
)
def test_round_trip(root, changes):
    data = small(**changes)
    save(data, f"lerobot:{root}")
    again = load(root)
    assert again.fingerprint == data.fingerprint


def test_a_size_of_one_is_a_plain_column_as_in_the_project_s_own_files(root):
    save(small(actions=np.zeros(9), action_bounds=(-1, 1)), f"lerobot:{root}")
    schema = pq.read_schema(root / "data" / "chunk-000" / "file-000.parquet")
    assert schema.field("action").type == pa.float32()


def test_the_layout_is_the_project_s_own(root):
    save(small(), f"lerobot:{root}")
    info = json.loads((root / "meta" / "info.json").read_text())
    assert info["codebase_version"] == "v3.0"
    assert (info["total_episodes"], info["total_frames"], info["fps"]) == (5, 9, 1)
    assert info["data_path"] == V3_PATH
    feature = info["features"]["next.observation.state"]
    assert feature == {"dtype": "float32", "shape": [2], "names": None}
    assert info["features"]["next.done"]["dtype"] == "bool"

    table = pq.read_table(root / "data" / "chunk-000" / "file-000.parquet")
    assert set(table.column_names) == set(info["features"])
    assert table["observation.state"].type == pa.list_(pa.float32(), 2)
    assert table["frame_index"].to_pylist() == [0, 1, 0, 1, 2, 0, 0, 1, 0]
    assert table["timestamp"].to_pylist() == [0, 1, 0, 1, 2, 0, 0, 1, 0]
    assert table["episode_index"].to_pylist() == [0, 0, 1, 1, 1, 2, 3, 3, 4]
    assert table["index"].to_pylist() == [*range(9)]

    meta = root / "meta"
    episodes = pq.read_table(meta / "episodes" / "chunk-000" / "file-000.parquet")
    assert episodes["length"].to_pylist() == [2, 3, 1, 2, 1]
    assert episodes["dataset_from_index"].to_pylist() == [0, 2, 5, 6, 8]
    assert episodes["dataset_to_index"].to_pylist() == [2, 5, 6, 8, 9]
    assert episodes["tasks"].to_pylist() == [["Hopper-v5"]] * 5

    tasks = pq.read_table(meta / "tasks.parquet")
    assert tasks.to_pydict() == {"task_index": [0], "task": ["Hopper-v5"]}
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]

    stats = json.loads((meta / "stats.json").read_text())
    assert set(stats) == set(info["features"])
    assert stats["index"] == {
        "min": [0],
        "max": [8],
        "mean": [4],
        "std": [pytest.approx(np.sqrt(60 / 9))],
        "count": [9],
    }
    assert stats["observation.state"]["max"] == [8, 64]


def test_without_pyarrow_the_extra_is_named(root, monkeypatch):
    write_v3(root)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for act in (lambda: load(root), lambda: save(small(), f"lerobot:{root}")):
        with pytest.raises(UserError, match=r"'pyarrow'.*manyhands\[lerobot\]"):
            act()


def test_only_empty_folders_and_lerobot_data_sets_are_replaced(root):
    save(small(), f"lerobot:{root}")
    save(small()[:2], f"lerobot:{root}")
    assert load(root).fingerprint == small()[:2].fingerprint
    shutil.rmtree(root)
    root.mkdir()
    save(small(), f"lerobot:{root}")
    assert load(root).fingerprint == small().fingerprint

    thesis = root.parent / "thesis"
    thesis.mkdir()
    (thesis / "chapter").write_text("one")
    for where in (thesis, thesis / "chapter"):
        with pytest.raises(UserError, match=f"{where}: expected an empty folder or a"):
            formats.exists(f"lerobot:{where}")
        with pytest.raises(UserError, match=f"{where}: expected an empty folder or a"):
            save(small(), f"lerobot:{where}")
    assert (thesis / "chapter").read_text() == "one"
