"""`manyhands benchmark`, with real processes that are really killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from manyhands import UserError, make, save
from manyhands.files import lock
from manyhands.sweep import preset as presets
from manyhands.sweep.benchmark import benchmark
from manyhands.sweep.local import Local
from manyhands.sweep.plan import Key

TINY = """
data = ["fork:fork-2", "fork:leap-2"]
transitions = 400
seeds = [0, 1]
episodes = 2

[[algo]]
name = "bc"
steps = 20

[[algo]]
name = "lbrac_v"
k = [1, 2]
behavior_steps = 30
steps = 20
warm_up = 5
critic_width = 16
"""


def command(folder: Path, *words: str) -> list[str]:
    preset = folder / "tiny.toml"
    preset.write_text(TINY)
    program = [sys.executable, "-m", "manyhands", "benchmark", str(preset)]
    return [*program, "--out", str(folder / "out"), *words]


def lines(folder: Path) -> list[str]:
    path = folder / "out" / "results.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def fleets_running(folder: Path) -> list[str]:
    found = subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True)
    return [
        line
        for line in found.stdout.splitlines()
        if "sweep.run_fleet" in line and str(folder) in line
    ]


def wait_until(true, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_killed_and_resumed_every_result_is_there_once(tmp_path):
    """Both data sets of an algorithm in one program."""
    words = ["--jobs", "2", "--together", "2"]
    first = subprocess.Popen(command(tmp_path, *words), stderr=subprocess.PIPE)
    wait_until(lambda: len(lines(tmp_path)) >= 2)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    kept = lines(tmp_path)
    assert len(kept) < 12
    # Nobody is left behind to write where the next one does.
    wait_until(lambda: not fleets_running(tmp_path), 20)
    # As if it had been killed in the middle of a line.
    with (tmp_path / "out" / "results.jsonl").open("a") as file:
        file.write(kept[0][: len(kept[0]) // 2])
    again = subprocess.run(command(tmp_path), capture_output=True, text=True)
    assert again.returncode == 1
    assert "holds results already; --resume goes on" in again.stderr
    done = subprocess.run(
        command(tmp_path, "--resume", *words), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in lines(tmp_path)]
    assert lines(tmp_path)[: len(kept)] == kept
    assert set(Counter(map(Key.of, rows)).values()) == {1}
    assert len(rows) == 2 * (2 + 2 * 2)
    for row in rows:
        assert len(row["returns"]) == 2
        assert row["fingerprint"]
        assert row["timing"]["updates"] == 20
        assert sum(map(sum, row["histogram"]["counts"])) == row["trajectories"]
        # Of the first seed of every K.
        assert ("maps" in row) == (row["label"] == "lbrac_v" and row["seed"] == 0)
        assert "learnt" in row.get("maps", {"learnt": None})
    # All in one program, and back to their lines.
    (place,) = (tmp_path / "out" / "runs").glob("fork-fork-2+1-*/lbrac_v")
    trained = json.loads((place / "summary.json").read_text())["replicas"]
    shown = [(r["data"], str(r["k"]), r["seed"], r["return_mean"]) for r in trained]
    learnt = [row for row in rows if row["label"] == "lbrac_v"]
    assert shown == [
        (row["data"].replace(":", "-"), row["k"], row["seed"], row["return_mean"])
        for row in learnt
    ]
    assert [name for name, *_ in shown] == ["fork-fork-2"] * 4 + ["fork-leap-2"] * 4
    assert [k for _, k, *_ in shown] == ["1", "1", "2", "2"] * 2
    assert len({row["fingerprint"] for row in rows}) == 2
    assert (tmp_path / "out" / "tables" / "main.tex").exists()
    assert "lbrac_v for every K" in (tmp_path / "out/tables/tables.md").read_text()
    assert "one after another: roughly" in done.stdout
    drawn = sorted(path.name for path in (tmp_path / "out" / "figures").iterdir())
    maps = [f"embeddings-fork-{data}-lbrac_v.png" for data in ("fork-2", "leap-2")]
    assert drawn == [*maps, "returns.png"]


def test_two_at_once_are_refused(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    with (tmp_path / ".lock").open("w") as claim:
        assert lock(claim)  # as another command would
        with pytest.raises(UserError, match="another benchmark is at work in it"):
            benchmark(presets.load(str(path)), tmp_path, Local(1))
    assert {file.name for file in tmp_path.iterdir()} == {"tiny.toml", ".lock"}


def test_a_fleet_that_fails_does_not_stop_the_others(tmp_path):
    mine = str(tmp_path / "mine.npz")
    save(make("fork-2", 400), mine)
    place = tmp_path / "out" / "runs" / "mine.npz" / "bc" / "seeds-0"
    place.mkdir(parents=True)
    (place / "config.json").write_text("not JSON")
    content = {
        "data": [mine, "fork:fork-2"],
        "transitions": 400,
        "seeds": [0],
        "episodes": 2,
        "algo": [{"name": "bc", "steps": 5}],
    }
    preset = presets.parse("mine", content)
    said = []
    (failed,) = benchmark(
        preset,
        tmp_path / "out",
        Local(),
        prepare=lambda todo: [replace(fleet, part="seeds-0") for fleet in todo],
        progress=lambda *a: said.append(a),
    )
    assert failed.fleet.name == "mine.npz/bc/seeds-0"
    assert failed.error == (place / "log.txt").read_text().splitlines()[-1]
    attempts = (tmp_path / "out" / "failures.jsonl").read_text().splitlines()
    assert len(attempts) == 2
    (row,) = [json.loads(line) for line in lines(tmp_path)]
    assert row["data"] == "fork:fork-2"
    assert len(row["returns"]) == 2
    assert said[-1][:2] == (1, 2)
    # What parts have finished is found again, whatever became of the results.
    (tmp_path / "out" / "results.jsonl").unlink()
    assert not benchmark(preset, tmp_path / "out", Local(), only=("fork-2",))
    assert lines(tmp_path) == [json.dumps(row)]
    other = content | {"algo": [{"name": "bc", "steps": 6}]}
    with pytest.raises(UserError, match="another benchmark: bc: steps is 5, not 6"):
        benchmark(
            presets.parse("mine", other),
            tmp_path / "out",
            Local(),
            resume=True,
        )


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_its_fleets_save_their_work_and_end(by, tmp_path):
    """Told alone, as by a supervisor: its fleets would go on for an hour."""
    long = [*command(tmp_path), "--only", "fork-2/bc"]
    (tmp_path / "tiny.toml").write_text(TINY.replace("steps = 20", "steps = 9999999"))
    first = subprocess.Popen(
        long, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    place = tmp_path / "out" / "runs" / "fork-fork-2" / "bc"
    wait_until((place / "metrics.jsonl").exists)
    first.send_signal(by)
    _, said = first.communicate(timeout=60)
    wait_until(lambda: not fleets_running(tmp_path), 30)
    # Without it, a minute would be lost.
    assert (place / "checkpoints" / "latest.safetensors").exists()
    assert lines(tmp_path) == []
    if by == signal.SIGKILL:
        return
    assert first.returncode == 130
    assert said.endswith(
        "interrupted; run the same command with --resume to go on, where it had begun "
        "a run\n"
    )


def test_interrupted_while_its_data_is_made(tmp_path):
    words = command(tmp_path)
    tiny = tmp_path / "tiny.toml"
    tiny.write_text(TINY.replace("= 400", "= 5_000_000"))
    first = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: list((tmp_path / "out" / "data").glob("*.error")))
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert first.returncode == 130
    assert not list((tmp_path / "out" / "data").glob("*.npz"))


def test_without_a_result_so_far_it_needs_no_word_to_go_on(tmp_path):
    words = command(tmp_path, "--only", "fork-2/bc")
    first = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: fleets_running(tmp_path))
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert first.returncode == 130
    assert lines(tmp_path) == []
    wait_until(lambda: not fleets_running(tmp_path), 20)
    again = subprocess.run(words, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert len(lines(tmp_path)) == 2


def test_a_plan_does_nothing(tmp_path):
    done = subprocess.run(
        command(tmp_path, "--plan"),
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert "12 runs in 4 fleets" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    (mine,) = [line for line in lines if line[:1] == ["fork-fork-2/lbrac_v"]]
    assert mine[1] == "4"
    assert "all on this device (cpu: cpu), one after another: roughly" in done.stdout
    assert not (tmp_path / "out").exists()
