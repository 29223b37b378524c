"""Folders from others: nothing in them leads out of them; pipes are never opened."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyhands import fit, load, make, save, train
from manyhands.cli import main
from manyhands.report.saved_run import open_run
from manyhands.sweep.benchmark import LOCK
from manyhands.sweep.plan import safe

TINY: Any = dict(steps=4, policy_width=8, batch_size=8)
PIPES = "pipe", "/dev/zero", "/dev/stdin"


@pytest.fixture
def robot(tmp_path, data, monkeypatch) -> Path:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    save(data, "lerobot:robot")
    return Path("robot")


@pytest.mark.parametrize(
    "path",
    [
        "../other/data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "data/../../other/data/*/*.parquet",
        "{0}/../../other/data/chunk-000/file-000.parquet",
        "ABSOLUTE/data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "/**",
        "..",
        "",
        7,
        None,
        ["data"],
        {"a": 1},
    ],
)
def test_data_path_stays_in_its_folder(refused, robot, path):
    shutil.copytree(robot, "other")
    shutil.rmtree(robot / "data")
    info = json.loads((robot / "meta/info.json").read_text())
    if isinstance(path, str):
        path = path.replace("ABSOLUTE", str(Path("other").resolve()))
    (robot / "meta/info.json").write_text(json.dumps(info | {"data_path": path}))
    line = refused("data", "info", "robot")
    assert "data_path: expected a path inside this folder" in line


@pytest.mark.parametrize(
    "part",
    ["meta", "meta/info.json", "meta/tasks.parquet", "data", "data/chunk-000",
     "data/chunk-000/file-000.parquet"],
)  # fmt: skip
def test_links_out_of_a_lerobot_folder(refused, robot, part):
    Path("away").mkdir()
    shutil.move(robot / part, "away/it")
    (robot / part).symlink_to(Path("away/it").resolve())
    reading = ["--source-from", "task_index"]
    assert "a link that leads out of it" in refused("data", "info", "robot", *reading)


def test_links_inside_a_lerobot_folder_are_followed(robot, data):
    (robot / "data").rename(robot / "kept")
    (robot / "data").symlink_to("kept")
    assert load(robot).fingerprint == data.fingerprint


def test_a_download_of_the_hub_is_links_into_its_own_blobs(robot, data, refused):
    """What huggingface_hub keeps: snapshots/REVISION/file -> blobs/DIGEST."""
    home = Path("hub/datasets--me--robot/snapshots/abc")
    home.parent.mkdir(parents=True)
    shutil.copytree(robot, home)
    blobs = home.parent.parent / "blobs"
    blobs.mkdir()
    for number, path in enumerate(p for p in home.rglob("*") if p.is_file()):
        path.rename(blobs / str(number))
        path.symlink_to((blobs / str(number)).resolve())
    assert load(home).fingerprint == data.fingerprint
    shutil.move(blobs, "away")
    blobs.symlink_to(Path("away").resolve())
    for path in (p for p in home.rglob("*") if p.is_symlink()):
        to = Path("away").resolve() / path.readlink().name
        path.unlink()
        path.symlink_to(to)
    blobs.unlink()
    assert "a link that leads out of it" in refused("data", "info", f"lerobot:{home}")


@pytest.mark.parametrize("storage", ["hdf5", "arrow", "parquet"])
def test_links_out_of_a_minari_folder(refused, tmp_path, storage):
    from test_programs_named_in_files import minari_folder

    place = minari_folder(tmp_path / "me-v0", storage)
    parts = ["data/metadata.json"]
    if storage == "hdf5":
        parts.append("data/main_data.hdf5")
    else:
        parts += ["data/0", f"data/0/{first_table(place)}"]
    for part in parts:
        away = tmp_path / "away"
        (place / part).rename(away)
        (place / part).symlink_to(away)
        assert "a link that leads out of it" in refused("data", "info", "./me-v0")
        (place / part).unlink()
        away.rename(place / part)
    assert len(load(place)) == 1


def first_table(place: Path) -> str:
    return next(
        path.name for path in (place / "data/0").iterdir() if path.suffix != ".json"
    )


@pytest.mark.parametrize("where", PIPES)
@pytest.mark.parametrize("kind", ["", "npz", "d4rl", "robomimic", "lerobot", "minari"])
def test_pipes_and_devices_are_not_opened(refused, tmp_path, kind, where):
    os.mkfifo(tmp_path / "pipe")
    refused("data", "info", f"{kind}:{where}" if kind else where)


@pytest.mark.parametrize("name", ["meta/info.json", "data/chunk-000/file-000.parquet"])
def test_pipes_in_a_lerobot_folder(refused, robot, name):
    (robot / name).unlink()
    os.mkfifo(robot / name)
    assert "expected a file, got a pipe" in refused("data", "info", "lerobot:robot")


@pytest.mark.parametrize("name", ["metadata.json", "main_data.hdf5"])
def test_pipes_in_a_minari_folder(refused, tmp_path, name):
    from test_programs_named_in_files import minari_folder

    place = minari_folder(tmp_path / "me-v0", "hdf5")
    (place / "data" / name).unlink()
    os.mkfifo(place / "data" / name)
    line = refused("data", "info", "./me-v0")
    assert "got a pipe" in line or "found neither" in line


@pytest.fixture
def run(tmp_path, data, monkeypatch) -> Path:
    """A finished run of `train`, with its own behavior set."""
    monkeypatch.chdir(tmp_path)
    save(data, "data.npz")
    fit(data, "gaussian", **TINY, out="run")
    np.savez("run/embeddings.npz", W=np.eye(4), E=np.eye(2, 4))
    return Path("run")


FILES = [
    "config.json",
    "summary.json",
    "metrics.jsonl",
    "assignments.csv",
    "embeddings.npz",
    "model.safetensors",
    "behavior.json",
]


@pytest.mark.parametrize("name", FILES)
def test_links_and_pipes_in_a_run(refused, run, name):
    away = Path("away").resolve()
    (run / name).rename(away)
    (run / name).symlink_to(away)
    words = "report", "run", "--data", "data.npz", "--out", "page.html"
    assert "a link that leads out of it" in refused(*words)
    (run / name).unlink()
    os.mkfifo(run / name)
    assert "got a pipe" in refused(*words)
    assert not Path("page.html").exists()


def test_a_run_writes_to_no_file_outside_of_it(refused, tmp_path, data, monkeypatch):
    """One that was interrupted, handed over to be continued."""
    monkeypatch.chdir(tmp_path)
    save(data, "data.npz")
    notes = Path("notes.txt")
    notes.write_text("mine\n")
    Path("run").mkdir()
    for target in (notes.resolve(), Path("new.txt").resolve()):
        Path("run/metrics.jsonl").symlink_to(target)
        words = "train", "data.npz", "--out", "run", "--algo", "bc", "--steps", "4"
        line = refused(*words, "--episodes", 0, "--width", 8)
        assert "a link that leads out of it" in line
        Path("run/metrics.jsonl").unlink()
    assert notes.read_text() == "mine\n"
    assert not Path("new.txt").exists()


def test_pictures_are_drawn_inside_the_run(refused, run):
    Path("away").mkdir()
    shutil.rmtree(run / "figures", ignore_errors=True)
    (run / "figures").symlink_to(Path("nowhere").resolve())
    words = "report", "run", "--data", "data.npz"
    assert "a link that leads out of it" in refused(*words)
    assert not Path("nowhere").exists()


def test_behaviors_are_looked_for_only_where_they_belong(tmp_path, data):
    """A policy's run says where its behaviors are: a path, which may be any."""
    fit(data, "gaussian", **TINY, out=tmp_path / "fit")
    fit(data[:2], "gaussian", **TINY, out=tmp_path / "private")
    tiny: Any = dict(steps=4, width=8, batch_size=8, episodes=0)
    train(data, "bc", out=tmp_path / "run", **tiny)
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())

    def behaviors(began: object) -> Any:
        path.write_text(json.dumps(config | {"behavior_run": began}))
        return open_run(tmp_path / "run", data).fit

    assert behaviors(str(tmp_path / "fit")).path == tmp_path / "fit"
    for began in (str(tmp_path / "private"), "private", "fit", 7, ["fit"], None):
        assert behaviors(began) is None, began


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """A benchmark that is finished; its learner has the name of a folder above."""
    here = tmp_path_factory.mktemp("benchmark")
    save(make("fork-2", 200), here / "d.npz")
    (here / "preset.toml").write_text(
        'data = ["d.npz"]\nseeds = [0]\nepisodes = 0\n'
        '[[algo]]\nname = "bc"\nlabel = ".."\nsteps = 4\nwidth = 8\nbatch_size = 8\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert main.run("benchmark preset.toml --out table".split()) == 0
    return here / "table"


def test_links_in_a_benchmark(refused, table, monkeypatch):
    monkeypatch.chdir(table.parent)
    again = "benchmark", "preset.toml", "--out", "table", "--resume"
    page = "report", "table"
    mine = Path("mine").resolve()
    mine.write_text("mine\n")
    for name, words in (
        ("results.jsonl", page),
        ("results.jsonl", again),
        ("tables", page),
        ("figures", page),
        ("preset.json", again),
        (LOCK, again),
    ):
        kept = table / f"{name}-kept"
        there = (table / name).exists()
        if there:
            (table / name).rename(kept)
        (table / name).symlink_to(mine)
        assert "a link that leads out of it" in refused(*words), name
        (table / name).unlink()
        if there:
            kept.rename(table / name)
    assert mine.read_text() == "mine\n"
    (table / "results.jsonl").unlink()
    os.mkfifo(table / "results.jsonl")
    assert "got a pipe" in refused(*page)


def test_names_in_presets_become_no_paths(table):
    for name in ("..", ".", "a/..", "../..", "/", "a/b/../.."):
        assert Path("runs", safe(name)).resolve().parent == Path("runs").resolve()
    assert safe("../x.npz") == "x.npz"
    there = {path.name for path in table.parent.iterdir()}
    assert there <= {"table", "d.npz", "preset.toml", "mine"}
    assert len(list((table / "runs").rglob("rows.json"))) == 1


def test_arrays_of_objects_are_not_unpickled(refused, tmp_path, canary):
    class Touch:
        def __reduce__(self):
            return os.system, (f"touch {canary}",)

    good = {
        "observations": np.zeros((4, 2), np.float32),
        "actions": np.zeros((4, 1), np.float32),
        "rewards": np.zeros(4, np.float32),
        "terminals": np.array([0, 0, 0, 1], bool),
    }
    for name in (*good, "source", "env_id", "timeouts"):
        arrays = good | {name: np.array([Touch()] * 4, object)}
        np.savez(tmp_path / "d.npz", **arrays, allow_pickle=True)
        assert "without objects" in refused("data", "info", "d.npz")
    assert not canary.exists()
