"""The stored policies: their files, and a manifest of how good they are."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from manyhands.agents.acting import Layers
from manyhands.errors import UserError
from manyhands.files import atomic_file, save_arrays

STORED = Path(__file__).parent / "stored"
MEDIUM = 1 / 3  # share of the expert's return that the medium policy should reach


@dataclass(frozen=True)
class About:
    """Which policy, and how good it is: a row of the manifest."""

    task: str
    seed: int  # of the agent's training
    step: int  # updates so far
    # Returns of 20 episodes, with sampled actions and with the mode.
    return_mean: float = float("nan")
    return_std: float = float("nan")
    normalized: float = float("nan")
    mode_return_mean: float = float("nan")
    mode_return_std: float = float("nan")

    @property
    def name(self) -> str:
        return f"{self.task}-{self.seed}-{self.step:07d}"


@dataclass(frozen=True)
class Policy:
    about: About
    layers: Layers  # float16 numbers, in float32


# Files: a manifest, and one file of arrays for every task


def write(folder: Path, policies: Iterable[Policy], made: dict[str, Any]) -> None:
    """Store policies, with how they were made (command, hardware, versions)."""
    folder.mkdir(parents=True, exist_ok=True)
    policies = list(policies)
    for name in dict.fromkeys(policy.about.task for policy in policies):
        arrays = {
            f"{policy.about.name}/{number}/{part}": array.astype(np.float16)
            for policy in policies
            if policy.about.task == name
            for number, layer in enumerate(policy.layers)
            for part, array in zip("wb", layer)
        }
        with atomic_file(folder / f"{name}.safetensors") as temporary:
            save_arrays(temporary, arrays)
    rows = [asdict(policy.about) for policy in policies]
    with atomic_file(folder / "manifest.json") as temporary:
        text = json.dumps({"made": made, "policies": rows}, indent=1)
        temporary.write_text(text + "\n")


def manifest(folder: Path = STORED) -> list[About]:
    return [About(**row) for row in _read(folder)["policies"]]


def made(folder: Path = STORED) -> dict[str, Any]:
    """How the policies were made: commands, options, hardware, versions."""
    return _read(folder)["made"]


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.exists():
        raise UserError(f"{path}: no such file; expected a folder of stored policies")
    return json.loads(path.read_text())


def load(about: About, folder: Path = STORED) -> Policy:
    arrays = _arrays(folder / f"{about.task}.safetensors")
    layers: Layers = []
    while f"{about.name}/{len(layers)}/w" in arrays:
        w, b = (arrays[f"{about.name}/{len(layers)}/{part}"] for part in "wb")
        layers.append((w.astype(np.float32), b.astype(np.float32)))
    if not layers:
        raise UserError(f"{about.name}: not among the stored policies")
    return Policy(about, layers)


@cache
def _arrays(path: Path) -> dict[str, np.ndarray]:
    return load_file(path)
