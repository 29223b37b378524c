"""HDF5 files from others, read without following them anywhere else.

HDF5 can name other files: by external links, by raw data in external storage, and by
virtual data sets. A file that was handed over could thus put the bytes of another file
of this machine into its arrays. All three are refused, and so are soft links that leave
the group that is read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from manyhands.errors import UserError
from manyhands.files import check_regular

low: Any = h5py  # its low-level interface, of which no types are known
MOST_LINKS = 16  # soft links one behind another, before they count as a circle


@contextmanager
def open_file(path: str | Path) -> Iterator["Group"]:
    """The root of a file."""
    check_regular(Path(path))
    try:
        with h5py.File(path, "r") as file:
            yield Group(file["/"].id, "", file["/"].id)
    except OSError as error:
        raise UserError(f"expected an HDF5 file: {error}") from error


class Group:
    """A group of a file, with h5py's names, whose members all lie in the file."""

    def __init__(self, group: Any, name: str, home: Any):
        self.id, self.name = group, name
        self._home = home  # the group that links must not leave

    def as_home(self) -> "Group":
        """The same group, as the one that soft links must not leave."""
        return Group(self.id, self.name, self.id)

    @property
    def attrs(self) -> h5py.AttributeManager:
        return h5py.Group(self.id).attrs

    def __iter__(self) -> Iterator[str]:
        return iter([str(name) for name in h5py.Group(self.id)])

    def __contains__(self, path: str) -> bool:
        return self._exists(path)

    def get(self, path: str, default: Any = None) -> Any:
        """A `Group`, an `Array`, or the default where there is neither."""
        if not self._exists(path):
            return default
        found = low.h5o.open(self.id, path.encode())
        name = f"{self.name}/{path}" if self.name else path
        if isinstance(found, low.h5g.GroupID):
            return Group(found, name, self._home)
        if isinstance(found, low.h5d.DatasetID):
            return Array(found, name)
        return default

    def __getitem__(self, path: str) -> Any:
        found = self.get(path)
        if found is None:
            raise KeyError(path)
        return found

    def _exists(self, path: str) -> bool:
        """Whether a path leads to something here; raises where it leads elsewhere."""
        return _follow(self.id, path, self._home, self.name, MOST_LINKS)


def _follow(group: Any, path: str, home: Any, where: str, left: int) -> bool:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    shown = "/".join([*([where] if where else []), *parts])
    if not left:
        raise UserError(f"{shown}: expected a field, found links that go in a circle")
    for n in range(1, len(parts) + 1):
        way = "/".join(parts[:n])
        if not group.links.exists(way.encode()):
            return False
        kind = group.links.get_info(way.encode()).type
        if kind == low.h5l.TYPE_HARD:
            here = low.h5o.get_info(group, way.encode()).type
            if n < len(parts) and here != low.h5o.TYPE_GROUP:
                return False
            continue
        if kind != low.h5l.TYPE_SOFT:
            raise UserError(
                f"{shown}: expected a field of this file, found a link to another file"
            )
        target = group.links.get_val(way.encode()).decode(errors="replace")
        rest = "/".join(parts[n:])
        if target.startswith("/"):
            inside = low.h5i.get_name(home).decode().rstrip("/") + "/"
            if not target.startswith(inside):
                raise UserError(
                    f"{shown}: expected a field of the group that is read, found a "
                    f"link out of it, to {target}"
                )
            start, target = home, target.removeprefix(inside)
        else:  # HDF5 has no name for the group above: it stays below
            above = "/".join(parts[: n - 1])
            start = low.h5o.open(group, above.encode()) if above else group
        return _follow(start, f"{target}/{rest}", home, where, left - 1)
    return True


class Array:
    """A data set whose numbers all lie in the file."""

    def __init__(self, dataset: Any, name: str):
        _check_storage(dataset, name)
        self.dataset, self.name = h5py.Dataset(dataset), name
        self.shape, self.dtype = self.dataset.shape, self.dataset.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __getitem__(self, key: Any) -> Any:
        return self.dataset[key]

    def texts(self) -> list[str]:
        """Of a list of strings."""
        return [str(text) for text in self.dataset.asstr()[()]]

    def __repr__(self) -> str:
        return f"an array {self.dtype}{self.shape}"


def read_dataset(group: Group, path: str) -> np.ndarray | None:
    """All of a data set, or None where there is no such path.

    By HDF5's low-level calls: they take half the time, which shows in short episodes.
    """
    if path not in group:
        return None
    dataset = low.h5d.open(group.id, path.encode())
    _check_storage(dataset, f"{group.name}/{path}")
    values = np.empty(dataset.shape, dataset.dtype)
    dataset.read(low.h5s.ALL, low.h5s.ALL, values)
    return values


def _check_storage(dataset: Any, name: str) -> None:
    # Before its shape is asked for: for that, HDF5 opens the files of a virtual one.
    how = dataset.get_create_plist()
    if how.get_external_count():
        raise UserError(
            f"{name}: expected numbers that lie in this file, found external storage, "
            "which reads them from other files"
        )
    if how.get_layout() == low.h5d.VIRTUAL:
        raise UserError(
            f"{name}: expected numbers that lie in this file, found a virtual data "
            "set, which reads them from other files"
        )
