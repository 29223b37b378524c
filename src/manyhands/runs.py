"""The run directory: the only file that knows its layout.

config.json        everything resolved, versions, data fingerprint, device
metrics.jsonl      one JSON object per log interval and replica
summary.json       what came out
assignments.csv    trajectory,code,probability,return,length,source
embeddings.npz     W, E (and e_pi after policy learning)
model.safetensors  the fitted behaviors
policy.safetensors the learnt policy
checkpoints/       where to go on after an interruption
figures/*.png
behavior/          the run of what a learner fits first
replica-N/         the same for each of several replicas (seeds, K)
"""

import contextlib
import csv
import importlib.metadata
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from manyhands.errors import UserError
from manyhands.files import atomic_file, file_inside, save_arrays, strict_json, sweep
from manyhands.types import Pytree
from manyhands.version import __version__

# The commands that write a config.json, by the entry that only they write.
COMMANDS = {
    "method": "manyhands fit",
    "algo": "manyhands train",
    "agents": "python tools/zoo train",
}
PACKAGES = ("jax", "jaxlib", "numpy", "equinox", "scikit-learn", "mujoco", "gymnasium")


def environment() -> dict[str, Any]:
    """What a result may depend on besides its configuration."""
    device = jax.devices()[0]
    flags = os.environ.get("XLA_FLAGS")  # some change rounding
    return {
        "manyhands": __version__,
        "python": platform.python_version(),
        "packages": versions(),
        "device": f"{device.platform}: {device.device_kind}",
        "cores": os.cpu_count(),
        **({} if flags is None else {"XLA_FLAGS": flags}),
    }


def versions() -> dict[str, str]:
    """Of the packages that are there."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


class Run:
    def __init__(self, path: str | Path):
        self.path = Path(path)

    def check(self) -> None:
        """Before anything is computed: can this be a run directory?"""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(
                f"{self.path}: expected a directory to write to, got a file"
            )

    def begin(self, config: dict[str, Any], same: Iterable[str]) -> None:
        """Write what is to be done. A run that was begun is continued only as it was.

        Args:
            same: the entries of `config` that decide what comes out.
        """
        config = json.loads(json.dumps(config, default=_plain))
        if (self.path / "config.json").exists():
            begun = self.read_json("config.json")
            self._check_same_command(begun, config)
            for key in same:
                for where, was, now in _differences(key, begun.get(key), config[key]):
                    raise UserError(
                        f"{self.path}: holds another run: {where} is {was}, not {now}; "
                        "choose another directory"
                    )
            self._sweep()
        else:  # folders in it are not ours: others may be writing to them
            sweep(self.path)
        self.write_json("config.json", config)

    def _check_same_command(self, begun: Any, config: dict[str, Any]) -> None:
        there, wanted = command_of(begun), command_of(config)
        if wanted is None or there == wanted:  # None: a stage of a run, in its folder
            return
        what = f"a run of `{there}`" if there else "a config.json that is no run's"
        raise UserError(
            f"{self.path}: expected a run of `{wanted}` to go on with, got {what}; "
            "choose another directory"
        )

    def note(self, **entries: Any) -> None:
        """Add to config.json what decides nothing, but helps to find things again."""
        self.write_json("config.json", self.read_json("config.json") | entries)

    def _sweep(self) -> None:
        """Remove what a writer that was killed left half-written."""
        for folder in [self.path, *(p for p in self.path.rglob("*") if _own_folder(p))]:
            sweep(folder)

    # JSON

    def write_json(self, name: str, content: Any) -> None:
        with atomic_file(self.path / name) as temporary:
            temporary.write_text(json.dumps(content, indent=2, default=_plain) + "\n")

    def write_summary(self, summary: dict[str, Any]) -> None:
        """What has diverged is null there: other programs know no NaN."""
        self.write_json("summary.json", strict_json(summary))

    def _file(self, name: str) -> Path:
        """One of the run's files, which may come from others."""
        return file_inside(self.path, self.path / name)

    def read_json(self, name: str) -> Any:
        path = self._file(name)
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; expected a run directory") from None
        except ValueError as error:
            raise UserError(f"{path}: expected JSON: {error}") from None

    def read_object(self, name: str, entries: Iterable[str]) -> dict[str, Any]:
        """A JSON object that has all of these."""
        found = self.read_json(name)
        there = sorted(found) if isinstance(found, dict) else type(found).__name__
        for entry in entries:
            if not isinstance(found, dict) or entry not in found:
                raise UserError(
                    f"{self.path / name}: expected an object with {entry}, got "
                    f"{there or 'an empty one'}"
                )
        return found

    # Metrics

    def append_metrics(self, rows: Iterable[dict[str, Any]]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with self._file("metrics.jsonl").open("a") as file:
            file.writelines(_line(row) for row in rows)

    def metrics(self) -> list[dict[str, Any]]:
        path = self._file("metrics.jsonl")
        if not path.exists():
            return []
        rows = []
        for line in path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:  # the line that a kill cut short
                continue
        return rows

    def rewind_metrics(self, step: int) -> None:
        """Forget what was logged after a checkpoint: it will be logged again."""
        rows = [row for row in self.metrics() if step and row["step"] <= step]
        self.write_metrics(rows)

    def write_metrics(self, rows: Iterable[dict[str, Any]]) -> None:
        """In place of what was logged before."""
        with atomic_file(self.path / "metrics.jsonl") as temporary:
            temporary.write_text("".join(map(_line, rows)))

    # Arrays

    def write_arrays(
        self, name: str, arrays: dict[str, np.ndarray], about: Any = None
    ) -> None:
        with atomic_file(self.path / name) as temporary:
            save_arrays(temporary, arrays, {"about": json.dumps(about)})

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        try:
            return load_file(self._file(name))
        except FileNotFoundError:
            raise UserError(
                f"{self.path / name}: no such file; expected a run directory"
            ) from None
        except SafetensorError as error:
            raise UserError(f"{self.path / name}: {error}") from None

    def write_assignments(self, columns: dict[str, Iterable[Any]]) -> None:
        with (
            atomic_file(self.path / "assignments.csv") as temporary,
            temporary.open("w", newline="") as file,
        ):
            table = csv.writer(file)
            table.writerow(columns)
            table.writerows(zip(*columns.values()))

    def assignments(self) -> list[dict[str, str]]:
        with self._file("assignments.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def write_embeddings(self, **arrays: np.ndarray) -> None:
        with atomic_file(self.path / "embeddings.npz") as temporary:
            np.savez(temporary, allow_pickle=False, **arrays)

    def embeddings(self) -> dict[str, np.ndarray]:
        """Empty where there are none."""
        path = self._file("embeddings.npz")
        if not path.exists():
            return {}
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)

    def replicas(self, many: int) -> list[Path]:
        """Where each of so many is: a single one at the top."""
        if many == 1:
            return [self.path]
        return [self.path / f"replica-{r}" for r in range(many)]

    # Checkpoints: one file, replaced as training goes on

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoints" / "latest.safetensors"

    def write_checkpoint(self, tree: Pytree, about: dict[str, Any]) -> None:
        arrays = {**flatten(tree), "about": _text(json.dumps(about, default=_plain))}
        self.write_arrays("checkpoints/latest.safetensors", arrays)

    def read_checkpoint(
        self, like: Callable[[dict[str, Any]], Pytree]
    ) -> tuple[Pytree, dict[str, Any]] | None:
        """The tree, like the one that `like` makes of what is said about it."""
        if not self.checkpoint.exists():
            return None
        arrays = self.read_arrays("checkpoints/latest.safetensors")
        about = json.loads(arrays.pop("about").tobytes().decode())
        return unflatten(like(about), arrays), about

    def remove_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint.parent, ignore_errors=True)


def _own_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def command_of(config: Any) -> str | None:
    """Which command wrote a config.json; None: none of ours."""
    entries = config if isinstance(config, dict) else {}
    return next((name for key, name in COMMANDS.items() if key in entries), None)


def _differences(where: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """What differs between two values of JSON: its place, and both."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was | now:
            yield from _differences(f"{where}.{key}", was.get(key), now.get(key))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for n, pair in enumerate(zip(was, now)):
            yield from _differences(f"{where}[{n}]" if len(was) > 1 else where, *pair)
    elif was != now:
        yield where, was, now


def mean_and_std(rows: list[dict[str, Any]]) -> tuple[dict, dict]:
    """Over replicas, of every number that is not a count."""
    numbers = {
        key: [row[key] for row in rows]
        for key, value in rows[0].items()
        if isinstance(value, float)
    }
    return (
        {key: float(np.mean(values)) for key, values in numbers.items()},
        {key: float(np.std(values)) for key, values in numbers.items()},
    )


def flatten(tree: Pytree) -> dict[str, np.ndarray]:
    """Arrays by the path of their leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(
    like: Pytree, arrays: dict[str, np.ndarray], any_shape: bool = False
) -> Pytree:
    """A tree like this one, with these arrays as leaves."""

    def leaf(path, expected):
        name = jax.tree_util.keystr(path)
        if name not in arrays:
            raise UserError(f"{name}: expected this array, found {sorted(arrays)[:5]}")
        found = arrays[name]
        if any_shape:
            return jax.numpy.asarray(found)
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise UserError(
                f"{name}: expected {expected.dtype}{expected.shape}, got "
                f"{found.dtype}{found.shape}"
            )
        return jax.numpy.asarray(found)

    return jax.tree_util.tree_map_with_path(leaf, like)


def _text(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def _line(row: dict[str, Any]) -> str:
    return json.dumps(strict_json(row), default=_plain) + "\n"


def _plain(value: Any) -> Any:
    """Numpy's numbers and arrays as JSON's."""
    if isinstance(value, np.ndarray | jax.Array):
        return np.asarray(value).tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value)} is not JSON")
