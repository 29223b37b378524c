"""Data sets that Minari itself writes, to be read by us."""

from typing import Any

import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from manyhands.data import formats
from manyhands.data.formats import ReadOptions
from manyhands.data.trajectories import Trajectories

# Minari warns about each of these that is absent; nothing keeps it from the warnings
# below, about environments and about the temporary folder that DataCollector forgets.
ABOUT: dict[str, Any] = {
    "code_permalink": "none",
    "author": "nobody",
    "author_email": "none",
    "algorithm_name": "none",
    "description": "a test",
}
MARKS = [
    pytest.mark.usefixtures("store"),
    pytest.mark.filterwarnings("ignore:`eval_env` is set to None:UserWarning"),
    pytest.mark.filterwarnings("ignore:env_spec is None:UserWarning"),
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
]


def read(where, **options) -> Trajectories:
    return formats.read(f"minari:{where}", ReadOptions(**options))


def box(*shape: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def episode(steps=3, *, terminated=(), truncated=(), **parts: Any) -> EpisodeBuffer:
    """Observations count up from 0 in one column; actions are a tenth of them."""
    count = np.arange(steps + 1, dtype=np.float32)
    fields: dict[str, Any] = {
        "observations": count[:, None],
        "actions": count[:-1, None] / 10,
        "rewards": -count[:-1],
        "terminations": np.isin(np.arange(steps), terminated),
        "truncations": np.isin(np.arange(steps), truncated),
    }
    return EpisodeBuffer(**fields | parts)


def create(*episodes, storage="hdf5", dataset_id="test-v0", **given: Any) -> str:
    chosen: dict[str, Any] = {"observation_space": box(1), "action_space": box(1)}
    minari.create_dataset_from_buffers(
        dataset_id, list(episodes), data_format=storage, **ABOUT, **chosen | given
    )
    return dataset_id
