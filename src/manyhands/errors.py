"""The one exception users see: a complete sentence about what to change."""

import importlib
from types import ModuleType


class UserError(ValueError):
    """What the user gave cannot be used; the message says what was expected and found.

    The command line prints it as one line, like what the system refuses (OSError);
    everything else is a defect of ours and keeps its traceback.
    """


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{purpose} needs the package {module.partition('.')[0]!r}: "
            f"pip install 'manyhands[{extra}]' ({error})"
        ) from error
