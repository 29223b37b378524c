"""Evaluations beside the training: it waits for none, and none is lost."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from manyhands import Trajectories, load, make, save, train
from manyhands.algos.evaluate import Judge
from manyhands.runs import Run

STEPS = 40
HOW = dict(steps=STEPS, width=16, batch_size=32, seed=[3, 4])
HOW |= dict(episodes=2, evaluations=4, workers=1, checkpoint_seconds=0.0)
SEEN = [0, 0, 10, 10, 20, 20, 30, 30]  # after so many updates, two replicas each


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "fork-2.npz"
    save(make("fork-2", 1000), path)
    return path


@pytest.fixture(scope="module")
def data(file) -> Trajectories:
    return load(file)


@pytest.fixture(scope="module")
def straight(data, tmp_path_factory) -> list[dict]:
    """What is seen when evaluations take their usual time."""
    folder = tmp_path_factory.mktemp("straight")
    train(data, "bc", out=folder, **HOW)
    return evaluations(folder)


def evaluations(folder) -> list[dict]:
    rows = [row for row in Run(folder).metrics() if "evaluation/return_mean" in row]
    return sorted(rows, key=lambda row: (row["step"], row["replica"]))


@pytest.fixture
def held(monkeypatch) -> threading.Event:
    """Evaluations do not begin before this is set."""
    go, look = threading.Event(), Judge.look

    def later(judge, models):
        assert go.wait(60)
        return look(judge, models)

    monkeypatch.setattr(Judge, "look", later)
    return go


def test_training_ends_before_the_first_evaluation(data, straight, held, tmp_path):
    def release(step: int, shown: dict[str, float]) -> None:
        if step == STEPS and not held.is_set():
            assert not evaluations(tmp_path)
            held.set()

    train(data, "bc", out=tmp_path, progress=release, **HOW)
    assert [row["step"] for row in straight] == SEEN
    assert evaluations(tmp_path) == straight


def test_an_error_in_an_evaluation_is_not_lost(data, monkeypatch):
    def broken(judge, models):
        raise ZeroDivisionError("in an episode")

    monkeypatch.setattr(Judge, "look", broken)
    with pytest.raises(ZeroDivisionError, match="in an episode"):
        train(data, "bc", **HOW)


def test_ctrl_c_while_evaluations_are_waited_for(data, straight, held, tmp_path):
    def stop(step: int, shown: dict[str, float]) -> None:
        if step == STEPS // 2:
            time.sleep(1)
        if "evaluations left" in shown:
            assert shown["evaluations left"] == 4
            os.kill(os.getpid(), signal.SIGINT)
            held.set()  # the one that has begun is waited for

    with pytest.raises(KeyboardInterrupt):
        train(data, "bc", out=tmp_path, progress=stop, **HOW)
    assert len(evaluations(tmp_path)) < len(straight)
    one, _ = train(data, "bc", out=tmp_path, **HOW)
    assert one.summary["timing"]["seconds"] > 1  # the first part's, too
    assert evaluations(tmp_path) == straight


@pytest.fixture(scope="module")
def killed(file, tmp_path_factory) -> Path:
    """A run that was killed after its last update; nothing was evaluated."""
    folder = tmp_path_factory.mktemp("killed")
    program = (
        "import sys, time, manyhands as mh; from manyhands.algos.evaluate import Judge;"
        "Judge.look = lambda judge, models: time.sleep(600);"
        f"mh.train(mh.load(sys.argv[1]), 'bc', out=sys.argv[2], **{HOW!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", program, file, folder])
    deadline = time.monotonic() + 120
    while not any(row["step"] == STEPS for row in Run(folder).metrics()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    return folder


def test_a_killed_run_evaluates_all_that_waited(data, straight, killed, tmp_path):
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    assert not evaluations(tmp_path)
    train(data, "bc", out=tmp_path, **HOW)
    assert evaluations(tmp_path) == straight


def test_a_killed_run_goes_on_without_evaluations(data, killed, tmp_path):
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    train(data, "bc", out=tmp_path, **HOW | dict(evaluations=0))
    assert not evaluations(tmp_path)
    assert (tmp_path / "summary.json").exists()
