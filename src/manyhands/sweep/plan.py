"""From a preset to fleets: runs that one process trains together."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyhands.errors import UserError
from manyhands.sweep.preset import Preset


@dataclass(frozen=True)
class Fleet:
    """One algorithm on some data sets of the same shape, all K and seeds, or a part of
    them."""

    data: tuple[str, ...]
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
    env: str | None = None  # to evaluate in; None: the data's own

    @property
    def name(self) -> str:
        """For people, and for a folder."""
        whole = f"{_together(self.data)}/{safe(self.label)}"
        return f"{whole}/{self.part}" if self.part else whole

    @property
    def keys(self) -> list["Key"]:
        """Of the results it will have, in the order of its replicas."""
        ks = [str(k) for k in self.k] or [None]
        return [
            Key(data, self.label, k, seed)
            for data in self.data
            for k in ks
            for seed in self.seeds
        ]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Fleet":
        content = json.loads(text)
        lists = {name: tuple(content[name]) for name in ("data", "k", "seeds")}
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
    """As the name of one file or folder, which "." and ".." are not."""
    plain = re.sub(r"[^\w.+-]+", "-", Path(name).name if "/" in name else name)
    return plain if plain.strip(".") else "-"


def _together(data: tuple[str, ...]) -> str:
    """All the names would be too long for a folder."""
    if len(data) == 1:
        return safe(data[0])
    digest = hashlib.sha256("\n".join(data).encode()).hexdigest()[:6]
    return f"{safe(data[0])}+{len(data) - 1}-{digest}"


def fleets(preset: Preset, only: tuple[str, ...] = ()) -> list[Fleet]:
    """All of a preset, or those whose name contains or matches one of these words."""
    everything = [
        Fleet(
            (data,),
            entry.label,
            entry.algo,
            entry.preset,
            entry.k,
            preset.seeds,
            preset.episodes,
            preset.evaluations if preset.episodes else 0,
            preset.transitions,
            entry.options_on(data),
            env=(preset.env or {}).get(data),
        )
        for data in preset.data
        for entry in preset.entries
    ]
    if len({fleet.name for fleet in everything}) < len(everything):
        raise UserError("data: expected names that differ in their last part")
    patterns = [
        word if set(word) & set("*?[") else f"*{word}*" for word in only or ("*",)
    ]
    chosen = [f for f in everything if any(fnmatchcase(f.name, p) for p in patterns)]
    if not chosen:
        few = ", ".join(fleet.name for fleet in everything[:5])
        raise UserError(f"only: expected part of a name such as {few}; none has it")
    return chosen


def joined(
    apart: list[Fleet],
    kind: Callable[[Fleet], Hashable | None],
    most: Callable[[Fleet], int],
) -> list[Fleet]:
    """Those of the same entry, options and kind as one, as even as may be.

    Args:
        kind: what has to be the same; None: it stays alone.
        most: data sets of one fleet.
    """
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for number, fleet in enumerate(apart):
        same, options = kind(fleet), json.dumps(fleet.options, sort_keys=True)
        entry = fleet.label, options, fleet.env, fleet.k, fleet.seeds
        alike[number if same is None else (*entry, same)].append(number)
    found = {}  # by the place of the first of them
    for group in alike.values():
        many = -(-len(group) // max(1, most(apart[group[0]])))
        for some in np.array_split(group, many):
            names = [name for number in some for name in apart[number].data]
            found[some[0]] = replace(apart[some[0]], data=tuple(names))
    return [found[number] for number in sorted(found)]


def apart(fleet: Fleet) -> list[Fleet]:
    """For every data set one."""
    return [replace(fleet, data=(data,)) for data in fleet.data]


def parts(fleet: Fleet, fits: Callable[[Fleet], bool]) -> list[Fleet]:
    """The fleet itself, or else parts that fit: with fewer data sets, then with fewer
    seeds, then with one K at a time; none at all, if a single run does not. (Replicas
    do not feel each other.)"""
    if fits(fleet):
        return [fleet]
    if len(fleet.data) > 1:
        half = len(fleet.data) // 2
        halves = [fleet.data[:half], fleet.data[half:]]
        found = [parts(replace(fleet, data=data), fits) for data in halves]
        return [part for some in found for part in some] if all(found) else []
    for some in ([fleet], [replace(fleet, k=(k,)) for k in fleet.k]):
        for most in range(len(fleet.seeds), 0, -1):
            cut = [_with_seeds(f, n, most) for f in some for n in _starts(f, most)]
            if cut and all(map(fits, cut)):
                return cut
    return []


def _starts(fleet: Fleet, most: int) -> range:
    return range(0, len(fleet.seeds), most)


def _with_seeds(fleet: Fleet, first: int, most: int) -> Fleet:
    return _named(replace(fleet, seeds=fleet.seeds[first : first + most]))


def _named(part: Fleet) -> Fleet:
    name = spelled_out(replace(part, k=part.k if len(part.k) == 1 else ()))
    return replace(part, part=name)


def spelled_out(part: Fleet) -> str:
    """All of its K and seeds."""
    words = [*(["k", *part.k] if part.k else []), "seeds", *part.seeds]
    return "-".join(map(str, words))


def missing(fleet: Fleet, there: set[Key]) -> list[Fleet]:
    """Parts of a fleet on one data set without what is there: itself where nothing is,
    else for all K that lack the same seeds."""
    if there.isdisjoint(fleet.keys):
        return [fleet]
    lacking: dict[tuple[int, ...], list[int | str]] = defaultdict(list)
    for k in fleet.k or (None,):
        keys = replace(fleet, k=() if k is None else (k,)).keys
        seeds = tuple(key.seed for key in keys if key not in there)
        lacking[seeds] += [] if k is None else [k]
    return [
        _named(replace(fleet, k=tuple(ks), seeds=seeds))
        for seeds, ks in lacking.items()
        if seeds
    ]
