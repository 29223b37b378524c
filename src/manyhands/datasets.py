"""Data sets by name: files in every format, and the sets that are made here."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from manyhands.data import formats
from manyhands.data.formats import ReadOptions
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError

Progress = Callable[[int], None]  # told how many transitions are there


def _silent(done: int) -> None:
    """The default: nobody is watching."""


def load(data: str | Path, **options: Any) -> Trajectories:
    """Load a data set.

    Args:
        data: a path (its format is recognised), `format:where` with one of d4rl,
            minari, robomimic, lerobot, npz, or a made one: `fork:fork-3`.
        options: the fields of `ReadOptions`, such as `clip=True`.
    """
    known = [field.name for field in fields(ReadOptions)]
    for option in options:
        if option not in known:
            raise UserError(f"{option}: expected one of the options {', '.join(known)}")
    maker, _, name = str(data).partition(":")
    if maker in MAKERS:
        if options:
            raise UserError(f"{data}: made here, so it takes no options to read it")
        return make(name)
    return formats.read(data, ReadOptions(**options))


def make(
    name: str,
    transitions: int | None = None,
    seed: int = 0,
    progress: Progress = _silent,
) -> Trajectories:
    """Make a built-in data set, such as `fork-3`; deterministic given the seed."""
    maker = maker_of(name)
    size = maker.transitions if transitions is None else transitions
    if size < 1:
        raise UserError(f"transitions: expected at least 1, got {size}")
    return importlib.import_module(maker.module).make(name, size, seed, progress)


def maker_of(name: str) -> "Maker":
    for maker in MAKERS.values():
        if name in maker.names:
            return maker
    names = [name for maker in MAKERS.values() for name in maker.names]
    raise UserError(f"{name}: expected a built-in data set: {', '.join(names)}")


def save(data: Trajectories, where: str | Path) -> None:
    """Write a data set to a path (.hdf5 D4RL's layout, .npz) or `format:where`."""
    formats.write(data, where)


@dataclass(frozen=True)
class Maker:
    """A family of data sets that are made here."""

    names: tuple[str, ...]
    transitions: int  # how many, unless the user says
    module: str  # has make(name, transitions, seed, progress); imported when needed


MAKERS = {
    "fork": Maker(
        names=tuple(f"fork-{k}" for k in range(1, 6)),
        transitions=20_000,
        module="manyhands.envs.fork_demonstrators",
    )
}
