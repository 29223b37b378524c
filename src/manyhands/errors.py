"""The one exception users see: a complete sentence about what to change; and notes."""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import Any


class UserError(ValueError):
    """What the user gave cannot be used; the message says what was expected and found.

    The command line prints it as one line, like what the system refuses (OSError);
    everything else is a defect of ours and keeps its traceback.
    """


class UserNote(UserWarning):
    """What the user should know although the work goes on; one line, like an error."""


def note(message: str) -> None:
    warnings.warn(message, UserNote, stacklevel=3)


@contextmanager
def named_in_errors(where: str | Path) -> Iterator[None]:
    """Put the file in front of what is wrong with its content."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{where}: {error}") from error


def check_seed(seed: Any) -> None:
    if not (isinstance(seed, Integral) and 0 <= int(seed) < 2**31):
        raise UserError(f"seed: expected a number from 0 to 2^31 - 1, got {seed}")


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{purpose} needs the package {module.partition('.')[0]!r}: "
            f"pip install 'manyhands[{extra}]' ({error})"
        ) from error
