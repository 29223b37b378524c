"""robomimic's HDF5 files: one group per demonstration, `data/demo_<i>`.

A demonstration has actions (T, A), rewards (T,), dones (T,), obs/<key> and mostly
next_obs/<key>; `data` has the attribute env_args (JSON, its env_name is our env_id);
`mask/<name>` lists demonstrations by name. They are read in numeric order.

Observations join the low-dimensional keys, (T,) or (T, d), in alphabetical order or
that of `keys`; images (uint8, or more than two axes) are skipped. Without next_obs the
observation after the end is not known. Where rewards are absent, as in raw human
recordings, they are 0.

A done in the last row is a terminal; earlier ones are success states that the person
went on from. Many files set the last done whatever the reason for the end: there a
time-out reads as a terminal. Without dones every demonstration ends in a time-out.

`source_from="mask"` makes one source of every mask (but for the train and valid splits,
if there are others), "mask:a,b" of the masks a and b; anything else names an attribute
of the demonstrations. By default it is our own attribute `source`, where there is one.

Our additions: per demonstration `timeouts` and `log_probs` (T,) and the attributes
`source` and `final_known`; on `data` the attributes action_low, action_high (-1 and 1
where absent) and source_names (JSON).
"""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from manyhands.data import hdf5
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError
from manyhands.files import atomic_file

if TYPE_CHECKING:
    from manyhands.data.formats import ReadOptions

OPTIONS = frozenset({"keys", "filter", "source_from"})
SPLIT = re.compile(r"(^|_)(train|valid)$")
GYM = 2  # robomimic's number for Gym environments in env_args
Node = Any  # a member of a file may be a group or an array
Demos = dict[str, Node]  # groups by name, in order


def read(where: str, options: "ReadOptions") -> Trajectories:
    with hdf5.open_file(where) as file:
        return _read(file, options, name=Path(where).stem)


def _read(file: Node, options: "ReadOptions", name: str) -> Trajectories:
    demos = _demos(file, options.filter)
    attributes = file["data"].attrs
    actions = _column(demos, "actions", required=True)
    rewards = _column(demos, "rewards")
    keys = _keys(demos, options.keys)
    lengths = [len(demo["actions"]) for demo in demos.values()]
    ends = np.cumsum(lengths) - 1
    dones, timeouts = _column(demos, "dones"), _column(demos, "timeouts")
    terminals = np.zeros((len(actions), 1), bool)
    if dones is not None:
        terminals[ends] = dones[ends] != 0
    if timeouts is None:
        timeouts = np.zeros_like(terminals)
        timeouts[ends] = ~terminals[ends]

    source, source_names = _sources(file, demos, options)
    return Trajectories.from_arrays(
        _observations(demos, "obs", keys),
        actions,
        np.zeros(len(actions), np.float32) if rewards is None else rewards,
        terminals & (timeouts == 0),
        timeouts=timeouts,
        trajectory=np.repeat(np.arange(len(demos)), lengths),
        next_observations=_observations(demos, "next_obs", keys),
        final_known=[bool(d.attrs.get("final_known", True)) for d in demos.values()],
        source=source,
        source_names=source_names,
        log_probs=_column(demos, "log_probs"),
        action_bounds=options.action_bounds
        or (attributes.get("action_low", -1.0), attributes.get("action_high", 1.0)),
        clip=options.clip,
        env_id=(_json(attributes, "env_args", dict) or {}).get("env_name"),
        name=name,
        copy=False,
    )


def _demos(file: Node, mask: str | None) -> Demos:
    """All demonstrations, or those of a mask, in numeric order."""
    data = file.get("data")
    if not isinstance(data, hdf5.Group):
        raise UserError(f"data: expected a group of demos, found {sorted(file)}")
    data = data.as_home()
    place = "data" if mask is None else f"mask/{mask}"
    names = list(data) if mask is None else _mask(file, mask)
    for name in names:
        if not isinstance(data.get(name), hdf5.Group):
            raise UserError(f"{place}: {name}: expected a demo, got {data.get(name)}")
    if not names:
        raise UserError(f"{place}: expected at least one demo, got none")
    # With leading zeros, demo_2 sorts before demo_10.
    names.sort(key=lambda name: re.sub(r"\d+", lambda d: d[0].zfill(20), name))
    return {name: data[name] for name in names}


def _mask(file: Node, name: str) -> list[str]:
    masks = file.get("mask", {})
    if name not in masks:
        raise UserError(f"mask/{name}: expected this mask, found {sorted(masks)}")
    return masks[name].texts()


def _keys(demos: Demos, chosen: tuple[str, ...]) -> list[str]:
    """The observations to join: those chosen, or all that are not images."""
    demo = next(iter(demos))
    there = []
    observations = demos[demo].get("obs", {})
    for key in sorted(observations):
        array = observations.get(key)
        numbers = isinstance(array, hdf5.Array) and array.dtype.kind in "biuf"
        if numbers and array.dtype != np.uint8 and array.ndim in (1, 2):
            there.append(key)
    missing = [key for key in chosen if key not in there]
    if missing or not there:
        wanted = f"low-dimensional {missing or 'keys'}"
        raise UserError(f"{demo}/obs: expected {wanted}, found {there}")
    return list(chosen) or there


def _observations(demos: Demos, group: str, keys: list[str]) -> Any:
    if not any(group in demo for demo in demos.values()):
        return None
    parts = [_column(demos, f"{group}/{key}", required=True) for key in keys]
    return np.concatenate(parts, axis=1)


def _column(demos: Demos, field: str, required: bool = False) -> Any:
    """A field of all demonstrations, [N, size]; None where no demonstration has it."""
    missing = [name for name, demo in demos.items() if field not in demo]
    if len(missing) == len(demos) and not required:
        return None
    if missing:
        found = list(demos[missing[0]])
        raise UserError(f"{missing[0]}/{field}: expected this field, found {found}")
    parts: list[np.ndarray] = []
    for name, demo in demos.items():
        part, steps = demo[field], getattr(demo["actions"], "shape", ())[:1]
        if not isinstance(part, hdf5.Array) or part.dtype.kind not in "biuf":
            raise UserError(f"{name}/{field}: expected an array of numbers, got {part}")
        # The first demonstration says how wide a row is; (T,) is (T, 1).
        width = parts[0].shape[1:] if parts else part.shape[1:2] or (1,)
        shape = part.shape if part.ndim > 1 else (*part.shape, 1)
        if shape != (*steps, *width) or steps in ((), (0,)):
            expected = "one or more steps" if steps in ((), (0,)) else (*steps, *width)
            raise UserError(f"{name}/{field}: expected {expected}, got {part.shape}")
        parts.append(part[()].reshape(shape))
    return np.concatenate(parts)


def _sources(file: Node, demos: Demos, options: "ReadOptions") -> tuple[Any, Any]:
    """Labels, one per demonstration, and what they stand for where that is known."""
    field = options.source_from or "source"
    if field == "mask" or field.startswith("mask:"):
        return _mask_of_each(file, demos, options), None
    missing = [name for name, demo in demos.items() if field not in demo.attrs]
    if len(missing) == len(demos) and options.source_from is None:
        return None, None
    if missing:
        found = sorted(demos[missing[0]].attrs)
        raise UserError(f"{missing[0]}: expected an attribute {field!r}, found {found}")
    labels = [demo.attrs[field] for demo in demos.values()]
    ours = field == "source"
    names = _json(file["data"].attrs, "source_names", list) if ours else None
    codes = {name: code for code, name in enumerate(names or ())}
    for name, label in zip(demos, labels, strict=True):
        if np.ndim(label) or (codes and label not in codes):
            expected = f"one of {names}" if codes else "a single value"
            raise UserError(f"{name}: {field}: expected {expected}, got {label!r}")
    return [codes.get(label, label) for label in labels], names


def _mask_of_each(file: Node, demos: Demos, options: "ReadOptions") -> list[str]:
    _, chosen, names = str(options.source_from).partition(":")
    masks = [name.strip() for name in names.split(",")]
    if not chosen:  # all demonstrations that we read are in the filter's mask
        masks = [m for m in file.get("mask", ()) if m != options.filter]
        masks = [m for m in masks if not SPLIT.search(m)] or masks
    members = {mask: set(_mask(file, mask)) for mask in masks}
    labels = []
    for demo in demos:
        holders = [mask for mask in members if demo in members[mask]]
        if len(holders) != 1:
            raise UserError(
                f"{demo}: expected it in one of the masks {masks}, got it in "
                f"{holders or 'none'}; choose masks, as in source_from mask:a,b"
            )
        labels += holders
    return labels


def _json(attributes: Node, field: str, kind: type) -> Any:
    """An attribute that holds JSON; None where it is absent."""
    try:
        value = json.loads(attributes.get(field, "null"))
        if not isinstance(value, kind | None):
            raise TypeError(f"{value!r}")
    except (TypeError, ValueError) as error:
        expected = f"a JSON {kind.__name__}"
        raise UserError(f"data: {field}: expected {expected}, got {error}") from error
    return value


def write(data: Trajectories, where: str) -> None:
    columns = {
        "obs/flat": data.observations,
        "next_obs/flat": data.next_observations,
        "actions": data.actions,
        "rewards": data.rewards,
        "dones": data.terminals.astype(np.int64),  # as robomimic has them
        "timeouts": data.timeouts,
    }
    if data.log_probs is not None:
        columns["log_probs"] = data.log_probs
    env_args = {"env_name": data.env_id, "env_type": GYM, "env_kwargs": {}}
    with atomic_file(Path(where)) as temporary, h5py.File(temporary, "w") as file:
        group = file.create_group("data")
        group.attrs["total"] = data.transitions
        group.attrs["env_args"] = json.dumps(env_args)
        group.attrs["action_low"] = data.action_low
        group.attrs["action_high"] = data.action_high
        for m, (start, stop) in enumerate(pairwise(data.offsets.tolist())):
            demo = group.create_group(f"demo_{m}")
            demo.attrs["num_samples"] = stop - start
            demo.attrs["final_known"] = data.final_known[m]
            for field, values in columns.items():
                demo[field] = values[start:stop]
        if data.sources is not None:  # one string: many have no room in an attribute
            group.attrs["source_names"] = json.dumps(data.source_names)
        for code, source in enumerate(data.source_names):
            demos = [f"demo_{m}" for m in np.flatnonzero(data.sources == code)]
            for demo in demos:
                group[demo].attrs["source"] = source
            if "/" not in source and source.strip("."):  # HDF5 takes others for paths
                file[f"mask/{source}"] = np.array(demos, "S")
