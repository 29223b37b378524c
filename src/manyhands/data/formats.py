"""Which file formats there are, how one is recognised, and how to read and write it.

Every format is a module of this package with `OPTIONS`, `read` and `write`; it is
imported when first used, so that an absent optional dependency costs nobody else.
"""

import importlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol, cast

from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError, named_in_errors
from manyhands.files import check_regular

BY_NAME = ("minari",)  # formats whose place need not be a path
FORMATS = ("d4rl", "minari", "robomimic", "lerobot", "npz")
SUFFIXES = {".npz": "npz", ".hdf5": "d4rl", ".h5": "d4rl"}


@dataclass(frozen=True)
class ReadOptions:
    """How to read a data set where its file leaves a choice."""

    clip: bool = False
    """Move actions outside the bounds onto them instead of refusing the data."""
    action_bounds: tuple[float, float] | None = None
    """Lowest and highest action, where the file does not say (else -1 and 1)."""
    source_from: str | None = None
    """The field that says who made a trajectory, where it is not the usual one."""
    max_steps: int | None = None
    """D4RL, NPZ: the time limit, for data that does not mark its time-outs."""
    keys: tuple[str, ...] = ()
    """robomimic, LeRobot: the observation fields to join, in this order."""
    filter: str | None = None
    """robomimic: read only the demonstrations of this mask."""


COMMON_OPTIONS = frozenset({"clip", "action_bounds"})


class Format(Protocol):
    """What a format's module offers."""

    OPTIONS: frozenset[str]  # the ReadOptions it knows beyond COMMON_OPTIONS

    def read(self, where: str, options: ReadOptions) -> Trajectories: ...

    def write(self, data: Trajectories, where: str) -> None: ...


def named(name: str) -> Format:
    return cast(Format, importlib.import_module(f"manyhands.data.{name}"))


def parse(spec: str | Path, also: Iterable[str] = ()) -> tuple[str | None, str]:
    """Split `format:where`; the format is None where only a path was given.

    Args:
        also: prefixes beside formats, for those who ask what there is.
    """
    prefix, colon, where = str(spec).partition(":")
    if not where and (not prefix or prefix in FORMATS):
        raise UserError(f"expected a path or format:where, got {str(spec)!r}")
    if colon and (prefix in FORMATS):
        return prefix, where
    if colon and not Path(spec).exists() and prefix.isidentifier() and len(prefix) > 1:
        prefixes = ", ".join(f + ":" for f in (*FORMATS, *also))
        raise UserError(
            f"{spec}: expected a path or one of {prefixes} before the place, got "
            f"{prefix + ':'!r}"
        )
    return None, str(spec)


def detect(path: Path) -> str:
    """The format of an existing file or directory, judged by its content."""
    if path.is_dir():
        if (path / "meta" / "info.json").is_file():
            return "lerobot"
        if (path / "data" / "metadata.json").is_file():
            return "minari"
        raise UserError(
            f"{path}: expected a LeRobot directory (meta/info.json) or a Minari one "
            "(data/metadata.json), found neither"
        )
    check_regular(path)
    format_ = SUFFIXES.get(path.suffix)
    if format_ is None:
        raise UserError(
            f"{path}: expected a file that ends in {', '.join(SUFFIXES)}, or the "
            "format in front, as in npz:FILE"
        )
    if format_ == "d4rl":
        from manyhands.data import hdf5

        with named_in_errors(path), hdf5.open_file(path) as file:
            if isinstance(file.get("data"), hdf5.Group):
                return "robomimic"
    return format_


def read(
    spec: str | Path, options: ReadOptions | None = None, also: Iterable[str] = ()
) -> Trajectories:
    """Read a data set from a path or `format:where`; for `also` see `parse`."""
    options = options or ReadOptions()
    name, where = parse(spec, also)
    if name not in BY_NAME and not Path(where).exists():
        raise UserError(f"{where}: no such file or directory")
    name = name or detect(Path(where))
    format_ = named(name)
    for field in fields(options):
        known = field.name in COMMON_OPTIONS | format_.OPTIONS
        if not known and getattr(options, field.name) != field.default:
            takes = ", ".join(sorted(COMMON_OPTIONS | format_.OPTIONS))
            raise UserError(
                f"{spec}: {name} data has no option {field.name}; it takes {takes}"
            )
    with named_in_errors(where):
        return format_.read(where, options)


def destination(spec: str | Path) -> tuple[str, str]:
    """The format and place to write to, without writing."""
    name, where = parse(spec)
    name = name or SUFFIXES.get(Path(where).suffix)
    if name is None:
        raise UserError(
            f"{spec}: expected a name that ends in {', '.join(SUFFIXES)}, or the format"
            f" in front: {', '.join(f + ':' for f in FORMATS)}"
        )
    return name, where


def exists(spec: str | Path) -> bool:
    """Is there something that writing would replace?"""
    name, where = destination(spec)
    looks_closer = getattr(named(name), "exists", None)
    if looks_closer is None:
        return Path(where).exists()
    with named_in_errors(where):
        return looks_closer(where)


def write(data: Trajectories, spec: str | Path) -> None:
    """Write a data set to a path or `format:where`; whole or not at all."""
    name, where = destination(spec)
    with named_in_errors(where):
        named(name).write(data, where)
