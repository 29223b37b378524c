"""Minari's episodes, from its storages and spaces to flat arrays over all steps.

The files are read directly. Minari's own readers decode Arrow row by row, decode every
info, and give the parts of a Dict space in another order than its environment.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from manyhands.data import hdf5
from manyhands.data.minari_spaces import Box, Dict, Discrete, Other, Space, Tuple
from manyhands.errors import UserError, require
from manyhands.files import check_inside, file_inside

STORAGES = ("hdf5", "arrow", "parquet")
Keys = tuple[str | int, ...]  # the way to an array; a number is a place in a Tuple


class Episode(Protocol):
    """What the two storages offer of one episode."""

    def array(self, keys: Keys) -> np.ndarray | None: ...

    def infos(self) -> list[str]: ...


class HDF5Episode:
    def __init__(self, group: hdf5.Group):
        self.group = group.as_home()

    def array(self, keys: Keys) -> np.ndarray | None:
        names = (f"_index_{key}" if isinstance(key, int) else key for key in keys)
        return hdf5.read_dataset(self.group, "/".join(names))

    def infos(self) -> list[str]:
        return sorted(self.group.get("infos", ()))


class ArrowEpisode:
    def __init__(self, rows: Any):
        self.rows = rows  # a StructArray of all columns

    def array(self, keys: Keys) -> np.ndarray | None:
        values = self.rows
        for key in map(str, keys):
            if key not in _names(values):
                return None
            values = values.field(key)
        if keys[0] not in ("observations", "infos"):
            values = values[:-1]  # padded to as many rows as there are observations
        if hasattr(values.type, "list_size"):
            flat = values.flatten().to_numpy(zero_copy_only=False)
            return flat.reshape(len(values), values.type.list_size)
        return values.to_numpy(zero_copy_only=False)

    def infos(self) -> list[str]:
        return _names(self.rows.field("infos")) if "infos" in _names(self.rows) else []


def _names(values: Any) -> list[str]:
    is_struct = _arrow("pyarrow.types").is_struct
    return [field.name for field in values.type] if is_struct(values.type) else []


def _arrow(module: str) -> Any:
    return require(module, extra="minari", purpose="Minari's Arrow storage")


def stored(place: Path, metadata: dict[str, Any]) -> Iterator[Episode]:
    """The episodes of a data set, in order; `place` is the folder of metadata.json."""
    storage, count = metadata["data_format"], metadata["total_episodes"]
    if storage not in STORAGES:
        expected = ", ".join(STORAGES)
        raise UserError(f"data_format: expected one of {expected}, got {storage}")
    try:
        if storage == "hdf5":
            with hdf5.open_file(file_inside(place, place / "main_data.hdf5")) as file:
                yield from (HDF5Episode(file[f"episode_{m}"]) for m in range(count))
            return
        dataset = _arrow("pyarrow.dataset").dataset
        for m in range(count):
            rows = dataset(_tables(place, place / str(m)), format=storage)
            yield ArrowEpisode(rows.to_table().to_struct_array().combine_chunks())
    except UserError:
        raise
    except (OSError, KeyError, ValueError) as error:
        raise UserError(
            f"data_format: expected {count} episodes in {storage}, got {error}"
        ) from error


def _tables(place: Path, folder: Path) -> list[str]:
    """The files of an episode, whose metadata lies beside them."""
    check_inside(place, folder)
    names = sorted(p for p in folder.iterdir() if p.name[0] not in "_.")
    return [
        str(file_inside(place, path)) for path in names if path.name != "metadata.json"
    ]


@dataclass(frozen=True)
class Leaf:
    """A part of a space that holds numbers."""

    keys: Keys
    space: Box | Discrete

    @property
    def width(self) -> int:
        return self.space.n if isinstance(self.space, Discrete) else self.space.width

    def read(self, episode: Episode, rows: int) -> np.ndarray:
        """[rows, width]: a Discrete value is one-hot, as Gymnasium flattens it."""
        if isinstance(self.space, Box):
            return _matrix(self.keys, episode.array(self.keys), rows, self.width)
        low, high = self.space.start, self.space.start + self.width - 1
        values = _column(self.keys, episode.array(self.keys), rows).astype(np.int64)
        if values.min() < low or values.max() > high:
            raise UserError(
                f"{_spell(self.keys)}: expected values from {low} to {high}, got "
                f"{values.min()} to {values.max()}"
            )
        columns = np.zeros((rows, self.width), np.float32)
        columns[np.arange(rows), values - low] = 1
        return columns


def leaves(space: Space, keys: Keys = ("observations",)) -> list[Leaf]:
    """The leaves of a space in its own order."""
    match space:
        case Box(dtype="uint8") if len(space.shape) > 1:
            kind = f"an image of shape {space.shape}"
        case Box() | Discrete():
            return [Leaf(keys, space)]
        case Dict() | Tuple():
            parts = space.parts
            parts = parts.items() if isinstance(parts, dict) else enumerate(parts)
            return [leaf for key, one in parts for leaf in leaves(one, (*keys, key))]
        case Other(kind):
            pass
    raise UserError(f"{_spell(keys)}: expected Box or Discrete, got {kind}")


def join(
    episodes: Iterable[Episode],
    steps: int,
    parts: list[Leaf],
    action: Leaf,
    source_from: str | None,
) -> dict[str, Any]:
    """All episodes as the arguments of `Trajectories.from_arrays`."""
    size = sum(part.width for part in parts)
    fields: dict[str, Any] = {
        "observations": np.empty((steps, size), np.float32),
        "next_observations": np.empty((steps, size), np.float32),
        "actions": np.empty((steps, action.width), np.float32),
        "rewards": np.empty(steps, np.float32),
        "terminals": np.zeros(steps, bool),
        "timeouts": np.zeros(steps, bool),
        "trajectory": np.empty(steps, np.int64),
    }
    log_probs, sources, known = [], [], []
    end = 0
    for m, episode in enumerate(episodes):
        try:
            start, end = end, _copy(episode, fields, end, parts, action)
            fields["trajectory"][start:end] = m
            log_probs.append(_info(episode, "log_prob", end - start))
            sources.append(_source(episode, source_from, end - start))
            final_known = _info(episode, "final_known", end - start)
            known.append(final_known is None or bool(final_known[-1]))
        except UserError as error:
            raise UserError(f"episode {m}: {error}") from error
    if end != steps:
        raise UserError(f"total_steps: expected the episodes' {end}, got {steps}")
    log_probs = _all_or_none("infos/log_prob", log_probs)
    return fields | {
        "log_probs": None if log_probs is None else np.concatenate(log_probs),
        "source": _all_or_none("infos/source", sources),
        "final_known": known,
    }


def _copy(
    episode: Episode,
    fields: dict[str, Any],
    start: int,
    parts: list[Leaf],
    action: Leaf,
) -> int:
    """Copy an episode to the rows from `start` on; return the row after it."""
    rewards = episode.array(("rewards",))
    if rewards is None or not len(rewards):
        raise UserError("rewards: expected at least one step, got none")
    steps, total = len(rewards), len(fields["rewards"])
    end = start + steps
    rows = slice(start, end)
    if end > total:
        raise UserError(f"total_steps: expected at least {end}, got {total}")
    fields["rewards"][rows] = _column(("rewards",), rewards, steps)
    fields["actions"][rows] = action.read(episode, steps)
    # Some data sets flag every step after a success; only the last ends the episode.
    for field, flag in (("terminals", "terminations"), ("timeouts", "truncations")):
        fields[field][end - 1] = _column((flag,), episode.array((flag,)), steps)[-1]
    left = 0
    for part in parts:
        values = part.read(episode, steps + 1)
        columns = slice(left, left + part.width)
        fields["observations"][rows, columns] = values[:-1]
        fields["next_observations"][rows, columns] = values[1:]
        left += part.width
    return end


def _matrix(keys: Keys, values: np.ndarray | None, rows: int, width: int) -> np.ndarray:
    if values is None:
        raise UserError(f"{_spell(keys)}: expected this field, found none")
    if len(values) != rows or values.size != rows * width:
        raise UserError(
            f"{_spell(keys)}: expected shape {(rows, width)}, got {values.shape}"
        )
    return values.reshape(rows, width)


def _column(keys: Keys, values: np.ndarray | None, rows: int) -> np.ndarray:
    return _matrix(keys, values, rows, 1)[:, 0]


def _info(episode: Episode, name: str, steps: int) -> np.ndarray | None:
    """[steps], without the row of the reset, which some writers leave out."""
    keys = ("infos", *name.split("/"))
    values = episode.array(keys)
    if values is None:
        return None
    rows = steps if len(values) == steps else steps + 1
    return _column(keys, values, rows)[-steps:]


def _source(episode: Episode, source_from: str | None, steps: int) -> Any:
    name = source_from or "source"
    values = _info(episode, name, steps)
    if values is None:
        if source_from:
            found = ", ".join(episode.infos()) or "none"
            raise UserError(f"infos/{name}: expected this info, found {found}")
        return None
    other = values[values != values[0]]
    if len(other):
        raise UserError(
            f"infos/{name}: expected one source per episode, got {values[0]} and "
            f"{other[0]}"
        )
    # HDF5 gives back text as bytes.
    return values[0].decode() if isinstance(values[0], bytes) else values[0]


def _all_or_none(name: str, values: list[Any]) -> list[Any] | None:
    absent = [m for m, value in enumerate(values) if value is None]
    if absent and len(absent) < len(values):
        raise UserError(
            f"episode {absent[0]}: {name}: expected this info, which others have"
        )
    return values if values and not absent else None


def _spell(keys: Keys) -> str:
    return "/".join(map(str, keys))
