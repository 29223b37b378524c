"""A canary that nothing may touch, and programs that are run as users run them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from manyhands import Trajectories
from manyhands.cli import main

PATIENCE = 60  # seconds, before a program counts as one that hangs


@pytest.fixture
def canary(tmp_path) -> Path:
    """A file that hostile data tries to make; it must never be there."""
    return tmp_path / "canary"


@pytest.fixture
def secret(tmp_path) -> Path:
    """A file outside of everything that is handed over, of 64 float32 of 7."""
    path = tmp_path / "elsewhere" / "secret"
    path.parent.mkdir()
    path.write_bytes(np.full(64, 7, np.float32).tobytes())
    return path


@pytest.fixture
def data() -> Trajectories:
    random = np.random.default_rng(0)
    return Trajectories.from_arrays(
        observations=random.normal(size=(40, 3)),
        actions=random.uniform(-1, 1, (40, 1)),
        rewards=random.normal(size=40),
        terminals=np.zeros(40, bool),
        timeouts=np.arange(40) % 10 == 9,
        env_id="Pendulum-v1",
        name="data",
    )


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys) -> Callable[..., str]:
    """`refused(*words)`: the command fails; the one line that it says."""
    monkeypatch.chdir(tmp_path)

    def hangs(*_: object) -> None:
        raise TimeoutError("the command hangs")

    def run(*words: object) -> str:
        before = signal.signal(signal.SIGALRM, hangs)
        signal.alarm(PATIENCE)
        try:
            code = main.run(list(map(str, words)))
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        said = capsys.readouterr().err.splitlines()
        errors = [line for line in said if line.startswith("error: ")]
        assert code == 1, said
        assert len(errors) == 1, said
        assert not any("Traceback" in line for line in said)
        return errors[0]

    return run


@pytest.fixture
def process(tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    """`process(*words)` in a process of its own, begun in `tmp_path`."""

    def run(*words: object, **environ: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "manyhands", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=PATIENCE,
            env={**os.environ, **environ},
        )

    return run


@pytest.fixture
def evil_module(tmp_path, canary) -> str:
    """A module in the working directory that touches the canary when imported, and
    registers an environment."""
    text = f"""
from pathlib import Path
Path({str(canary)!r}).touch()
import gymnasium
if "X-v0" not in gymnasium.registry:
    gymnasium.register("X-v0", "gymnasium.envs.classic_control.pendulum:PendulumEnv",
                       max_episode_steps=20)
"""
    (tmp_path / "evilmod.py").write_text(text)
    return "evilmod:X-v0"
