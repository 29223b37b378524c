"""A data set made ready for fitting: held-out steps, standardised, on the device."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from manyhands.data.trajectories import Trajectories
from manyhands.fleet import Packed
from manyhands.types import Box

# Likelihoods of whole trajectories are judged by this many of their steps at most.
STEPS_PER_TRAJECTORY = 64
ROWS = 200_000  # and by this many rows in all


class Scaling(NamedTuple):
    """How observations are standardised before a network sees them."""

    center: np.ndarray
    scale: np.ndarray

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        return ((observations - self.center) / self.scale).astype(np.float32)

    @staticmethod
    def of(observations: np.ndarray) -> "Scaling":
        # In float64: float32 sums of a million rows are off in the second digit.
        center = observations.mean(axis=0, dtype=np.float64).astype(np.float32)
        spread = observations.std(axis=0, dtype=np.float64)
        # A column that hardly varies says nothing; dividing by its noise would shout.
        quiet = spread < 1e-5 * np.maximum(1, np.abs(center))
        return Scaling(center, np.where(quiet, 1, spread).astype(np.float32))

    @staticmethod
    def none(size: int) -> "Scaling":
        return Scaling(np.zeros(size, np.float32), np.ones(size, np.float32))


class Table(NamedTuple):
    """Some rows of every trajectory, to judge likelihoods by."""

    observations: np.ndarray
    actions: np.ndarray
    trajectory: np.ndarray  # position in the data set
    counts: np.ndarray  # [M] rows of each trajectory

    @staticmethod
    def of(data: Trajectories, trajectories: int, seed: int = 0) -> "Table":
        most = max(1, min(STEPS_PER_TRAJECTORY, ROWS // len(data)))
        rows = np.flatnonzero(data.shuffled_steps(seed) < most)
        where = data.ids[data.trajectory[rows]]
        return Table(
            data.observations[rows],
            data.actions[rows],
            where,
            np.bincount(where, minlength=trajectories),
        )

    def sums(self, log_probs: np.ndarray) -> np.ndarray:
        """[M, K] per trajectory from [rows, K]."""
        order = [
            np.bincount(self.trajectory, column, minlength=len(self.counts))
            for column in log_probs.T.astype(np.float64)
        ]
        return np.stack(order, axis=1)


@dataclass(frozen=True)
class Problem:
    """`data` is renumbered: `ids` are positions."""

    data: Trajectories
    box: Box
    scaling: Scaling
    packed: Packed  # the steps to learn from
    train: Table  # some of the steps to learn from
    test: Table  # some of the steps held out

    @property
    def transitions(self) -> int:
        return self.packed.rows.shape[0]


def prepare(
    data: Trajectories, holdout: float, standardise: bool, seed: int
) -> Problem:
    data = data.renumbered()
    kept, held = data.split_within(holdout, seed)
    size = data.observation_size
    scaling = Scaling.of(kept.observations) if standardise else Scaling.none(size)
    kept, held = (
        replace(
            part,
            observations=scaling(part.observations),
            next_observations=scaling(part.next_observations),
        )
        for part in (kept, held)
    )
    return Problem(
        data=data,
        box=Box(jnp.asarray(data.action_low), jnp.asarray(data.action_high)),
        scaling=scaling,
        packed=Packed.of(kept),
        train=Table.of(kept, len(data)),
        test=Table.of(held, len(data)),
    )
