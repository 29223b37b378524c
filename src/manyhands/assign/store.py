"""Keep an assignment: nested dataclasses as named arrays and JSON, without pickles."""

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from manyhands.assign import (
    features,
    hidden_contexts,
    inputs,
    rules,
    step_graph,
    whiten,
)
from manyhands.errors import UserError
from manyhands.files import atomic_file

T = TypeVar("T")
CLASSES = {
    kept.__name__: kept
    for kept in (
        features.FeatureMap,
        hidden_contexts.Kinds,
        inputs.Scaling,
        rules.CellRule,
        rules.CenterRule,
        rules.OneRule,
        rules.VoteRule,
        step_graph.Cloud,
        whiten.Projection,
    )
}
VERSION = 1


def flatten(value: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Named arrays, and JSON in which {"array": name} stands for one of them."""
    arrays: dict[str, np.ndarray] = {}

    def describe(part: Any, name: str) -> Any:
        if isinstance(part, np.ndarray):
            arrays[name] = part
            return {"array": name}
        if is_dataclass(part):
            inside = {field.name: getattr(part, field.name) for field in fields(part)}
            return {"class": type(part).__name__, "fields": nested(inside, name)}
        if isinstance(part, dict):
            return {"dict": nested(part, name)}
        if isinstance(part, np.generic):
            return part.item()
        return part

    def nested(parts: dict[str, Any], name: str) -> dict[str, Any]:
        prefix = f"{name}/" if name else ""
        return {key: describe(part, prefix + key) for key, part in parts.items()}

    about = describe(value, "")
    return arrays, {"version": VERSION, "fields": about["fields"]}


def rebuild(cls: type[T], arrays: dict[str, np.ndarray], about: dict[str, Any]) -> T:
    """The same object from its arrays and description."""
    if about.get("version") != VERSION:
        raise UserError(
            f"assignment: expected version {VERSION}, got {about.get('version')}"
        )

    def restore(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        if "array" in part:
            return arrays[part["array"]]
        if "class" in part:
            inside = {key: restore(value) for key, value in part["fields"].items()}
            return CLASSES[part["class"]](**inside)
        return {key: restore(value) for key, value in part["dict"].items()}

    return cls(**{key: restore(value) for key, value in about["fields"].items()})


def write(value: Any, path: Path) -> None:
    arrays, about = flatten(value)
    if "about" in arrays:
        raise AssertionError("an array is named like the description")
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        named: dict[str, Any] = {**arrays, "about": np.array(json.dumps(about))}
        np.savez_compressed(file, **named)


def read(cls: type[T], path: Path) -> T:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about = json.loads(str(arrays.pop("about")))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: expected a saved assignment ({error})") from error
    return rebuild(cls, arrays, about)
