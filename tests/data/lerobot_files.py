"""Data sets as the LeRobot project writes them, recorded from a robot."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LENGTHS = (3, 2, 4)
V2_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
V3_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
TASKS = ["lift the cube", "open the drawer"]


def lists(array: np.ndarray, fixed: bool = True) -> pa.Array:
    flat = pa.array(array.reshape(-1))
    if fixed:
        return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
    offsets = np.arange(len(array) + 1, dtype=np.int32) * array.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), flat)


def frames(fixed: bool = True, **changes) -> pa.Table:
    """Three episodes of joint angles, as recorded from a robot."""
    episode = np.repeat(np.arange(3), LENGTHS)
    rows = np.arange(sum(LENGTHS))
    step = rows - np.concatenate([[0], np.cumsum(LENGTHS)])[episode]
    state = np.stack([step, episode, rows], axis=1).astype(np.float32)
    action = np.stack([rows * 10, 5 + 0 * rows], axis=1).astype(np.float32)
    columns = {
        "observation.state": lists(state, fixed),
        "action": lists(action, fixed),
        "timestamp": (step / 30).astype(np.float32),
        "frame_index": step,
        "episode_index": episode,
        "index": rows,
        "task_index": episode % 2,
    }
    columns |= changes
    return pa.table({k: v for k, v in columns.items() if v is not None})


def write_meta(root, version, path, **changes):
    info = {
        "codebase_version": version,
        "robot_type": "so100",
        "total_episodes": 3,
        "total_frames": 9,
        "total_tasks": 2,
        "chunks_size": 1000,
        "fps": 30,
        "splits": {"train": "0:3"},
        "data_path": path,
        "features": {
            "observation.state": {"dtype": "float32", "shape": [3], "names": None},
            "action": {"dtype": "float32", "shape": [2], "names": ["a", "b"]},
        },
    }
    (root / "meta").mkdir(parents=True, exist_ok=True)
    (root / "meta" / "info.json").write_text(json.dumps(info | changes))


def write_v2(root, table=None, version="v2.1", **changes):
    """One file per episode, lists of any length, tasks in lines of JSON."""
    write_meta(root, version, V2_PATH, **changes)
    table = frames(fixed=False) if table is None else table
    episode = table["episode_index"].to_numpy()
    for number in np.unique(episode):
        path = root / V2_PATH.format(episode_chunk=0, episode_index=number)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.filter(pa.array(episode == number)), path)
    lines = [{"task_index": i, "task": task} for i, task in enumerate(TASKS)]
    text = "\n".join(json.dumps(line) for line in lines) + "\n"
    (root / "meta" / "tasks.jsonl").write_text(text)
    return root


def write_v3(root, table=None, cut=5, **changes):
    """Two files, the first up to row `cut`, and an episode table that is partial."""
    write_meta(root, "v3.0", V3_PATH, **changes)
    table = frames() if table is None else table
    for number, part in enumerate((table[:cut], table[cut:])):
        path = root / V3_PATH.format(chunk_index=number, file_index=0)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part, path)
    episodes = {"episode_index": [0], "length": [3], "data/chunk_index": [0]}
    path = root / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(episodes), path)
    tasks = pa.table({"task_index": [0, 1], "__index_level_0__": TASKS})
    pq.write_table(tasks, root / "meta" / "tasks.parquet")
    return root
