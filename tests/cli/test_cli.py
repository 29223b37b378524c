"""The program as its users run it: a process, its output, its exit code, its files."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import manyhands
from manyhands import load
from manyhands.algos import train as training
from manyhands.cli import demo


def process(*arguments, cwd) -> subprocess.CompletedProcess:
    """A real process, for what only a process shows."""
    command = [sys.executable, "-m", "manyhands", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_help_and_version(tmp_path):
    done = process("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, manyhands.__version__)
    for words in ([], ["--help"], ["data", "make", "--help"]):
        done = process(*words, cwd=tmp_path)
        assert done.returncode == 0
        assert "usage: manyhands" in done.stdout


def test_make_info_mix_convert(cli, tmp_path):
    done = cli(*"data make fork-2 --out a.hdf5 --transitions 2000".split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote a.hdf5: 2,0")
    cli(
        *[
            "data",
            "make",
            "fork-3",
            "--out",
            "b.npz",
            "--transitions",
            "2000",
            "--seed",
            "1",
        ]
    )

    done = cli("data", "info", "a.hdf5")
    assert done.returncode == 0
    for text in ("right-steady", "manyhands/Fork-v0", "nothing to remark"):
        assert text in done.stdout
    done = cli("data", "info", "b.npz", "--json")
    card = json.loads(done.stdout)
    assert [s["name"] for s in card["sources"]][-1] == "left-late"

    done = cli(*"data mix a.hdf5 b.npz --out c.npz".split())
    assert done.returncode == 0, done.stderr
    mixed, a, b = (load(tmp_path / f) for f in ("c.npz", "a.hdf5", "b.npz"))
    assert mixed.transitions == a.transitions + b.transitions
    assert set(mixed.source_names) == set(b.source_names)
    cli(*"data mix a.hdf5 b.npz --out d.npz --by-file".split())
    assert load(tmp_path / "d.npz").source_names == ("a", "b")

    done = cli(*"data convert c.npz robomimic:e.hdf5".split())
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "e.hdf5").transitions == mixed.transitions


def test_make_a_data_set_of_stored_agents(cli, tmp_path):
    done = cli(*"data make hopper-random --transitions 200 --out a.hdf5".split())
    assert done.returncode == 0, done.stderr
    data = load(tmp_path / "a.hdf5")
    assert data.transitions >= 200
    assert data.source_names == ("random",)


def test_errors_are_one_line_and_nothing_is_written(cli, tmp_path):
    cli(*"data make fork-2 --out a.npz --transitions 500".split())
    before = (tmp_path / "a.npz").read_bytes()
    cases = {
        "data info absent.npz": "error: absent.npz: no such file or directory",
        "data info d4rl:no.hdf5": "error: no.hdf5: no such file or directory",
        "data info lerobot:no": "error: no: no such file or directory",
        "data make fork-9 --out b.npz": "error: fork-9: expected a built-in data set",
        "data make fork-2 --out a.npz": "error: a.npz: exists already; pass",
        "data make fork-2 --out b.xyz": "error: b.xyz: expected a name that ends in",
        "data make fork-2 --out b.npz --transitions 0": "error: transitions: expected",
        "data mix a.npz --out b.npz": "error: mix: expected two or more data sets",
        "data convert a.npz b.npz --filter x": "error: a.npz: npz data has no option",
    }
    for words, message in cases.items():
        done = cli(*words.split())
        assert done.returncode == 1, words
        assert done.stderr.startswith(message), done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    assert (tmp_path / "a.npz").read_bytes() == before
    assert cli("data", "--nonsense").returncode == 1


def test_debug_shows_the_traceback(tmp_path):
    done = process("--debug", "data", "info", "absent.npz", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_info_shows_actions_outside_the_bounds_that_a_load_refuses(real_data, cli):
    door = real_data / "door_human_dapg.hdf5"
    done = cli("data", "info", door)
    assert done.returncode == 0, done.stderr
    assert "10,595 of 188,412 action values were outside" in done.stdout
    refused = cli("data", "convert", door, "x.npz")
    assert refused.returncode == 1
    done = cli("data", "convert", door, "x.npz", "--clip")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name",
    ["halfcheetah_brac_example", "pendulum_rllib_sac", "kitchen_complete_d4rl_v0"],
)
def test_info_on_files_that_others_made(real_data, cli, name):
    done = cli("data", "info", real_data / f"{name}.hdf5")
    assert done.returncode == 0, done.stderr
    assert name in done.stdout


def test_demo_makes_data_and_a_picture(cli, tmp_path, monkeypatch):
    """With fewer updates and episodes; `test_the_whole_demo` is without a change."""
    whole = training.train

    def short(*words: Any, **options: Any) -> Any:
        updates = {"steps", "warm_up", "behavior_steps"} & set(options)
        return whole(*words, **options | {n: min(options[n], 40) for n in updates})

    monkeypatch.setattr(training, "train", short)
    monkeypatch.setattr(demo, "STEPS", 100)
    monkeypatch.setattr(demo, "EPISODES", 5)
    check_demo(cli("demo", "--out", "d"), tmp_path)


@pytest.mark.slow
def test_the_whole_demo(tmp_path):
    check_demo(process("demo", "--out", "d", cwd=tmp_path), tmp_path)


def check_demo(done: subprocess.CompletedProcess, tmp_path: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "d" / "fork-3.hdf5").transitions >= 20_000
    assert (tmp_path / "d" / "fork-3.png").read_bytes()[:4] == b"\x89PNG"
    page = tmp_path / "d" / "report.html"
    assert str(page) in done.stdout.splitlines()[-1]
    assert page.read_text().startswith("<!doctype html>")


def test_ctrl_c_exits_130_without_a_traceback_and_leaves_no_file(tmp_path):
    words = "data make fork-5 --out a.npz --transitions 50000000".split()
    program = subprocess.Popen(
        [sys.executable, "-m", "manyhands", *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stderr is not None
    line = program.stderr.readline()  # plain progress, as this is no terminal
    assert line.startswith("making fork-5: ")
    time.sleep(0.2)
    os.kill(program.pid, signal.SIGINT)
    _, rest = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == []


def test_files_cut_short_and_bad_seeds_are_one_line(cli, tmp_path):
    for name in ("half.npz", "half.hdf5"):
        cli("data", "make", "fork-2", "--out", name, "--transitions", "500")
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.npz").touch()
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with h5py.File(tmp_path / "others.hdf5", "w") as file:
        file["images"] = np.zeros(3)
    archive = "expected a NumPy archive without objects, its content is not one"
    seed = "error: seed: expected a number from 0 to 2^31 - 1, got -1"
    cases = {
        "data info half.npz": f"error: half.npz: {archive}",
        "data info empty.npz": f"error: empty.npz: {archive}",
        "data info text.npz": f"error: text.npz: {archive}",
        "data info one.npz": f"error: one.npz: {archive}",
        "data info half.hdf5": "error: half.hdf5: expected an HDF5 file: ",
        "data info others.hdf5": "error: others.hdf5: observations: expected this "
        "field, found ['images']",
        "data make fork-3 --seed -1 --out x.npz": seed,
        "demo --out d --seed -1": seed,
        "data info nix:foo": "error: nix:foo: expected a path or one of d4rl:, minari:,"
        " robomimic:, lerobot:, npz:, fork:, zoo: before the place",
        "data convert half.npz nix:foo": "error: nix:foo: expected a path or one of "
        "d4rl:, minari:, robomimic:, lerobot:, npz: before the place",
        "data info npz:": "error: expected a path or format:where, got 'npz:'",
    }
    there = sorted(tmp_path.iterdir())
    for words, message in cases.items():
        done = cli(*words.split())
        assert (done.returncode, done.stdout) == (1, ""), words
        assert done.stderr.startswith(message), done.stderr
        assert done.stderr.count("\n") == 1
    done = cli("data", "info", "")
    assert (done.returncode, done.stderr) == (
        1,
        "error: manyhands data info: expected something to follow, got ''\n",
    )
    assert sorted(tmp_path.iterdir()) == there


def test_long_names_of_sources_are_shown_whole(cli, tmp_path):
    names = [f"{'the_same_beginning_' * 3}{end}" for end in ("ann", "bob")]
    data = manyhands.make("fork-2", 500)
    manyhands.save(replace(data, source_names=tuple(names)), tmp_path / "a.npz")
    lines = cli("data", "info", "a.npz").stdout.splitlines()
    shown = "".join(line.split("│")[1].strip() for line in lines if "│" in line)
    assert all(name in shown for name in names)


def test_what_the_system_refuses_is_one_line(cli, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    make = "data make fork-2 --transitions 500 --out"
    for place, reason in {
        "/proc/x.npz": "/proc",
        "file/x.npz": "file: File exists",
        "npz:folder": "folder: Is a directory",
    }.items():
        done = cli(*make.split(), place, "--overwrite")
        assert (done.returncode, done.stdout) == (1, ""), place
        assert done.stderr.startswith("error: ")
        assert reason in done.stderr
        assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize("words", [["a.npz", "--json"], ["a.npz"], ["--help"]])
def test_a_reader_that_leaves_is_no_error(cli, tmp_path, words):
    cli(*"data make fork-2 --out a.npz --transitions 500".split())
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "manyhands", "data", "info", *words]
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, cwd=tmp_path, text=True
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_standard_output_without_space_is_one_line(tmp_path):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "manyhands", "data", "info", "fork:fork-2"]
        done = subprocess.run(
            [*command, "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
