"""python tools/zoo, as a developer calls it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from manyhands.cli import main
from zoo.commands import ZOO

ROOT = Path(__file__).parents[3]
TINY = "--seeds 1 --steps 60 --epoch 30 --first 30 --keep-every 30 --width 16".split()


@pytest.fixture
def zoo(tmp_path, monkeypatch, capsys):
    """`zoo(*arguments)` runs a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main.run(list(map(str, arguments)), ZOO)
        printed = capsys.readouterr()
        return subprocess.CompletedProcess([], code, printed.out, printed.err)

    return run


def test_train_and_export(zoo):
    done = zoo("train", "hopper", "--out", "run", "--workers", 1, *TINY)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "wrote run\n"
    done = zoo("export", "run", "--out", "stored", "--workers", 1)
    assert done.returncode == 0, done.stderr
    rows = json.loads(Path("stored/manifest.json").read_text())["policies"]
    assert [(row["task"], row["seed"], row["step"]) for row in rows] == [
        ("hopper", 1, 0),
        ("hopper", 1, 30),
        ("hopper", 1, 60),
    ]
    for row, line in zip(rows, done.stdout.splitlines()):
        assert line.startswith(f"hopper-1-{row['step']:07d}  return ")
    again = zoo("train", "hopper", "--out", "run", *TINY)
    assert again.returncode == 1
    assert again.stderr == (
        "error: run: holds a finished run; choose another directory\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train hoper --out new", "hoper: expected a task: hopper, halfcheetah"),
        ("train --out new", "tasks, seeds: expected at least one of each, got none"),
        ("train hopper --out new --rate 0", "rate: expected above 0, got 0.0"),
        ("export absent --out new", "absent/config.json: no such file; expected a run"),
        ("check hopper-nobody", "hopper-nobody: expected one of hopper-het"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(zoo, tmp_path, words, message):
    done = zoo(*words.split())
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_is_checked(zoo):
    done = zoo("check", "hopper-random")
    assert done.returncode == 0, done.stderr
    known = "hopper-random  same data" in done.stdout
    assert known or "nothing to compare with" in done.stdout


def test_the_folder_is_a_program(tmp_path):
    """From any working directory; modules of the folder do not hide others."""
    (tmp_path / "zoo.py").write_text("raise RuntimeError('the wrong zoo')")
    words = [sys.executable, str(ROOT / "tools" / "zoo")]
    done = subprocess.run(
        [*words, "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "usage: python tools/zoo" in done.stdout
    given = [*words, "train", "hopper", "--out", "run", "--workers", "1", *TINY]
    done = subprocess.run(given, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "wrote run\n"), done.stderr
