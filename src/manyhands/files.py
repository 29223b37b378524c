"""Files that are either whole or absent, and JSON that all programs can read."""

import errno
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors.numpy import save

from manyhands.errors import UserError

_PARTIAL = re.compile(r"\..+-.+\.partial(\..*)?")  # the names that `atomic_file` makes


def check_regular(path: Path) -> None:
    """Refuse pipes and devices before they are opened: they may never end."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return
    kinds = {
        stat.S_ISDIR: "a directory",
        stat.S_ISFIFO: "a pipe",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
        stat.S_ISSOCK: "a socket",
    }
    found = next((kind for is_it, kind in kinds.items() if is_it(mode)), "another kind")
    raise UserError(f"{path}: expected a file, got {found}")


def file_inside(root: Path, path: Path) -> Path:
    """The path of a file in the folder `root`, to be read or written to, if it is one.

    Folders from others may hold symbolic links, which must not make us read, or write
    to, other files of this machine.
    """
    check_inside(root, path)
    if path.exists():
        check_regular(path)
    return path


def check_inside(root: Path, path: Path) -> None:
    home, found = root.resolve(), path.resolve()
    # Downloads from the Hugging Face hub are links into the folder `blobs` beside.
    hub = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    if not (found.is_relative_to(home) or found.is_relative_to(hub)):
        raise UserError(
            f"{path}: expected a file in {root}, found a link that leads out of it, to "
            f"{found}"
        )


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; rename it to `path` when all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays: numpy and others choose the format by it.
    handle, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.stem}-", suffix=f".partial{path.suffix}"
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp's 0600 is for secrets
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def save_arrays(
    path: Path, arrays: Mapping[str, np.ndarray], about: dict[str, str] | None = None
) -> None:
    """A safetensors file."""
    # The library writes the memory as it lies, in whatever order. (NumPy's
    # `ascontiguousarray` would make vectors of scalars.)
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    # Its own `save_file` writes under another name first, which `sweep` would not know.
    path.write_bytes(save(contiguous, about))


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Like `atomic_file`, for formats that are a folder. An old folder is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        fresh, old = workshop / "new", workshop / "old"
        fresh.mkdir()
        yield fresh
        if path.exists():
            path.rename(old)
        fresh.rename(path)
    finally:
        shutil.rmtree(workshop)


def sweep(folder: Path) -> None:
    """Remove what writers killed in the middle of `atomic_file` left in a folder.

    For a folder that one process at a time writes to.
    """
    if folder.is_dir():
        for path in folder.iterdir():
            if _PARTIAL.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def lock(file: IO[Any]) -> bool:
    """Whether an open file is ours now: until it is closed, or this process and those
    that it was handed to have ended. Where storage knows no locks it always is."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def strict_json(value: Any) -> Any:
    """What JSON can hold: no NaN, no infinity, no NumPy."""
    if isinstance(value, dict):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return strict_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
