"""From a preset to fleets: runs that one process trains together."""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from manyhands.errors import UserError
from manyhands.sweep.preset import Preset


@dataclass(frozen=True)
class Fleet:
    """One algorithm on one data set, all K and seeds."""

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

    @property
    def name(self) -> str:
        """For people, and for a folder."""
        return f"{safe(self.data)}/{safe(self.label)}"

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
