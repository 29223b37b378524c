"""NumPy archives, the plainest way in.

Keys: observations (N, S), actions (N, A), rewards (N,), terminals (N,), and timeouts
(N,) or trajectory (N,). Optional: next_observations (N, S), source (per transition or
per trajectory), source_names, log_probs (N,), action_low, action_high (A,), env_id,
final_known (M,).
"""

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError
from manyhands.files import atomic_file, check_regular

if TYPE_CHECKING:
    from manyhands.data.formats import ReadOptions

OPTIONS = frozenset({"max_steps", "source_from"})
REQUIRED = ("observations", "actions", "rewards", "terminals")


def read(where: str, options: "ReadOptions") -> Trajectories:
    check_regular(Path(where))
    try:
        with open(where, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except OSError as error:
        raise UserError(f"expected a NumPy archive: {error}") from error
    # Of all sorts of other files, and of archives that are cut short or hold pickles.
    except (ValueError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise UserError(
            "expected a NumPy archive without objects, its content is not one, or not "
            "a whole one"
        ) from error
    return from_fields(arrays, options, name=Path(where).stem)


def from_fields(
    arrays: dict[str, Any], options: "ReadOptions", name: str
) -> Trajectories:
    """Trajectories from named arrays; D4RL files come through here as well."""
    for key in REQUIRED:
        if key not in arrays:
            raise UserError(f"{key}: expected this field, found {sorted(arrays)}")
    source = arrays.get(options.source_from or "source")
    if options.source_from and source is None:
        raise UserError(
            f"{options.source_from}: expected this field to name the sources, found "
            f"{sorted(arrays)}"
        )
    bounds = options.action_bounds
    if bounds is None:
        bounds = (arrays.get("action_low", -1.0), arrays.get("action_high", 1.0))
    names = arrays.get("source_names") if options.source_from is None else None
    env_id = arrays.get("env_id")
    return Trajectories.from_arrays(
        **{key: arrays[key] for key in REQUIRED},
        timeouts=arrays.get("timeouts"),
        trajectory=arrays.get("trajectory"),
        next_observations=arrays.get("next_observations"),
        source=source,
        source_names=None if names is None else [str(n) for n in names],
        log_probs=arrays.get("log_probs"),
        final_known=arrays.get("final_known"),
        action_bounds=bounds,
        clip=options.clip,
        max_steps=options.max_steps,
        env_id=None if env_id is None else str(env_id),
        name=name,
        copy=False,
    )


def to_fields(data: Trajectories) -> dict[str, Any]:
    """The arrays that `from_fields` turns back into the same data."""
    arrays: dict[str, Any] = {
        "observations": data.observations,
        "actions": data.actions,
        "rewards": data.rewards,
        "next_observations": data.next_observations,
        "terminals": data.terminals,
        "timeouts": data.timeouts,
        "action_low": data.action_low,
        "action_high": data.action_high,
    }
    if not data.final_known.all():
        arrays["final_known"] = data.final_known
    # A trajectory cut off inside the file has no flag at its end: ids tell it apart.
    ends = data.offsets[1:-1] - 1
    if not (data.terminals | data.timeouts)[ends].all():
        arrays["trajectory"] = data.trajectory
    if data.log_probs is not None:
        arrays["log_probs"] = data.log_probs
    if data.sources is not None:
        arrays["source"] = np.repeat(data.sources, data.lengths)
        arrays["source_names"] = np.array(data.source_names)
    if data.env_id is not None:
        arrays["env_id"] = data.env_id
    return arrays


def write(data: Trajectories, where: str) -> None:
    # To an open file: to a name without .npz NumPy would add it.
    with atomic_file(Path(where)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **to_fields(data))
