"""LeRobot's files: the columns of frames as arrays, and what `meta` says of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.errors import UserError, require
from manyhands.files import file_inside

VERSIONS = ("v2.0", "v2.1", "v3.0")
INDEX = ("episode_index", "frame_index")
Frames = dict[str, np.ndarray]  # columns, [N] or [N, size]


def read_info(root: Path) -> dict[str, Any]:
    place = "meta/info.json"
    try:
        info = json.loads(file_inside(root, root / place).read_text("utf-8"))
    except UserError:
        raise
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


def read_tasks(root: Path) -> dict[int, str]:
    """The texts of the tasks by task_index, as far as there are any."""
    table, lines = root / "meta" / "tasks.parquet", root / "meta" / "tasks.jsonl"
    for path in (table, lines):
        file_inside(root, path)
    if table.exists():
        columns = _table(table, column_names(table)).to_pydict()
        # The texts are the index of a pandas table, which may have no name.
        texts = columns.get("task", columns.get("__index_level_0__"))
        if texts is None or "task_index" not in columns:
            found = list(columns)
            raise UserError(
                f"meta/tasks.parquet: expected task_index, task, got {found}"
            )
        return dict(zip(columns["task_index"], texts, strict=True))
    rows = lines.read_text("utf-8").splitlines() if lines.exists() else []
    try:
        return {row["task_index"]: row["task"] for row in map(json.loads, rows)}
    except (ValueError, KeyError, TypeError) as error:
        expected = "lines of JSON with task_index and task"
        raise UserError(f"meta/tasks.jsonl: expected {expected}: {error!r}") from error


def column_names(path: Path) -> list[str]:
    return _table(path, None).column_names


def read_frames(
    files: list[Path],
    vectors: Sequence[str],
    numbers: Sequence[str],
    labels: Sequence[str],
) -> Frames:
    """Columns of all files together, rows in the order of episodes and frames.

    Numbers and labels have shape [N], and labels may be texts. Vectors are [N, size],
    or [N] for a size of 1.
    """
    parts: dict[str, list[np.ndarray]] = {
        column: [] for column in (*INDEX, *numbers, *labels, *vectors)
    }
    for path in files:
        table = _table(path, list(parts))
        if not table.num_rows:
            continue
        for column, arrays in parts.items():
            if column not in table.column_names:
                found = column_names(path)
                raise UserError(f"{_short(path)}: expected {column!r}, found {found}")
            values = _values(table, column, text=column in labels)
            if values.ndim > 1 and column in (*INDEX, *numbers, *labels):
                raise UserError(f"{column}: expected one value a row, got lists")
            if arrays and values.shape[1:] != arrays[0].shape[1:]:
                raise UserError(
                    f"{_short(path)}: {column}: expected {arrays[0][0].size} numbers, "
                    f"as in the file before, got {values[0].size}"
                )
            arrays.append(values)
    if not parts["episode_index"]:
        raise UserError("episode_index: expected at least one frame, found none")
    return _in_order({column: np.concatenate(parts[column]) for column in parts})


def _short(path: Path) -> str:
    return "/".join(path.parts[-3:])


def _table(path: Path, columns: list[str] | None) -> Any:
    """The columns that the file has; with None all, but no rows."""
    parquet = require(
        "pyarrow.parquet", extra="lerobot", purpose="reading LeRobot data"
    )
    try:
        with parquet.ParquetFile(path) as file:
            if columns is None:
                return file.schema_arrow.empty_table()
            return file.read(columns=columns)
    except (OSError, ValueError) as error:
        raise UserError(f"{_short(path)}: expected a Parquet file: {error}") from error


def _values(table: Any, column: str, text: bool) -> np.ndarray:
    """A column as an array: [N], or [N, size] where it has lists of several numbers."""
    array = table.column(column).combine_chunks()
    values, size = array, 1
    bad = array.is_null().to_numpy(zero_copy_only=False)
    if hasattr(array, "value_lengths") and not bad.any():  # lists
        sizes = array.value_lengths().to_numpy()
        bad = sizes != sizes[0]
        values, size = array.flatten(), int(sizes[0])
    if bad.any():
        row = int(np.argmax(bad))
        place = f"{column}: episode {table['episode_index'][row]}"
        raise UserError(f"{place}: expected {size} values a row, got {array[row]}")
    values = values.to_numpy(zero_copy_only=False)
    kinds = "iu" if column in INDEX else "biufO" if text else "biuf"
    if values.dtype.kind not in kinds:
        expected = "whole numbers" if column in INDEX else "numbers"
        raise UserError(f"{column}: expected {expected}, got {array.type}")
    return values if size == 1 else values.reshape(len(array), size)


def _in_order(frames: Frames) -> Frames:
    """Sort the rows where files are not in order; frames may not be left out."""
    order = np.lexsort((frames["frame_index"], frames["episode_index"]))
    if (order[1:] < order[:-1]).any():
        frames = {column: values[order] for column, values in frames.items()}
    episode, frame = (frames[column].astype(np.int64) for column in INDEX)
    gap = (episode[1:] == episode[:-1]) & (frame[1:] != frame[:-1] + 1)
    if gap.any():
        row = int(np.argmax(gap))
        raise UserError(
            f"frame_index: episode {episode[row]}: expected {frame[row] + 1} after "
            f"{frame[row]}, got {frame[row + 1]}"
        )
    return frames


def make_info(frames: Frames, episodes: int, fps: int) -> dict[str, Any]:
    """The content of meta/info.json, v3.0."""
    features = {}
    for column, values in frames.items():
        dtype, shape = str(values.dtype), list(values.shape[1:]) or [1]
        features[column] = {"dtype": dtype, "shape": shape, "names": None}
    return {
        "codebase_version": "v3.0",
        "robot_type": None,
        "total_episodes": episodes,
        "total_frames": len(frames["index"]),
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": fps,
        "splits": {"train": f"0:{episodes}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": features,
    }


def make_episodes(offsets: np.ndarray, task: str) -> dict[str, Any]:
    """The columns of the episode table, for data in one file."""
    count = len(offsets) - 1
    zeros = np.zeros(count, np.int64)
    return {
        "episode_index": np.arange(count),
        "tasks": [[task]] * count,
        "length": np.diff(offsets),
        "dataset_from_index": offsets[:-1],
        "dataset_to_index": offsets[1:],
        "data/chunk_index": zeros,
        "data/file_index": zeros,
        "meta/episodes/chunk_index": zeros,
        "meta/episodes/file_index": zeros,
    }


def make_stats(frames: Frames) -> dict[str, dict[str, list[float]]]:
    """The content of meta/stats.json."""
    stats = {}
    for column, values in frames.items():
        numbers = values.reshape(len(values), -1).astype(np.float64)
        stats[column] = {
            "min": numbers.min(axis=0).tolist(),
            "max": numbers.max(axis=0).tolist(),
            "mean": numbers.mean(axis=0).tolist(),
            "std": numbers.std(axis=0).tolist(),
            "count": [len(values)],
        }
    return stats
