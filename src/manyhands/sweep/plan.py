"""From a preset to fleets: runs that one process trains together."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from manyhands.errors import UserError
from manyhands.sweep.preset import Preset


@dataclass(frozen=True)
class Fleet:
    """One algorithm on one data set, all K and seeds, or a part of them."""

    data: str
    label: str
    algo: str
    preset: str
    k: tuple[int | str, ...]
    seeds: tuple[int, ...]
    episodes: int
    evaluations: int
    transitions: int | None
    options: dict[str, Any] = field(default_factory=dict)
    part: str = ""  # which, where memory is too small for all of it at once

    @property
    def name(self) -> str:
        """For people, and for a folder."""
        whole = f"{safe(self.data)}/{safe(self.label)}"
        return f"{whole}/{self.part}" if self.part else whole

    @property
    def keys(self) -> list["Key"]:
        """Of the results it will have."""
        ks = [str(k) for k in self.k] or [None]
        return [Key(self.data, self.label, k, seed) for k in ks for seed in self.seeds]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Fleet":
        content = json.loads(text)
        lists = {name: tuple(content[name]) for name in ("k", "seeds")}
        return Fleet(**content | lists)


class Key(NamedTuple):
    """What a result is known by."""

    data: str
    label: str
    k: str | None
    seed: int

    @staticmethod
    def of(row: dict[str, Any]) -> "Key":
        return Key(row["data"], row["label"], row["k"], row["seed"])


def safe(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", Path(name).name if "/" in name else name)


def fleets(preset: Preset, only: tuple[str, ...] = ()) -> list[Fleet]:
    """All of a preset, or those whose name contains one of these words."""
    everything = [
        Fleet(
            data,
            entry.label,
            entry.algo,
            entry.preset,
            entry.k,
            preset.seeds,
            preset.episodes,
            preset.evaluations,
            preset.transitions,
            entry.options,
        )
        for data in preset.data
        for entry in preset.entries
    ]
    if len({fleet.name for fleet in everything}) < len(everything):
        raise UserError("data: expected names that differ in their last part")
    chosen = [f for f in everything if not only or any(w in f.name for w in only)]
    if not chosen:
        few = ", ".join(fleet.name for fleet in everything[:5])
        raise UserError(f"only: expected part of a name such as {few}; none has it")
    return chosen


def parts(fleet: Fleet, fits: Callable[[Fleet], bool]) -> list[Fleet]:
    """The fleet itself, or else as few parts as fit: with fewer seeds, then with one K
    at a time; none at all, if a single run does not. (Replicas do not feel each
    other.)"""
    if fits(fleet):
        return [fleet]
    for some in ([fleet], [replace(fleet, k=(k,)) for k in fleet.k]):
        for most in range(len(fleet.seeds), 0, -1):
            cut = [_with_seeds(f, n, most) for f in some for n in _starts(f, most)]
            if cut and all(map(fits, cut)):
                return cut
    return []


def _starts(fleet: Fleet, most: int) -> range:
    return range(0, len(fleet.seeds), most)


def _with_seeds(fleet: Fleet, first: int, most: int) -> Fleet:
    seeds = fleet.seeds[first : first + most]
    names = [f"k-{fleet.k[0]}"] if len(fleet.k) == 1 else []
    names.append(f"seeds-{'-'.join(map(str, seeds))}")
    return replace(fleet, seeds=seeds, part="-".join(names))
