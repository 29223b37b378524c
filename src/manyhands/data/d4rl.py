"""D4RL's HDF5 files: flat arrays over all transitions.

v1 and v2 files have `timeouts` and `next_observations`; v0 files lack one or both, and
some store (N, 1) columns. Beyond D4RL's own fields we read and write `source` (N,),
`infos/action_log_probs` (N,), and the attributes `source_names`, `env_id`,
`action_low`, `action_high`. The attributes `env` and `sources` ("0 name; 1 name") are
understood too.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from manyhands.data import hdf5
from manyhands.data.npz import REQUIRED, from_fields, to_fields
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError
from manyhands.files import atomic_file

if TYPE_CHECKING:
    from manyhands.data.formats import ReadOptions

OPTIONS = frozenset({"max_steps", "source_from"})
LOG_PROBS = "infos/action_log_probs"
FIELDS = (*REQUIRED, "timeouts", "next_observations", "trajectory", "final_known")
# The MuJoCo sets of v0 mark no time-outs; their environments stop after 1000 steps.
LIMITED = re.compile(r"^(halfcheetah|hopper|walker2?d?|ant)_", re.IGNORECASE)
ROWS_PER_CHUNK = 16_384


def read(where: str, options: "ReadOptions") -> Trajectories:
    with hdf5.open_file(where) as file:
        arrays = _arrays(file, options.source_from)
    name = Path(where).stem
    if "timeouts" not in arrays and options.max_steps is None and LIMITED.match(name):
        options = replace(options, max_steps=1000)
    return from_fields(arrays, options, name)


def _arrays(file: hdf5.Group, source_from: str | None) -> dict[str, Any]:
    wanted = {key: key for key in (*FIELDS, "source", source_from) if key}
    wanted["log_probs"] = LOG_PROBS
    arrays = {
        key: found[()]
        for key, path in wanted.items()
        if isinstance(found := file.get(path), hdf5.Array)
    }
    missing = [key for key in REQUIRED if key not in arrays]
    if missing:
        raise UserError(f"{missing[0]}: expected this field, found {sorted(file)}")
    return arrays | _attributes(file, arrays.get("source"))


def _attributes(file: hdf5.Group, source: np.ndarray | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("action_low", "action_high", "source_names", "env_id"):
        if key in file.attrs:
            found[key] = file.attrs[key]
    if isinstance(found.get("source_names"), str):
        found["source_names"] = json.loads(found["source_names"])
    if "env" in file.attrs and "env_id" not in found:
        found["env_id"] = str(file.attrs["env"])
    if source is None or source.dtype.kind not in "iu":
        return found
    if "source_names" not in found and "sources" in file.attrs:
        names = re.findall(r"(\d+)\s+([^;]+)", str(file.attrs["sources"]))
        if [int(number) for number, _ in names] == list(range(int(source.max()) + 1)):
            found["source_names"] = [name.strip() for _, name in names]
    return found


def write(data: Trajectories, where: str) -> None:
    with atomic_file(Path(where)) as temporary, h5py.File(temporary, "w") as file:
        for key, array in to_fields(data).items():
            if key in ("action_low", "action_high", "source_names", "env_id"):
                # As JSON: an attribute holds 64 KB, less than some lists of strings.
                names = key == "source_names"
                file.attrs[key] = json.dumps(array.tolist()) if names else array
                continue
            file.create_dataset(
                LOG_PROBS if key == "log_probs" else key,
                data=array,
                # Whole rows together: a batch of rows is then one read.
                chunks=(min(len(array), ROWS_PER_CHUNK), *array.shape[1:]),
                compression="gzip",
                compression_opts=4,
                shuffle=True,
            )
