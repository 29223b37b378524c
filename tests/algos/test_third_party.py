"""A third party's algorithm is one file and one line of registration."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from manyhands import make, save

HERE = Path(__file__).parent
LINES = """[manyhands.algorithms]
with_set = third_party:WITH_SET
with_dynamics = third_party:WITH_DYNAMICS
"""
# Interrupted by itself in the middle of the policy's updates.
INTERRUPTED = """
import os, signal, sys
import manyhands as mh
def stop(done, shown):
    if done == 12 and os.path.exists(f"{sys.argv[2]}/{sys.argv[3]}/summary.json"):
        os.kill(os.getpid(), signal.SIGINT)
mh.train(mh.load("d.npz"), sys.argv[1], out=sys.argv[2], progress=stop, episodes=0)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of another package, as pip would leave it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "third_party.py").write_text((HERE / "third_party.py").read_text())
    about = folder / "third_party-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: third-party\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(LINES)
    return folder


@pytest.fixture
def python(installed, tmp_path):
    save(make("fork-2", 400), tmp_path / "d.npz")

    def run(*words: str) -> subprocess.CompletedProcess:
        path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
        )

    return run


@pytest.mark.parametrize(
    ("algo", "before"), [("with_set", "behavior"), ("with_dynamics", "dynamics")]
)
def test_it_trains_resumes_saves_loads_and_is_evaluated(python, tmp_path, algo, before):
    train = "-m", "manyhands", "train", "d.npz", "--algo", algo, "--out"
    short = "--episodes", "2", "--evaluations", "0"
    whole = python(*train, "whole", *short)
    assert whole.returncode == 0, whole.stderr
    summary = json.loads((tmp_path / "whole/summary.json").read_text())
    assert np.isfinite(summary["policy"]["return_mean"])
    stopped = python("-c", INTERRUPTED, algo, "again", before)
    assert "KeyboardInterrupt" in stopped.stderr
    assert (tmp_path / "again" / before / "summary.json").exists()
    assert not (tmp_path / "again/summary.json").exists()
    done = python(*train, "again", *short)
    assert done.returncode == 0, done.stderr
    one, other = (tmp_path / run / "policy.safetensors" for run in ("whole", "again"))
    assert one.read_bytes() == other.read_bytes()
    found = python("-m", "manyhands", "evaluate", "again", "--episodes", "2")
    assert found.returncode == 0, found.stderr
    assert algo in found.stdout


def test_a_benchmark_estimates_and_trains_it(python, tmp_path):
    algos = "".join(f'[[algo]]\nname = "with_{a}"\n' for a in ("set", "dynamics"))
    text = f'data = ["d.npz"]\nseeds = [0]\nepisodes = 2\n{algos}'
    (tmp_path / "p.toml").write_text(text)
    plan = python("-m", "manyhands", "benchmark", "p.toml", "--out", "table", "--plan")
    assert plan.returncode == 0, plan.stderr
    lines = [line for line in plan.stdout.splitlines() if "with_" in line]
    assert len([line for line in lines if line.endswith("first updates")]) == 2, lines
    done = python("-m", "manyhands", "benchmark", "p.toml", "--out", "table")
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "table/results.jsonl").read_text().splitlines()
    assert {json.loads(row)["algo"] for row in rows} == {"with_set", "with_dynamics"}
