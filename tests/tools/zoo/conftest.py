"""A small run of real agents, trained once."""

from pathlib import Path
from typing import Any

import pytest

from zoo.train import train

AGENTS: dict[str, Any] = dict(tasks=["hopper", "halfcheetah"], seeds=[1, 2])


@pytest.fixture(scope="session")
def sizes() -> dict[str, Any]:
    return dict(steps=240, epoch=60, first=60, keep_every=120, width=16, batch_size=32)


@pytest.fixture(scope="session")
def request_of_all(sizes) -> dict[str, Any]:
    """The arguments that `trained` was made with."""
    return AGENTS | sizes


@pytest.fixture(scope="session")
def trained(tmp_path_factory, request_of_all) -> Path:
    out = tmp_path_factory.mktemp("zoo") / "run"
    train(out=out, workers=2, **request_of_all)
    return out
