"""Normalised scores: 0 is a random policy, 100 an expert, as D4RL defines them."""

from typing import NamedTuple

import numpy as np


class Reference(NamedTuple):
    random: float
    expert: float


# D4RL's, the same for all versions of the environments.
REFERENCES = {
    "HalfCheetah": Reference(-280.178953, 12135.0),
    "Hopper": Reference(-20.272305, 3234.3),
    "Walker2d": Reference(1.629008, 4592.3),
    "Ant": Reference(-325.6, 3879.7),
}


def reference(env_id: str | None) -> Reference | None:
    """Of `Hopper-v5` and its likes; None where nobody has fixed one."""
    return REFERENCES.get((env_id or "").partition("-")[0])


def normalized(returns: np.ndarray, env_id: str) -> np.ndarray | None:
    """100 (R - random) / (expert - random)."""
    found = reference(env_id)
    if found is None:
        return None
    return 100 * (np.asarray(returns) - found.random) / (found.expert - found.random)
