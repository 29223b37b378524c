"""manyhands zoo, as a user calls it."""

import json
from pathlib import Path

import pytest

from manyhands import load

TINY = "--seeds 1 --steps 60 --epoch 30 --first 30 --keep-every 30 --width 16".split()


def test_train_and_export(cli):
    done = cli("zoo", "train", "hopper", "--out", "run", "--workers", 1, *TINY)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "wrote run\n"
    done = cli("zoo", "export", "run", "--out", "stored", "--workers", 1)
    assert done.returncode == 0, done.stderr
    rows = json.loads(Path("stored/manifest.json").read_text())["policies"]
    assert [(row["task"], row["seed"], row["step"]) for row in rows] == [
        ("hopper", 1, 0),
        ("hopper", 1, 30),
        ("hopper", 1, 60),
    ]
    for row, line in zip(rows, done.stdout.splitlines()):
        assert line.startswith(f"hopper-1-{row['step']:07d}  return ")
    again = cli("zoo", "train", "hopper", "--out", "run", *TINY)
    assert again.returncode == 1
    assert again.stderr == (
        "error: run: holds a finished run; choose another directory\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train hoper --out new", "hoper: expected a task: hopper, halfcheetah"),
        ("train --out new", "tasks, seeds: expected at least one of each, got none"),
        ("train hopper --out new --rate 0", "rate: expected above 0, got 0.0"),
        ("export absent --out new", "absent/config.json: no such file; expected a run"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(cli, tmp_path, words, said):
    done = cli("zoo", *words.split())
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_data_is_made_and_checked_by_name(cli, tmp_path):
    path = tmp_path / "random.hdf5"
    done = cli("data", "make", "hopper-random", "--transitions", "200", "--out", path)
    assert done.returncode == 0
    assert "wrote" in done.stdout
    data = load(path)
    assert data.transitions >= 200
    assert data.source_names == ("random",)
    done = cli("zoo", "check", "hopper-random")
    assert "hopper-random  same data" in done.stdout or "no fault" in done.stdout
    done = cli("zoo", "check", "hopper-nobody")
    assert done.returncode == 1
    assert done.stderr.startswith("error: hopper-nobody: expected one of hopper-het")
