"""Data sets by name: files in every format, and the sets that are made here."""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from manyhands.agents.tasks import data_set_sizes
from manyhands.data import formats
from manyhands.data.formats import ReadOptions
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError, check_seed

Progress = Callable[[int], None]  # told how many transitions are there


def _silent(done: int) -> None:
    """The default: nobody is watching."""


def load(data: str | Path, **options: Any) -> Trajectories:
    """Load a data set.

    Args:
        data: a path (its format is recognised), `format:where` with one of d4rl,
            minari, robomimic, lerobot, npz, or a made one: `fork:fork-3`,
            `zoo:hopper-heterogeneous-5`.
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
        if name not in MAKERS[maker].sizes:
            raise _unknown(name, MAKERS[maker].sizes)
        return make(name)
    for prefix, made in MAKERS.items():
        if str(data) in made.sizes and not Path(data).exists():
            raise UserError(f"{data}: no such file; is {prefix}:{data} meant?")
    return formats.read(data, ReadOptions(**options), also=MAKERS)


def make(
    name: str,
    transitions: int | None = None,
    seed: int = 0,
    progress: Progress = _silent,
    takes: dict[Any, Any] | None = None,
) -> Trajectories:
    """Make a built-in data set; deterministic given the seed.

    Args:
        name: such as `fork-3` or `hopper-heterogeneous-5`.
        transitions: at least so many; trajectories are complete.
        progress: called with the transitions made so far.
        takes: a dictionary for several calls: what data sets of one task have in common
            is then played once.
    """
    maker = _maker_of(name)
    size = maker.sizes[name] if transitions is None else transitions
    if size < 1:
        raise UserError(f"transitions: expected at least 1, got {size}")
    check_seed(seed)
    module = importlib.import_module(maker.module)
    return module.make(name, size, int(seed), progress, takes)


def usual_size(name: str) -> int:
    """How many transitions a built-in data set has unless the user says."""
    return _maker_of(name).sizes[name]


def _maker_of(name: str) -> "Maker":
    for maker in MAKERS.values():
        if name in maker.sizes:
            return maker
    raise _unknown(name, [name for maker in MAKERS.values() for name in maker.sizes])


def _unknown(name: str, names: Iterable[str]) -> UserError:
    return UserError(f"{name}: expected a built-in data set: {', '.join(names)}")


def save(data: Trajectories, where: str | Path) -> None:
    """Write a data set to a path (.hdf5 D4RL's layout, .npz) or `format:where`."""
    formats.write(data, where)


@dataclass(frozen=True)
class Maker:
    """A family of data sets that are made here."""

    sizes: dict[str, int]  # transitions of each, unless the user says
    module: str  # has make(name, transitions, seed, progress, takes); imported late


MAKERS = {
    "fork": Maker(
        sizes={
            f"{course}-{k}": 20_000 for course in ("fork", "leap") for k in range(1, 6)
        },
        module="manyhands.envs.fork_demonstrators",
    ),
    "zoo": Maker(sizes=data_set_sizes(), module="manyhands.agents.data_sets"),
}
