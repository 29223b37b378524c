"""LeRobot's directories: tables of frames in Parquet, and JSON about them.

v2.0 and v2.1 have one file per episode, v3.0 many episodes per file; data_path in
meta/info.json says where. The rows' own episode_index and frame_index say what belongs
together, whatever the episode tables in `meta` hold.

Observations join the columns `keys`, by default observation.state and, where there is
one, observation.environment_state. Rewards are next.reward or reward, else 0. An
episode ends in a terminal where its last row has next.terminated or, without that
column, next.done and not next.truncated; otherwise in a time-out, unless there is a
column next.truncated and it is false: cut off.

Nobody states the bounds of a robot's actions, joint angles mostly. So, unless all
actions lie in [-1, 1] or bounds are given, each dimension's bounds are the least and
the greatest value in the data (one that never changes gets 1 more on both sides).

`source_from` names a column that is constant in each episode; for task_index the
sources are called by the texts of the tasks. By default it is our own column `source`,
where there is one.

Our additions: the columns next.observation.state, next.observation.known (false where
an episode's last is made up), log_prob and source; in meta/info.json, inside the
features' `info` because LeRobot drops other keys, env_id of observation.state, low and
high of action, names of source. We write v3.0.
"""

import importlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError, require
from manyhands.files import atomic_directory

if TYPE_CHECKING:
    from manyhands.data.formats import ReadOptions

OPTIONS = frozenset({"keys", "source_from"})
VERSIONS = ("v2.0", "v2.1", "v3.0")
INDEX = ("episode_index", "frame_index")
STATES = ("observation.state", "observation.environment_state")
REWARDS = ("next.reward", "reward")
ENDS = ("next.terminated", "next.done", "next.truncated")
KNOWN = "next.observation.known"
STATS = ("min", "max", "mean", "std")
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
PANDAS = {
    "index_columns": ["task"],
    "column_indexes": [],
    "columns": [
        {
            "name": name,
            "field_name": name,
            "pandas_type": kind,
            "numpy_type": dtype,
            "metadata": None,
        }
        for name, kind, dtype in (
            ("task_index", "int64", "int64"),
            ("task", "unicode", "object"),
        )
    ],
}
FPS = 1  # the time of a step is not known: timestamps count steps
Frames = dict[str, np.ndarray]  # columns, [N] or [N, size]


def read(where: str, options: "ReadOptions") -> Trajectories:
    root = Path(where)
    info = _info(root)
    files = sorted(root.glob(re.sub(r"{.*?}", "*", str(info.get("data_path")))))
    if not files:
        raise UserError(f"data_path: no file is like {info.get('data_path')}")
    there = _table(files[0]).column_names
    keys = list(options.keys) or [key for key in STATES if key in there] or [STATES[0]]
    following = [f"next.{key}" for key in keys]
    following = following if set(following) <= set(there) else []
    source = options.source_from or ("source" if "source" in there else None)
    columns = [*INDEX, "action", *keys, *following, *([source] if source else [])]
    columns += [c for c in (*REWARDS, *ENDS, KNOWN, "log_prob") if c in there]
    frames = _frames(files, columns)

    episode, actions = frames["episode_index"], frames["action"]
    last = np.append(episode[1:] != episode[:-1], True)
    if last.sum() < info.get("total_episodes", 0):
        expected = f"{info['total_episodes']} (total_episodes in meta/info.json)"
        raise UserError(
            f"episode_index: expected {expected} episodes, got {last.sum()}"
        )
    nothing = np.zeros(len(last), np.float32)
    terminated, done, truncated = (last & (frames.get(c, nothing) != 0) for c in ENDS)
    terminals = terminated if ENDS[0] in frames else done & ~truncated
    labels, names = _sources(root, info, source, frames) if source else (None, None)
    return Trajectories.from_arrays(
        _join(frames, keys),
        actions,
        frames.get(REWARDS[0], frames.get(REWARDS[1], nothing)),
        terminals,
        timeouts=truncated if ENDS[2] in frames else last & ~terminals,
        trajectory=episode,
        next_observations=_join(frames, following) if following else None,
        final_known=frames[KNOWN][last] if KNOWN in frames else None,
        source=labels,
        source_names=names,
        log_probs=frames.get("log_prob"),
        action_bounds=options.action_bounds or _bounds(info, actions),
        clip=options.clip,
        env_id=_ours(info, STATES[0]).get("env_id"),
        name=root.name,
        copy=False,
    )


def _info(root: Path) -> dict[str, Any]:
    place = "meta/info.json"
    try:
        info = json.loads((root / place).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{place}: expected a JSON file: {error}") from error
    if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
        raise UserError(f"{place}: expected an object with features, got {info}")
    version = info.get("codebase_version")
    if version not in VERSIONS:
        expected = f"one of {', '.join(VERSIONS)}"
        raise UserError(
            f"{place}: codebase_version: expected {expected}, got {version}"
        )
    return info


def _ours(info: dict[str, Any], feature: str) -> dict[str, Any]:
    """What `write` added to a feature."""
    return (info["features"].get(feature) or {}).get("info") or {}


def _table(path: Path, columns: list[str] | None = None) -> Any:
    """Columns of a Parquet file, those that it has; all, but no rows, by default."""
    parquet = require(
        "pyarrow.parquet", extra="lerobot", purpose="reading LeRobot data"
    )
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            return (
                schema.empty_table() if columns is None else file.read(columns=columns)
            )
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name}: expected a Parquet file: {error}") from error


def _frames(files: list[Path], columns: list[str]) -> Frames:
    """The columns of all files, rows in the order of episodes and frames."""
    parts: dict[str, list[np.ndarray]] = {column: [] for column in columns}
    for path in files:
        table = _table(path, columns)
        for column in columns:
            if column not in table.column_names:
                found = _table(path).column_names
                raise UserError(f"{path.name}: expected {column!r}, found {found}")
            parts[column].append(_values(table, column))
            if parts[column][-1].shape[1:] != parts[column][0].shape[1:]:
                a, b = parts[column][0].shape[1:], parts[column][-1].shape[1:]
                raise UserError(f"{path.name}: {column}: expected size {a}, got {b}")
    frames = {column: np.concatenate(arrays) for column, arrays in parts.items()}
    order = np.lexsort((frames["frame_index"], frames["episode_index"]))
    if (order[1:] < order[:-1]).any():
        frames = {column: values[order] for column, values in frames.items()}
    episode, frame = (frames[column].astype(np.int64) for column in INDEX)
    gap = (np.diff(episode) == 0) & (np.diff(frame) != 1)
    if gap.any():
        row = int(np.argmax(gap))
        raise UserError(
            f"frame_index: episode {episode[row]}: expected {frame[row] + 1} after "
            f"{frame[row]}, got {frame[row + 1]}"
        )
    return frames


def _values(table: Any, column: str) -> np.ndarray:
    """A column as an array, [N] or [N, size]; texts as objects, [N]."""
    array = table.column(column).combine_chunks()
    values, shape = array, [len(array)]
    if hasattr(array, "value_lengths"):  # lists
        sizes = array.value_lengths().to_numpy(zero_copy_only=False)
        odd = sizes != sizes[:1]
        if odd.any():
            row = int(np.argmax(odd))
            raise UserError(
                f"{column}: episode {table['episode_index'][row]}: expected lists of "
                f"{sizes[0]} numbers, got {array[row]}"
            )
        values = array.flatten()
        shape += [len(values) // max(1, len(array))]
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def _join(frames: Frames, columns: list[str]) -> np.ndarray:
    """[N, sizes]; a column of single numbers has size 1."""
    return np.concatenate(
        [frames[column].reshape(len(frames[column]), -1) for column in columns], axis=1
    )


def _bounds(info: dict[str, Any], actions: np.ndarray) -> tuple[Any, Any]:
    ours = _ours(info, "action")
    if "low" in ours and "high" in ours:
        return ours["low"], ours["high"]
    low, high = actions.min(axis=0), actions.max(axis=0)
    if np.all(low >= -1) and np.all(high <= 1):
        return -1.0, 1.0
    constant = low == high
    return low - constant, high + constant


def _sources(
    root: Path, info: dict[str, Any], column: str, frames: Frames
) -> tuple[Any, Any]:
    """Labels, one per episode, and what they stand for where that is known."""
    labels, episode = frames[column], frames["episode_index"]
    change = (labels[1:] != labels[:-1]) & (episode[1:] == episode[:-1])
    if change.any():
        row = int(np.argmax(change))
        raise UserError(
            f"{column}: episode {episode[row]}: expected one value, got {labels[row]} "
            f"and {labels[row + 1]}"
        )
    labels = labels[np.append(True, episode[1:] != episode[:-1])]
    if column == "source":
        return labels, _ours(info, "source").get("names")
    if column == "task_index":
        tasks = _tasks(root)
        return [tasks.get(label, str(label)) for label in labels.tolist()], None
    return labels, None


def _tasks(root: Path) -> dict[int, str]:
    """The texts of the tasks, as far as `meta` has them."""
    lines, path = root / "meta" / "tasks.jsonl", root / "meta" / "tasks.parquet"
    if path.exists():
        columns = _table(path, _table(path).column_names).to_pydict()
        # The text is the index of a pandas table: its column has several names.
        numbers, (texts, *_) = columns.pop("task_index"), columns.values()
        return dict(zip(numbers, texts, strict=True))
    rows = lines.read_text("utf-8").splitlines() if lines.exists() else []
    return {row["task_index"]: row["task"] for row in map(json.loads, rows)}


def write(data: Trajectories, where: str) -> None:
    parquet = require(
        "pyarrow.parquet", extra="lerobot", purpose="writing LeRobot data"
    )
    pyarrow = importlib.import_module("pyarrow")
    columns, count = _columns(data), len(data)
    features: dict[str, Any] = {}
    stats: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        values = values.reshape(len(values), -1)
        size, dtype = values.shape[1], str(values.dtype)
        features[name] = {"dtype": dtype, "shape": [size], "names": None}
        numbers = values.astype(np.float64)
        stats[name] = {s: getattr(numbers, s)(0).tolist() for s in STATS}
        stats[name]["count"] = [len(values)]
        flat = pyarrow.array(values.reshape(-1))
        # LeRobot keeps features of size 1 as plain numbers.
        lists = pyarrow.FixedSizeListArray
        arrays[name] = flat if size == 1 else lists.from_arrays(flat, size)
    features["observation.state"]["info"] = {"env_id": data.env_id}
    low, high = data.action_low.tolist(), data.action_high.tolist()
    features["action"]["info"] = {"low": low, "high": high}
    if data.sources is not None:
        features["source"]["info"] = {"names": data.source_names}

    info = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "robot_type": None,
        "total_tasks": 1,
    }
    info |= {"total_episodes": count, "total_frames": data.transitions}
    info |= {"chunks_size": 1000, "data_files_size_in_mb": 100}
    info |= {"video_files_size_in_mb": 200, "video_path": None, "data_path": DATA_PATH}
    info |= {"splits": {"train": f"0:{count}"}, "features": features}
    task = data.env_id or data.name
    none = np.zeros(count, np.int64)
    episodes = {
        "episode_index": np.arange(count),
        "tasks": [[task]] * count,
        "length": data.lengths,
        "dataset_from_index": data.offsets[:-1],
        "dataset_to_index": data.offsets[1:],
    }
    for place in ("data", "meta/episodes"):  # one file holds everything
        episodes |= {f"{place}/chunk_index": none, f"{place}/file_index": none}
    # LeRobot wants the tasks as a pandas table that has the texts as its index.
    tasks = pyarrow.table({"task_index": [0], "task": [task]})
    tasks = tasks.replace_schema_metadata({"pandas": json.dumps(PANDAS)})
    with atomic_directory(Path(where)) as root:
        for path, table in (
            ("data/chunk-000/file-000.parquet", pyarrow.table(arrays)),
            ("meta/episodes/chunk-000/file-000.parquet", pyarrow.table(episodes)),
            ("meta/tasks.parquet", tasks),
        ):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table, root / path)
        for path, content in (("info", info), ("stats", stats)):
            (root / f"meta/{path}.json").write_text(json.dumps(content, indent=4))


def _columns(data: Trajectories) -> Frames:
    rows = np.arange(data.transitions)
    frame = rows - data.offsets[data.trajectory]
    columns = {
        "observation.state": data.observations,
        "action": data.actions,
        "next.reward": data.rewards,
        "next.done": data.terminals,
        "next.truncated": data.timeouts,
        "next.observation.state": data.next_observations,
    }
    if not data.final_known.all():
        columns[KNOWN] = np.ones(len(rows), bool)
        columns[KNOWN][data.offsets[1:] - 1] = data.final_known
    if data.log_probs is not None:
        columns["log_prob"] = data.log_probs
    if data.sources is not None:
        columns["source"] = data.sources[data.trajectory].astype(np.int64)
    return columns | {
        "timestamp": (frame / FPS).astype(np.float32),
        "frame_index": frame,
        "episode_index": data.trajectory.astype(np.int64),
        "index": rows,
        "task_index": np.zeros_like(rows),
    }
