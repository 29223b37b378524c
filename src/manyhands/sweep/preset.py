"""What a benchmark consists of, read from a TOML file.

    about = "one line for people"
    data = ["fork:leap-2", "zoo:hopper-heterogeneous-5", "my/data.hdf5"]
    seeds = [0, 1, 2]
    episodes = 20          # of every evaluation; 0: none
    evaluations = 10       # along the way
    env = { "my/data.hdf5" = "Hopper-v5" }  # to evaluate in, where the data names none

    [[algo]]
    name = "lbrac_v"       # and any of its options
    k = [1, 5, 10]         # where a behavior set is fitted first
    steps = 200_000
    for."my/data.hdf5" = { beta = 3.0 }  # other options on one of the data sets

An entry may have a `label`, to stand beside another of the same algorithm. `env` may
be one id for all data sets.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from manyhands.algos.registry import algorithm
from manyhands.errors import UserError, check_seed
from manyhands.options import choose

BUILT_IN = files("manyhands.sweep") / "presets"


@dataclass(frozen=True)
class Entry:
    """One algorithm with its options."""

    algo: str
    label: str
    preset: str = "default"
    k: tuple[int | str, ...] = ()  # empty: the algorithm has no behavior set
    options: dict[str, Any] = field(default_factory=dict)
    on: dict[str, dict[str, Any]] = field(default_factory=dict)  # by the data set

    def options_on(self, data: str) -> dict[str, Any]:
        return self.options | self.on.get(data, {})


@dataclass(frozen=True)
class Preset:
    name: str
    about: str
    data: tuple[str, ...]
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...] = (0,)
    episodes: int = 20
    evaluations: int = 0
    transitions: int | None = None  # of data sets that are made here
    env: dict[str, str] | None = None  # by the data set, where it is not the data's own

    def config(self) -> dict[str, Any]:
        return asdict(self)


def names() -> list[str]:
    return sorted(p.name.removesuffix(".toml") for p in BUILT_IN.iterdir())


def load(name: str) -> Preset:
    """A built-in preset by name, or a file."""
    if name in names():
        text = (BUILT_IN / f"{name}.toml").read_text()
    elif name.endswith(".toml") and Path(name).is_file():
        text = Path(name).read_text()
    else:
        raise UserError(
            f"{name}: expected one of {', '.join(names())}, or a file that ends in "
            ".toml"
        )
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name}: expected TOML: {error}") from error
    try:
        return parse(Path(name).stem, content)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def parse(name: str, content: dict[str, Any]) -> Preset:
    content = dict(content)
    algos = _list("[[algo]]", content.pop("algo", []), dict, "tables")
    entries = tuple(_entry(dict(one)) for one in algos)
    known = "about", "data", "seeds", "episodes", "evaluations", "transitions", "env"
    for key in content:
        if key not in known:
            raise UserError(f"{key}: expected one of {', '.join(known)}, algo")
    about = _string("about", content.pop("about", ""))
    data = _list("data", content.pop("data", []), str, "names")
    seeds = _list("seeds", content.pop("seeds", []), int, "whole numbers")
    labels = [entry.label for entry in entries]
    for what, given in (("data", data), ("seeds", seeds), ("[[algo]]", entries)):
        if not given:
            raise UserError(f"{what}: expected at least one, got none")
    for seed in seeds:
        check_seed(seed)
    for what, given in (("data", data), ("seeds", seeds), ("label", labels)):
        _no_two_alike(what, given)
    for what, least in (("episodes", 0), ("evaluations", 0), ("transitions", 1)):
        if what in content and not _whole(content[what], least):
            raise UserError(
                f"{what}: expected a whole number, at least {least}, got "
                f"{content[what]!r}"
            )
    if "env" in content:
        content["env"] = _envs(content["env"], data)
    named = [("for", name_of_data) for entry in entries for name_of_data in entry.on]
    named += [("env", name_of_data) for name_of_data in content.get("env", {})]
    for what, name_of_data in named:
        if name_of_data not in data:
            known = ", ".join(data)
            raise UserError(f"{what}: expected one of {known}; got {name_of_data}")
    return Preset(name, about, data, entries, seeds, **content)


def _whole(value: Any, least: int) -> bool:
    """True and false are whole numbers for Python, but not for people."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _list(what: str, given: Any, kind: type, noun: str) -> tuple[Any, ...]:
    """A string is a sequence too: of letters."""
    if not isinstance(given, list | tuple):
        raise UserError(f"{what}: expected a list of {noun}, got {given!r}")
    for one in given:
        if not isinstance(one, kind) or isinstance(one, bool) or one == "":
            raise UserError(f"{what}: expected a list of {noun}, got {one!r} in it")
    return tuple(given)


def _string(what: str, given: Any) -> str:
    if not isinstance(given, str):
        raise UserError(f"{what}: expected text, got {given!r}")
    return given


def _no_two_alike(what: str, given: Sequence[Any]) -> None:
    if len(set(given)) < len(given):
        shown = ", ".join(map(str, given))
        raise UserError(f"{what}: expected no two alike, got {shown}")


def _envs(given: Any, data: tuple[str, ...]) -> dict[str, str]:
    envs: dict[str, Any] = dict.fromkeys(data, given)
    if isinstance(given, dict):
        envs = given
    for env in envs.values():
        if not isinstance(env, str) or not env:
            raise UserError(
                "env: expected an environment's id, or one for each of some data sets, "
                f"got {env!r}"
            )
        if ":" in env:
            raise UserError(
                f"env: a preset may not name a module to import, got {env!r}; give the "
                "id of an environment that an installed package registers"
            )
    return envs


def _entry(content: dict[str, Any]) -> Entry:
    if "name" not in content:
        raise UserError("[[algo]]: expected a name, got none")
    name = _string("name", content.pop("name"))
    preset = _string("preset", content.pop("preset", "default"))
    label = _string("label", content.pop("label", name))
    learner = algorithm(name)
    k = content.pop("k", [10] if learner.fits_behavior_set else [])
    k = tuple(k) if isinstance(k, list) else (k,)
    if k and not learner.fits_behavior_set:
        raise UserError(f"{name}: expected no k, it fits no behavior set")
    if learner.fits_behavior_set:
        _check_ks(k)
    on = content.pop("for", {})
    if not isinstance(on, dict) or not all(isinstance(c, dict) for c in on.values()):
        raise UserError(f"for: expected options for each of some data sets, got {on!r}")
    for changes in ({}, *on.values()):  # complain before any work is done
        choose(learner.presets, preset, content | changes)
    return Entry(name, label, preset, k, content, on)


def _check_ks(ks: tuple[Any, ...]) -> None:
    if not ks:
        raise UserError("k: expected at least one, got none")
    for k in ks:
        if k != "auto" and not _whole(k, 1):
            raise UserError(
                f'k: expected whole numbers, at least 1, or "auto"; got {k!r}'
            )
    _no_two_alike("k", ks)
