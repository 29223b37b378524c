"""Minari's data sets: a folder each, in the local store or anywhere.

    ID/data/metadata.json         spaces, environment, totals; our own key `manyhands`
    ID/data/main_data.hdf5        HDF5 storage: groups episode_0, episode_1, ...
    ID/data/0/part-0.arrow, ...   Arrow or Parquet storage: a folder per episode

An episode of T steps has T+1 observations, so every next observation is known. Dict and
Tuple observations are joined as `gymnasium.spaces.flatten` joins them, in the order of
the environment's own space (a Discrete leaf becomes one column per value).

Infos have T+1 rows, the first from the reset: row t+1 belongs to step t. We read and
write `log_prob`, `source` (a name) and `final_known`; they are infos because those
alone survive when Minari combines data sets. metadata.json keeps the order of the
source names and the environment's id as it was given.
"""

import difflib
import json
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyhands.data import checks, minari_episodes, minari_spaces
from manyhands.data.minari_spaces import Box, Other, Space
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError, require
from manyhands.files import atomic_directory, file_inside

if TYPE_CHECKING:
    from manyhands.data.formats import ReadOptions

OPTIONS = frozenset({"source_from"})
OWN = "manyhands"  # our key in metadata.json
REQUIRED = {
    "dataset_id": str,
    "minari_version": str,
    "data_format": str,
    "total_episodes": int,
    "total_steps": int,
}


def _minari(module: str = "minari") -> Any:
    return require(module, extra="minari", purpose="a Minari data set")


# Reading


def read(where: str, options: "ReadOptions") -> Trajectories:
    place = _find(where)
    metadata = _metadata(place)
    actions = minari_spaces.read_space(metadata, "action_space")
    observations = minari_spaces.read_space(metadata, "observation_space")
    if not isinstance(actions, Box) or not actions.dtype.startswith("float"):
        raise UserError(
            "actions: expected continuous ones (a Box of floats), got "
            f"{_described(actions)}"
        )
    fields = minari_episodes.join(
        minari_episodes.stored(place, metadata),
        metadata["total_steps"],
        minari_episodes.leaves(observations),
        minari_episodes.Leaf(("actions",), actions),
        options.source_from,
    )
    own = metadata.get(OWN, {})
    names = own.get("source_names", []) if options.source_from is None else []
    if fields["source"] and set(fields["source"]) <= set(names):
        fields["source"] = [names.index(name) for name in fields["source"]]
        fields["source_names"] = names
    env_id = own.get("env_id")
    if env_id is None and "env_spec" in metadata:
        env_id = _id_in(metadata["env_spec"])
    return Trajectories.from_arrays(
        **fields,
        action_bounds=options.action_bounds or _bounds(actions),
        clip=options.clip,
        env_id=env_id,
        name=metadata["dataset_id"],
        copy=False,
    )


def _find(where: str) -> Path:
    """The folder of metadata.json; a folder goes before an id of the same name."""
    root = _minari("minari.storage").get_dataset_path()
    for folder in (Path(where), root / where):
        for place in (folder / "data", folder):
            if (place / "metadata.json").is_file():
                return place
    found = (path.relative_to(root) for path in root.rglob("data/metadata.json"))
    # Hidden folders hold what is still being written.
    ids = [path.parents[1].as_posix() for path in found if path.parts[0][0] != "."]
    close = difflib.get_close_matches(where, ids, n=3, cutoff=0.0)
    raise UserError(
        f"expected a folder with data/metadata.json or an id in {root}, found neither; "
        + (f"closest there: {', '.join(close)}" if close else "no data set is there")
    )


def _metadata(place: Path) -> dict[str, Any]:
    known = _minari().supported_dataset_versions
    try:
        text = file_inside(place, place / "metadata.json").read_text("utf-8")
        metadata = json.loads(text)
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"metadata.json: expected JSON: {error}") from error
    found = ", ".join(metadata) if isinstance(metadata, dict) else metadata
    for key, kind in REQUIRED.items():
        if not isinstance(metadata, dict) or key not in metadata:
            raise UserError(f"metadata.json: expected {key}, found {found}")
        value = metadata[key]
        if type(value) is not kind or (kind is int and value < 1):
            what = "a whole number, at least 1" if kind is int else "text"
            raise UserError(f"metadata.json: {key}: expected {what}, got {value!r}")
    if not isinstance(metadata.get(OWN, {}), dict):
        raise UserError(f"metadata.json: {OWN}: expected an object")
    if metadata["minari_version"] not in known:
        raise UserError(
            "minari_version: expected one that the installed Minari reads "
            f"({', '.join(sorted(known))}), got {metadata['minari_version']}"
        )
    return metadata


def _id_in(env_spec: Any) -> str | None:
    """The environment's id alone: what else a specification holds could run programs,
    and EnvSpec refuses the fields of another version of Gymnasium."""
    try:
        content = json.loads(env_spec) if env_spec else None
    except (ValueError, TypeError) as error:
        raise UserError(f"metadata.json: env_spec: expected JSON: {error}") from error
    return content.get("id") if isinstance(content, dict) else None


def _described(space: Space) -> str:
    match space:
        case Box():
            return f"a Box of {space.dtype}"
        case Other():
            return space.kind
    return type(space).__name__


def _bounds(space: Box) -> tuple[np.ndarray, np.ndarray]:
    low, high = space.low.ravel(), space.high.ravel()
    finite = np.isfinite(low) & np.isfinite(high)
    return np.where(finite, low, -1), np.where(finite, high, 1)


# Writing


def write(data: Trajectories, where: str) -> None:
    """To HDF5 storage: a path (with a separator, or a dot in front), or an id."""
    place, dataset_id = _destination(where)
    _refuse_split_steps(data)
    minari_storage = _minari("minari.dataset.minari_storage").MinariStorage
    box = _minari("gymnasium").spaces.Box
    with atomic_directory(place) as fresh:
        storage = minari_storage.new(
            fresh / "data",
            observation_space=box(-np.inf, np.inf, (data.observation_size,)),
            action_space=box(data.action_low, data.action_high),
            env_spec=_env_spec(data.env_id),
            data_format="hdf5",
        )
        own = {"env_id": data.env_id, "source_names": list(data.source_names)}
        storage.update_metadata(
            {
                "dataset_id": dataset_id,
                "minari_version": _minari().__version__,
                OWN: own,
            }
        )
        storage.update_episodes(_buffers(data))


def exists(where: str) -> bool:
    """An id is looked up in the store, not in this folder."""
    return _destination(where)[0].exists()


def _destination(where: str) -> tuple[Path, str]:
    if os.sep in where or "/" in where or where.startswith("."):
        place = Path(where).absolute()
        # Minari wants an id in every data set, and its ids end in a version.
        dataset_id = re.sub(r"[^-\w]", "-", place.name)
        if not re.search(r"-v\d+$", dataset_id):
            dataset_id += "-v0"
    elif re.fullmatch(r"[-\w]+-v\d+", where):
        place, dataset_id = _minari("minari.storage").get_dataset_path(where), where
    else:
        raise UserError(
            "expected an id for the local store, as in name-v0, or a path, as in ./name"
        )
    # The old folder is deleted, so it must be one that we wrote.
    metadata = place / "data" / "metadata.json"
    ours = metadata.is_file() and OWN in json.loads(metadata.read_text())
    if place.exists() and not ours and (place.is_file() or any(place.iterdir())):
        raise UserError(f"{place} exists and is not ours to replace; delete it first")
    return place, dataset_id


def _refuse_split_steps(data: Trajectories) -> None:
    """Minari stores T+1 observations: a step must begin where the last one ended."""
    rows = checks.gaps(data)
    if len(rows):
        row = int(rows[0])
        raise UserError(
            f"next_observations: row {row}: expected the observation of row {row + 1} "
            "(Minari keeps each once), got another; other formats keep both"
        )


def _env_spec(env_id: str | None) -> Any:
    """What lets Minari recover the environment, where Gymnasium knows it."""
    gymnasium = _minari("gymnasium")
    if env_id is None:
        return None
    try:
        spec = gymnasium.spec(env_id)
        spec.to_json()
    except (gymnasium.error.Error, TypeError, ValueError):
        return None  # not registered here, or made with what JSON cannot hold
    return spec


def _buffers(data: Trajectories) -> Iterator[Any]:
    buffer = _minari("minari.data_collector").EpisodeBuffer
    for m, (start, end) in enumerate(pairwise(data.offsets)):
        rows, last = slice(start, end), slice(end - 1, end)
        infos: dict[str, np.ndarray] = {}  # the first row is the reset's
        if data.log_probs is not None:
            infos["log_prob"] = np.concatenate([[np.nan], data.log_probs[rows]])
            infos["log_prob"] = infos["log_prob"].astype(np.float32)
        if data.sources is not None:
            name = data.source_names[data.sources[m]].encode()
            infos["source"] = np.full(end - start + 1, name)
        if not data.final_known[m]:
            infos["final_known"] = np.zeros(end - start + 1, bool)
        yield buffer(
            observations=np.concatenate(
                [data.observations[rows], data.next_observations[last]]
            ),
            actions=data.actions[rows],
            rewards=data.rewards[rows],
            terminations=data.terminals[rows],
            truncations=data.timeouts[rows],
            infos=infos,
        )
