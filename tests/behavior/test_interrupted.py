"""Real processes, really killed: what was begun goes on to the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# A small fit with everything in it: critics, stages, assigning and merging.
PROGRAM = """
import os, signal, sys
import manyhands as mh
data = mh.make("fork-2", 2000)
if len(sys.argv) > 2:
    # Die in the middle of the n-th write: the file is there, under a temporary name.
    writes = iter(range(1, int(sys.argv[2])))
    sync = os.fsync
    os.fsync = lambda file: (
        sync(file) if next(writes, None) else os.kill(os.getpid(), signal.SIGKILL))
print("go", flush=True)
mh.fit(data, k=2, steps=800, seed=[0, 1], out=sys.argv[1], values=True, policy_width=16,
       critic_width=16, batch_size=32, checkpoint_seconds=0.0)
print("done", flush=True)
"""


def start(out: Path, *more: str) -> subprocess.Popen:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(out), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"go\n"
    return program


def lines(out: Path) -> int:
    log = out / "metrics.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def finish(program: subprocess.Popen) -> None:
    out, err = program.communicate(timeout=300)
    assert program.returncode == 0, err.decode()
    assert b"done" in out


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("straight") / "run"
    finish(start(out))
    return out


def assert_same(run: Path, other: Path) -> None:
    files = ["model.safetensors", "assignments.csv", "metrics.jsonl", "embeddings.npz"]
    for name in [*files, "replica-1/model.safetensors"]:
        assert (run / name).read_bytes() == (other / name).read_bytes(), name
    summaries = [json.loads((p / "summary.json").read_text()) for p in (run, other)]
    for summary in summaries:
        summary.pop("timing")
    assert summaries[0] == summaries[1]


@pytest.mark.parametrize(
    "kills", [pytest.param(4), pytest.param(25, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_it_resumes_to_the_same_bits(
    straight, tmp_path, kills
):
    out, moments = tmp_path / "run", random.Random(kills)
    killed_after: list[int] = []
    for _ in range(kills):
        program = start(out)
        # Anywhere: before anything is written, in a chunk, in a checkpoint, at the end.
        before = lines(out)
        wait_for = before + moments.choice([0, 1, 5, 20])
        while lines(out) < wait_for and program.poll() is None:
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.3))
        program.kill()
        program.communicate()
        killed_after.append(lines(out) - before)
        if (out / "summary.json").exists():
            break
    if not (out / "summary.json").exists():
        finish(start(out))
    assert_same(straight, out)
    assert any(killed_after), "every kill came before the first chunk"
    assert not (out / "checkpoints").exists()


def test_killed_in_the_middle_of_writes_it_resumes_and_leaves_nothing_behind(
    straight, tmp_path
):
    out = tmp_path / "run"
    # The configuration, then a checkpoint.
    for write in (1, 4):
        program = start(out, str(write))
        program.communicate(timeout=300)
        assert program.returncode == -signal.SIGKILL
        assert [p for p in out.rglob("*") if ".partial" in p.name]
    finish(start(out))
    assert_same(straight, out)
    names = {str(p.relative_to(out)) for p in out.rglob("*")}
    assert names == {str(p.relative_to(straight)) for p in straight.rglob("*")}


@pytest.mark.parametrize("by", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
def test_a_signal_saves_and_exits_130(by, tmp_path):
    words = (
        "fit fork:fork-2 --out run --k 2 --steps 100000 --policy-width 16 --no-compare"
    )
    program = subprocess.Popen(
        [sys.executable, "-m", "manyhands", *words.split()],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stderr is not None
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.1)
        assert program.poll() is None
    for one in by:  # schedulers may say it more than once
        os.kill(program.pid, one)
    _, err = program.communicate(timeout=120)
    assert program.returncode == 130
    assert "Traceback" not in err
    assert "interrupted; run the same command to go on" in err
    assert (tmp_path / "run" / "checkpoints" / "latest.safetensors").exists()
    assert not (tmp_path / "run" / "summary.json").exists()
