"""HDF5 files that name other files: refused, in every format that is HDF5."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from manyhands import load, save

FIELDS = {
    "d4rl": ("rewards", "observations", "timeouts", "source"),
    "robomimic": (
        "data",
        "data/demo_0",
        "data/demo_0/rewards",
        "data/demo_0/obs",
        "data/demo_0/obs/flat",
        "data/demo_0/next_obs/flat",
        "mask",
        "mask/all",
    ),
    "minari": (
        "episode_0",
        "episode_0/rewards",
        "episode_0/observations",
        "episode_0/infos",
        "episode_0/infos/log_prob",
    ),
}
GROUPS = ("data", "data/demo_0", "data/demo_0/obs", "mask", "episode_0")
GROUPS = (*GROUPS, "episode_0/observations", "episode_0/infos")
NUMBERS = ("external storage", "virtual data set", "virtual, of any length")


def cases() -> list[tuple[str, str, str]]:
    found = []
    for kind, fields in FIELDS.items():
        for field in fields:
            found.append((kind, field, "external link"))
            if field not in GROUPS:  # a group has no numbers
                found += [(kind, field, way) for way in NUMBERS]
            # What is read of D4RL's files is all of them: no link leaves it.
            if field.count("/") > 1 or field.startswith("episode_0/"):
                found.append((kind, field, "soft link"))
    return found


@pytest.fixture
def made(tmp_path, data, monkeypatch) -> Callable[[str], tuple[Path, str]]:
    """`made(format)`: an honest HDF5 file, and how a command names it."""
    monkeypatch.chdir(tmp_path)

    def make(kind: str) -> tuple[Path, str]:
        if kind == "minari":
            pytest.importorskip("minari")
            save(data, "minari:./me-v0")
            path = Path("me-v0/data/main_data.hdf5")
            with h5py.File(path, "a") as file:
                rows = len(data[0].observations) + 1
                file["episode_0/infos/log_prob"] = np.zeros(rows, np.float32)
            return path, "./me-v0"
        save(data, f"{kind}:file.hdf5")
        with h5py.File("file.hdf5", "a") as file:
            if kind == "d4rl":
                file["source"] = np.zeros(len(data.rewards), np.int64)
            else:
                file["mask/all"] = np.array(list(file["data"]), "S")
        return Path("file.hdf5"), "file.hdf5"

    return make


def options(field: str) -> list[str]:
    return ["--filter", "all"] if field.startswith("mask") else []


def replace_by(path: Path, field: str, way: str, secret: Path) -> None:
    """Put something that leads elsewhere in the place of a field or group."""
    with h5py.File(path, "a") as file:
        old: Any = file[field]
        array = isinstance(old, h5py.Dataset)
        shape = old.shape if array and old.dtype.kind == "f" else (16,)
        del file[field]
        if way == "external storage":
            size = int(np.prod(shape)) * 4
            stored = [(str(secret), 0, size)]
            file.create_dataset(field, shape, "f4", external=stored)
        elif way == "external link":
            file[field] = h5py.ExternalLink(str(secret), "/")
        elif way in ("virtual data set", "virtual, of any length"):
            unlimited = way != "virtual data set"
            layout = h5py.VirtualLayout(
                shape, "f4", maxshape=(None, *shape[1:]) if unlimited else None
            )
            source = h5py.VirtualSource(
                str(secret), "x", shape, maxshape=(None, *shape[1:])
            )
            if unlimited:
                whole = (slice(0, h5py.h5s.UNLIMITED), *map(slice, shape[1:]))
                layout[whole] = source[whole]
            else:
                layout[...] = source
            file.create_virtual_dataset(field, layout)
        else:
            file.create_group("hidden")
            file["hidden/x"] = np.full(shape, 7, np.float32)
            file[field] = h5py.SoftLink("/hidden/x" if array else "/hidden")


@pytest.mark.parametrize(("kind", "field", "way"), cases())
def test_fields_elsewhere_are_refused(refused, made, secret, kind, field, way):
    path, where = made(kind)
    replace_by(path, field, way, secret)
    for words in (("data", "info", where), ("data", "convert", where, "out.npz")):
        line = refused(*words, *options(field))
        assert field.rpartition("/")[2] in line
        assert any(
            word in line for word in ("another file", "other files", "link out of it")
        )
    assert not Path("out.npz").exists()


def test_a_virtual_data_set_opens_no_pipe(made, process, tmp_path):
    """HDF5 would wait for somebody to write to it."""
    path, where = made("d4rl")
    os.mkfifo(tmp_path / "pipe")
    replace_by(path, "rewards", "virtual, of any length", tmp_path / "pipe")
    done = process("data", "info", where)
    assert done.returncode == 1
    assert "rewards: expected numbers that lie in this file" in done.stderr


def test_soft_links_inside_the_group_are_followed(made):
    path, where = made("robomimic")
    before = load(where)
    with h5py.File(path, "a") as file:
        demo: Any = file["data/demo_0"]
        demo.move("rewards", "kept")
        demo["rewards"] = h5py.SoftLink("kept")
        demo.move("obs", "seen")
        demo["obs"] = h5py.SoftLink("/data/demo_0/seen")
    np.testing.assert_array_equal(load(where).rewards, before.rewards)
    np.testing.assert_array_equal(load(where).observations, before.observations)


def test_links_in_a_circle_end(refused, made):
    path, where = made("robomimic")
    with h5py.File(path, "a") as file:
        demo: Any = file["data/demo_0"]
        del demo["rewards"]
        demo["rewards"] = h5py.SoftLink("again")
        demo["again"] = h5py.SoftLink("rewards")
    assert "circle" in refused("data", "info", where)


def test_a_link_out_of_a_link_is_refused(refused, made):
    path, where = made("robomimic")
    with h5py.File(path, "a") as file:
        demo: Any = file["data/demo_0"]
        del demo["rewards"]
        demo["rewards"] = h5py.SoftLink("next")
        demo["next"] = h5py.SoftLink("/mask/all")
    assert "link out of it, to /mask/all" in refused("data", "info", where)
