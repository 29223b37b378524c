"""LeRobot's directories: tables of frames in Parquet, and JSON about them.

v2.0 and v2.1 have one file per episode, v3.0 many episodes per file; data_path in
meta/info.json says where. The rows' own episode_index and frame_index say what belongs
together, whatever the episode tables in `meta` hold; but there have to be as many
episodes as meta/info.json counts.

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

from manyhands.data.lerobot_tables import (
    Frames,
    column_names,
    make_episodes,
    make_info,
    make_stats,
    read_frames,
    read_info,
    read_tasks,
)
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError, require
from manyhands.files import atomic_directory, file_inside

if TYPE_CHECKING:
    from manyhands.data.formats import ReadOptions

OPTIONS = frozenset({"keys", "source_from"})
STATES = ("observation.state", "observation.environment_state")
REWARDS = ("next.reward", "reward")
ENDS = ("next.terminated", "next.done", "next.truncated")
KNOWN = "next.observation.known"
FILE = "chunk-000/file-000.parquet"  # everything fits into one
FPS = 1  # the time of a step is not known: timestamps count steps


def read(where: str, options: "ReadOptions") -> Trajectories:
    root = Path(where)
    info = read_info(root)
    files = _tables(root, info.get("data_path"))
    there = column_names(files[0])
    keys = list(options.keys) or [key for key in STATES if key in there] or [STATES[0]]
    following = [f"next.{key}" for key in keys]
    following = following if set(following) <= set(there) else []
    source = options.source_from or ("source" if "source" in there else None)
    frames = read_frames(
        files,
        vectors=["action", *keys, *following],
        numbers=[c for c in (*REWARDS, *ENDS, KNOWN, "log_prob") if c in there],
        labels=[source] if source else [],
    )
    episode = frames["episode_index"]
    _check_episodes(episode, info)

    last = np.append(episode[1:] != episode[:-1], True)
    nothing = np.zeros(len(last), np.float32)
    terminated, done, truncated = (last & (frames.get(c, nothing) != 0) for c in ENDS)
    terminals = terminated if "next.terminated" in frames else done & ~truncated
    timeouts = truncated if "next.truncated" in frames else last & ~terminals
    labels, names = _sources(root, info, source, frames) if source else (None, None)
    return Trajectories.from_arrays(
        _join(frames, keys),
        frames["action"],
        frames.get("next.reward", frames.get("reward", nothing)),
        terminals,
        timeouts=timeouts,
        trajectory=episode,
        next_observations=_join(frames, following) if following else None,
        final_known=frames[KNOWN][last] if KNOWN in frames else None,
        source=labels,
        source_names=names,
        log_probs=frames.get("log_prob"),
        action_bounds=options.action_bounds or _bounds(info, frames["action"]),
        clip=options.clip,
        env_id=_ours(info, "observation.state").get("env_id"),
        name=root.name,
        copy=False,
    )


def _tables(root: Path, template: Any) -> list[Path]:
    """The files with frames, which all lie in this folder."""
    parts = Path(template).parts if isinstance(template, str) else ()
    if not parts or ".." in parts or Path(str(template)).is_absolute():
        raise UserError(
            "meta/info.json: data_path: expected a path inside this folder, got "
            f"{template!r}"
        )
    files = sorted(root.glob(re.sub(r"{.*?}", "*", str(template))))
    if not files:
        raise UserError(f"data_path: expected files {template}, found none")
    return [file_inside(root, path) for path in files]


def _join(frames: Frames, columns: list[str]) -> np.ndarray:
    parts = [frames[column].reshape(len(frames[column]), -1) for column in columns]
    return np.concatenate(parts, axis=1)


def _check_episodes(episode: np.ndarray, info: dict[str, Any]) -> None:
    """Fewer episodes than announced: a file did not come along."""
    total = info.get("total_episodes") or 0
    missing = np.setdiff1d(np.arange(total), episode)
    if len(missing):
        raise UserError(
            f"episode_index: expected {total} episodes (total_episodes), got "
            f"{total - len(missing)}; the first that is missing is {missing[0]}"
        )


def _ours(info: dict[str, Any], feature: str) -> dict[str, Any]:
    """What `write` added to a feature."""
    return (info["features"].get(feature) or {}).get("info") or {}


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
) -> tuple[Any, list[str] | None]:
    """Labels, one per episode, and what they stand for where that is known."""
    labels, episode = frames[column], frames["episode_index"]
    same = episode[1:] == episode[:-1]
    change = (labels[1:] != labels[:-1]) & same
    if change.any():
        row = int(np.argmax(change))
        raise UserError(
            f"{column}: episode {episode[row]}: expected one value, got {labels[row]} "
            f"and {labels[row + 1]}"
        )
    labels = labels[np.append(True, ~same)]
    if column == "task_index":
        tasks = read_tasks(root)
        return [tasks.get(label, str(label)) for label in labels.tolist()], None
    return labels, _ours(info, column).get("names") if column == "source" else None


def exists(where: str) -> bool:
    _check_replaceable(Path(where))
    return Path(where).exists()


def _check_replaceable(place: Path) -> None:
    """The old folder is deleted, so it must hold nothing but such data."""
    if not place.exists() or (place / "meta" / "info.json").is_file():
        return
    if place.is_file() or any(place.iterdir()):
        raise UserError(
            "expected an empty folder or a LeRobot data set (meta/info.json) to "
            "replace, found something else; delete it first"
        )


def write(data: Trajectories, where: str) -> None:
    parquet = require(
        "pyarrow.parquet", extra="lerobot", purpose="writing LeRobot data"
    )
    pyarrow = importlib.import_module("pyarrow")
    frames = _frames(data)
    arrays = {}
    for column, values in frames.items():
        arrays[column] = pyarrow.array(values.reshape(-1))
        # LeRobot keeps a feature of size 1 as a plain number.
        if values.ndim == 2 and values.shape[1] > 1:
            lists = pyarrow.FixedSizeListArray
            arrays[column] = lists.from_arrays(arrays[column], values.shape[1])
    task = data.env_id or data.name
    # LeRobot reads this one with pandas, and wants the texts as its index.
    index = {"name": "task", "pandas_type": "unicode", "numpy_type": "object"}
    pandas = {"index_columns": ["task"], "columns": [index], "column_indexes": []}
    tasks = pyarrow.table({"task_index": [0], "task": [task]})
    tasks = tasks.replace_schema_metadata({"pandas": json.dumps(pandas)})
    _check_replaceable(Path(where))
    with atomic_directory(Path(where)) as root:
        for path, table in {
            f"data/{FILE}": pyarrow.table(arrays),
            f"meta/episodes/{FILE}": pyarrow.table(make_episodes(data.offsets, task)),
            "meta/tasks.parquet": tasks,
        }.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table, root / path)
        info, stats = make_info(frames, len(data), FPS), make_stats(frames)
        _add_ours(info["features"], data)
        (root / "meta" / "info.json").write_text(json.dumps(info, indent=4))
        (root / "meta" / "stats.json").write_text(json.dumps(stats, indent=4))


def _add_ours(features: dict[str, Any], data: Trajectories) -> None:
    features["observation.state"]["info"] = {"env_id": data.env_id}
    low, high = data.action_low.tolist(), data.action_high.tolist()
    features["action"]["info"] = {"low": low, "high": high}
    if data.sources is not None:
        features["source"]["info"] = {"names": data.source_names}


def _frames(data: Trajectories) -> Frames:
    rows = np.arange(data.transitions)
    step = rows - data.offsets[data.trajectory]
    frames = {
        "observation.state": data.observations,
        "action": data.actions,
        "next.reward": data.rewards,
        "next.done": data.terminals,
        "next.truncated": data.timeouts,
        "next.observation.state": data.next_observations,
    }
    if not data.final_known.all():
        frames[KNOWN] = np.ones(len(rows), bool)
        frames[KNOWN][data.offsets[1:] - 1] = data.final_known
    if data.log_probs is not None:
        frames["log_prob"] = data.log_probs
    if data.sources is not None:
        frames["source"] = data.sources[data.trajectory].astype(np.int64)
    return frames | {
        "timestamp": (step / FPS).astype(np.float32),
        "frame_index": step,
        "episode_index": data.trajectory.astype(np.int64),
        "index": rows,
        "task_index": np.zeros_like(rows),
    }
