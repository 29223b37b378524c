"""The spaces of Minari's metadata.json, read from JSON and nothing else.

Minari makes the environment of a data set that does not state its spaces: whatever
program the file names. We never do; such a data set is refused.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.errors import UserError

DEEPEST = 32  # spaces inside spaces


@dataclass(frozen=True)
class Box:
    dtype: str
    shape: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray

    @property
    def width(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Discrete:
    n: int
    start: int


@dataclass(frozen=True)
class Dict:
    parts: dict[str, "Space"]


@dataclass(frozen=True)
class Tuple:
    parts: list["Space"]


@dataclass(frozen=True)
class Other:
    """A space of a kind that we do not read; there may be reasons to say so later."""

    kind: str


Space = Box | Discrete | Dict | Tuple | Other


def read_space(metadata: dict[str, Any], field: str) -> Space:
    """The space that metadata.json states under this name."""
    if field not in metadata:
        raise UserError(
            f"metadata.json: expected {field}, found {', '.join(metadata)}; no "
            "environment is made to find it out, as a file could name any program: "
            "state it there, as minari.serialization.serialize_space writes it"
        )
    try:
        return _parse(json.loads(metadata[field]), 0)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        words = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(
            f"metadata.json: {field}: expected a space in JSON: {words}"
        ) from error


def _parse(content: Any, depth: int) -> Space:
    if depth > DEEPEST:
        raise ValueError(f"more than {DEEPEST} spaces inside each other")
    if not isinstance(content, dict) or not isinstance(content["type"], str):
        raise TypeError(f"expected an object with a type, got {content!r:.60}")
    kind = content["type"]
    if kind == "Box":
        return _box(content)
    if kind == "Discrete":
        return Discrete(_whole("n", content["n"], 1), _whole("start", content["start"]))
    if kind in ("Dict", "Tuple"):
        parts = content["subspaces"]
        if kind == "Dict" and isinstance(parts, dict):
            return Dict({key: _parse(part, depth + 1) for key, part in parts.items()})
        if kind == "Tuple" and isinstance(parts, list):
            return Tuple([_parse(part, depth + 1) for part in parts])
        raise TypeError(f"subspaces: expected those of a {kind}, got {parts!r:.60}")
    return Other(kind)


def _box(content: dict[str, Any]) -> Box:
    if not isinstance(content["shape"], list):
        raise TypeError(f"shape: expected a list, got {content['shape']!r:.60}")
    shape = tuple(_whole("shape", size, 0) for size in content["shape"])
    if not isinstance(content["dtype"], str):
        raise TypeError(f"dtype: expected a name, got {content['dtype']!r:.60}")
    bounds = []
    for side in ("low", "high"):
        bound = np.array(content[side], np.float32)
        if bound.shape != shape:
            raise ValueError(f"{side}: expected shape {shape}, got {bound.shape}")
        bounds.append(bound)
    return Box(content["dtype"], shape, *bounds)


def _whole(field: str, found: Any, least: int | None = None) -> int:
    if type(found) is not int or abs(found) > 2**31:
        raise TypeError(f"{field}: expected a whole number, got {found!r:.60}")
    if least is not None and found < least:
        raise ValueError(f"{field}: expected at least {least}, got {found}")
    return found
