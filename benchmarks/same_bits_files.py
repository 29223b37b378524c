"""What runs leave behind, as JSON that two recordings can be compared by.

Arrays are fingerprints. Of JSON and tables the content is kept, without what differs
from one time to the next: times, speeds, versions, devices, and the folder.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

Entries = dict[str, Any]

VOLATILE = {
    "environment",
    "device",
    "seconds",
    "compile_seconds",
    "updates_per_second",
    "fleet_seconds",
}
# Words that the command line prints, and what stands for them.
TIMES = [
    (re.compile(r"[\d,]+ updates/s on [^\n]*"), "N updates/s on DEVICE"),
    (re.compile(r"[\d,]+ a second on [^\n]*"), "N a second on DEVICE"),
    (re.compile(r"\([\d.]+ MB\)"), "(N MB)"),
]


def array(found: Any) -> str:
    """Type, shape and SHA-256."""
    found = np.asarray(found)
    digest = hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()
    return f"{found.dtype}{list(found.shape)} {digest}"


def arrays(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: array(found[name]) for name in sorted(found)}


def plain(found: Any, folder: Path) -> Any:
    """JSON, less what is of one time or one place only."""
    if isinstance(found, dict):
        return {k: plain(v, folder) for k, v in found.items() if k not in VOLATILE}
    if isinstance(found, list | tuple):
        return [plain(one, folder) for one in found]
    return words(found, folder) if isinstance(found, str) else found


def words(text: str, folder: Path) -> str:
    for place in {str(folder.resolve()), str(folder)}:
        text = text.replace(place, "FOLDER")
    for pattern, instead in TIMES:
        text = pattern.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def metrics(path: Path, folder: Path) -> list[Any]:
    """Rows by step and replica: evaluations end when they may, beside the training."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]

    def place(row: dict[str, Any]) -> tuple:
        evaluated = any(name.startswith("evaluation/") for name in row)
        return row.get("step", 0), evaluated, row.get("replica", 0)

    return plain(sorted(rows, key=place), folder)


def read(folder: Path, around: Path | None = None) -> Entries:
    """All that a run has left in this folder and in those below it.

    Args:
        around: the folder whose name means nothing, if it is not this one.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [str(path.relative_to(folder)) for path in paths]
    found: Entries = {"files": dict.fromkeys(names, "there")}
    for name, path in zip(names, paths):
        if "checkpoints" in path.parts:
            continue
        match path.suffix:
            case ".safetensors":
                found[name] = arrays(load_file(path))
            case ".npz":
                with np.load(path) as file:
                    found[name] = arrays(file)
            case ".json":
                found[name] = plain(json.loads(path.read_text()), around or folder)
            case ".jsonl":
                found[name] = metrics(path, around or folder)
            case ".csv":
                found[name] = dict(enumerate(path.read_text().splitlines()))
            case ".f32":
                found[name] = array(np.fromfile(path, np.float32))
    return found


# Differences


def leaves(found: Any, where: str = "") -> dict[str, Any]:
    """Every value by the names that lead to it; a list of plain values is one."""
    if isinstance(found, dict) and found:
        pairs = found.items()
    elif isinstance(found, list) and any(isinstance(x, dict | list) for x in found):
        pairs = enumerate(found)
    else:
        return {where: found}
    return {
        name: value
        for key, one in pairs
        for name, value in leaves(
            one, f"{where} > {key}" if where else f"{key}"
        ).items()
    }


ABSENT = "(absent)"


def differences(before: Any, now: Any) -> dict[str, tuple[Any, Any]]:
    """Both values wherever they are not the same."""
    one, other = leaves(before), leaves(now)
    pairs = {
        name: (one.get(name, ABSENT), other.get(name, ABSENT)) for name in one | other
    }
    # Written down: NaN is then itself, and -0.0 is not 0.0.
    return {k: v for k, v in pairs.items() if json.dumps(v[0]) != json.dumps(v[1])}
