"""Hyper-parameters: declared once, with default, help and range; checked when given.

    @options
    class Options(Common):
        width: int = option(256, "Hidden units of the policy.", COUNT)
        policy_rate: float = traced(3e-4, "Learning rate of the policy.", POSITIVE)

An `option` decides the compiled program. A `traced` one is an argument of it, so
replicas that train together may differ in it.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, make_dataclass, replace
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro

from manyhands.errors import UserError

Options = TypeVar("Options")
Class = TypeVar("Class", bound=type)


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`, the ends included or not; `words` say why."""

    least: float = -math.inf
    most: float = math.inf
    ends: bool = True
    words: str = ""

    def __contains__(self, value: float) -> bool:
        if self.ends:
            return self.least <= value <= self.most
        return self.least < value < self.most

    def __str__(self) -> str:
        if self.words:
            return self.words
        if self.most == math.inf:
            return f"at least {self.least:g}" if self.ends else f"above {self.least:g}"
        words = "from {:g} to {:g}" if self.ends else "between {:g} and {:g}"
        return words.format(self.least, self.most)


COUNT = Range(1)
POSITIVE = Range(0, ends=False)
NOT_NEGATIVE = Range(0)
SHARE = Range(0, 1)
PART = Range(0, 1, ends=False)


def option(default: Any, help: str, range: Range | None = None) -> Any:
    """A field of a class of `options`, of any type; it decides the program."""
    about = {"help": help, "range": range, "traced": False}
    return field(default=default, metadata=about)


def traced(default: float, help: str, range: Range | None = None) -> Any:
    """A field of a class of `options`, a number that the compiled program is given."""
    about = {"help": help, "range": range, "traced": True}
    return field(default=default, metadata=about)


@dataclass_transform(frozen_default=True)
def options(cls: Class) -> Class:
    """A class of hyper-parameters: frozen, each declared by `option` or `traced`."""
    cls = dataclass(frozen=True)(cls)
    for one in fields(cls):
        assert "traced" in one.metadata, f"{cls}: {one.name}: expected option(...)"
    return cls


@functools.cache
def types_of(cls: type) -> dict[str, Any]:
    """The fields' types, also where annotations are postponed and thus texts."""
    found = get_type_hints(cls)
    for name in traced_in(cls):
        assert found[name] is float, f"{cls}: {name} is traced: expected a float"
    return found


def traced_in(cls: type) -> tuple[str, ...]:
    """The names of the traced fields."""
    return tuple(one.name for one in fields(cls) if one.metadata["traced"])


@functools.cache
def as_pytree(cls: Class) -> Class:
    """Make a class of options a pytree, once: traced fields are its leaves."""
    import jax  # the command line's help does without

    names = {one.name: one.metadata["traced"] for one in fields(cls)}
    leaves = [name for name, is_traced in names.items() if is_traced]
    others = [name for name, is_traced in names.items() if not is_traced]

    def flatten(options):
        return (
            tuple(getattr(options, name) for name in leaves),
            tuple(getattr(options, name) for name in others),
        )

    def unflatten(structure, values):
        # Not by the constructor: leaves are then arrays, or nothing at all.
        options = object.__new__(cls)
        vars(options).update(zip(leaves, values), **dict(zip(others, structure)))
        return options

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def choose(
    presets: Mapping[str, Options], preset: str, changes: Mapping[str, Any]
) -> Options:
    """A preset with changes, every one of them known and in its range."""
    if preset not in presets:
        raise UserError(f"preset: expected one of {', '.join(presets)}, got {preset}")
    chosen = presets[preset]
    known = {option.name: option for option in fields(chosen)}  # pyright: ignore
    for name, value in changes.items():
        if name not in known:
            raise UserError(f"{name}: expected one of the options {', '.join(known)}")
        _check(known[name], types_of(type(chosen))[name], value)
    # Others' whole numbers (10.0, NumPy's) as Python's: they decide shapes and loops.
    plain = {
        name: int(value) if types_of(type(chosen))[name] is int else value
        for name, value in changes.items()
    }
    return replace(chosen, **plain)  # pyright: ignore


def restore(kind: type[Options], values: Any) -> Options:
    """Options that a file holds; an older version may have written fewer of them."""
    known = [option.name for option in fields(kind)]  # pyright: ignore
    if not isinstance(values, Mapping):
        raise UserError(f"options: expected an object, got {values}")
    unknown = [name for name in values if name not in known]
    if unknown:
        raise UserError(
            f"options: expected some of {', '.join(known)}, got {', '.join(unknown)}; "
            "was it written by another version?"
        )
    return kind(**values)


def _check(option: Field, kind: Any, value: Any) -> None:
    limits = option.metadata["range"]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            words = ", ".join(map(str, get_args(kind)))
            raise UserError(f"{option.name}: expected one of {words}, got {value}")
        return
    if kind is bool:
        if not isinstance(value, bool):
            raise UserError(f"{option.name}: expected true or false, got {value}")
        return
    try:
        # A text is no number, though "10" could be read as one.
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    whole = kind is not int or (math.isfinite(number) and number == int(number))
    if not whole or number not in (limits or Range()):  # NaN is in no range
        noun = ""
        if not whole or limits is None or isinstance(value, str | bytes):
            noun = "a whole number" if kind is int else "a number"
        expected = f"{noun} {limits or ''}".strip()
        shown = repr(value) if isinstance(value, str | bytes) else value
        raise UserError(f"{option.name}: expected {expected}, got {shown}")


def varying(options: Sequence[Any]) -> list[dict[str, Any]]:
    """Of each, the values that are not the same in all of them."""
    values = [asdict(one) for one in options]
    names = [n for n in values[0] if any(v[n] != values[0][n] for v in values)]
    return [{name: one[name] for name in names} for one in values]


def overrides(presets: Mapping[str, Any], several: bool = False) -> type:
    """Every option as "not given" (None), with the presets' values: for `tyro`.

    Args:
        several: traced options may be given several times, for a replica each.
    """
    default, *others = presets
    types = types_of(type(presets[default]))

    def words(name: str) -> str:
        usual, values = getattr(presets[default], name), {}
        told = [str(usual)]
        for preset in others:
            values.setdefault(getattr(presets[preset], name), []).append(preset)
        # Where there are many presets, only what is different in them.
        if len(others) > 1:
            values.pop(usual, None)
        for value, who in values.items():
            names = ", ".join(who) if len(who) < 3 else f"{len(who)} presets"
            told.append(f"{names}: {value}")
        return f"({'; '.join(told)})"

    return make_dataclass(
        "Overrides",
        [
            (
                option.name,
                Annotated[
                    (
                        tuple[float, ...]
                        if several and option.metadata["traced"]
                        else types[option.name]
                    )
                    | None,  # pyright: ignore
                    tyro.conf.arg(
                        help=option.metadata["help"],
                        help_behavior_hint=words(option.name),
                    ),
                ],
                None,
            )
            for option in fields(presets[default])
        ],
        frozen=True,
    )
