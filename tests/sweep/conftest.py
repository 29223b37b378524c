"""Results to make tables and figures of, and a place for benchmarks to go on."""

from pathlib import Path
from typing import Any

import pytest
from results_rows import row

from manyhands import make, save


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    made = []
    for seed in (0, 1):
        made += [
            row("zoo:hopper-heterogeneous-2", "bc", None, seed, 0.5 + 0.2 * seed),
            row("zoo:hopper-heterogeneous-2", "lbrac_v", "1", seed, 0.9),
            row("zoo:hopper-heterogeneous-2", "lbrac_v", "5", seed, 1.1),
            row("zoo:hopper-medium", "bc", None, seed, 4.0),
            row("zoo:hopper-medium", "lbrac_v", "1", seed, 5.0),
        ]
    return made


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("d.npz", "e.npz"):
        save(make("fork-2", 400), name)
    return Path("out")
