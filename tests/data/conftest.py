"""Empty places for data sets."""

from pathlib import Path

import pytest


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    """Minari's folder of data sets, empty and beside a test's own files."""
    root = tmp_path / "store"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def root(tmp_path) -> Path:
    """Of a LeRobot data set, still absent."""
    return tmp_path / "robot"
