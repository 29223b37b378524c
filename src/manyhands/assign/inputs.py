"""What assigners see of the data: standardised steps, trajectories, contexts, groups.

Columns that never change are dropped. Discrete actions become one-hot columns.
Context columns leave the observations and become one label per trajectory.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from manyhands.errors import UserError

FURTHEST = 8.0  # standard deviations; anything further is moved here
MOST_CHOICES = 1_000  # of a discrete action


@dataclass(frozen=True)
class Scaling:
    """Columns kept, their mean and deviation, and the values that labels stand for."""

    observation_columns: np.ndarray  # [S] into the observations as given
    observation_mean: np.ndarray  # [S]
    observation_deviation: np.ndarray  # [S]
    action_columns: np.ndarray  # [A] into the actions, after the one-hot encoding
    action_mean: np.ndarray  # [A]
    action_deviation: np.ndarray  # [A]
    choices: np.ndarray  # choices of each discrete action column; empty: continuous
    context_columns: np.ndarray  # columns of the observations; empty: none
    context_values: np.ndarray  # [C] or [C, columns]: what context labels stand for


@dataclass(frozen=True)
class Inputs:
    """M trajectories of N steps in all, scaled; see `prepare`."""

    observations: np.ndarray  # [N, S] float32
    actions: np.ndarray  # [N, A] float32
    offsets: np.ndarray  # [M + 1]: trajectory m is rows offsets[m]:offsets[m+1]
    context: np.ndarray | None  # [M] label, -1 where the label was never seen before
    group: np.ndarray | None  # [M] labels 0, 1, ...
    scaling: Scaling

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def discrete(self) -> bool:
        return len(self.scaling.choices) > 0

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @cached_property
    def trajectory(self) -> np.ndarray:
        """[N]: the trajectory of each step."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def step(self) -> np.ndarray:
        """[N]: 0, 1, ... within each trajectory."""
        return np.arange(self.offsets[-1]) - np.repeat(self.offsets[:-1], self.lengths)

    def lag(self, values: np.ndarray, by: int) -> np.ndarray:
        """[N, ...]: the values so many steps earlier, 0 before a trajectory's start."""
        shifted = np.zeros_like(values)
        shifted[by:] = values[: len(values) - by]
        shifted[self.step < by] = 0
        return shifted

    @cached_property
    def history(self) -> np.ndarray:
        """[N, S + 2 A]: the observation and the last two actions."""
        past = [self.lag(self.actions, by) for by in (1, 2)]
        return np.concatenate([self.observations, *past], axis=1)

    def take(self, which: ArrayLike) -> "Inputs":
        """Some of the trajectories, by number."""
        which = np.asarray(which)
        lengths = self.lengths[which]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(
            self.offsets[which] - offsets[:-1], lengths
        )
        return replace(
            self,
            observations=self.observations[rows],
            actions=self.actions[rows],
            offsets=offsets,
            context=None if self.context is None else self.context[which],
            group=_group_numbers(
                None if self.group is None else self.group[which], len(which)
            ),
        )

    def parts(self, most: int = 30_000):
        """The same trajectories in order, in parts of about so many steps."""
        marks = np.searchsorted(self.offsets, np.arange(0, self.offsets[-1], most))
        marks = np.unique(np.append(marks, len(self)))
        for start, stop in pairwise(marks):
            yield self.take(np.arange(start, stop))


def prepare(
    observations: ArrayLike,
    actions: ArrayLike,
    offsets: ArrayLike,
    *,
    context: ArrayLike | None = None,
    context_columns: ArrayLike | None = None,
    group: ArrayLike | None = None,
    choices: ArrayLike | None = None,
    scaling: Scaling | None = None,
) -> Inputs:
    """Scale flat arrays for the assigners.

    Args:
        observations: (N, S).
        actions: (N, A); whole numbers where `choices` is given.
        offsets: (M + 1,): trajectory m is rows offsets[m]:offsets[m+1].
        context: (M,) labels: what was done. Sources are the same under every context.
        context_columns: columns of the observations that hold the context, equal at
            all steps of a trajectory; alternative to `context`.
        group: (M,) labels: trajectories of one group were made by one hand.
        choices: number of choices of each action column, where actions are discrete.
        scaling: that of earlier inputs, for new trajectories of the same kind.
    """
    observations, actions = np.asarray(observations), np.asarray(actions)
    offsets = np.asarray(offsets, np.int64)
    _check_shapes(observations, actions, offsets)
    columns = np.asarray([] if context_columns is None else context_columns, np.int64)
    counts = np.asarray([] if choices is None else choices, np.int64)
    if scaling is not None:
        columns, counts = scaling.context_columns, scaling.choices
    if len(counts):
        actions = _one_hot(actions, counts)
    labels = _labels("context", context, len(offsets) - 1)
    if len(columns):
        labels = _constant_rows(observations, columns, offsets)
    if scaling is None:
        scaling = _fit_scaling(observations, actions, columns, counts, labels)
    return Inputs(
        observations=_scaled(observations, scaling, "observation"),
        actions=_scaled(actions, scaling, "action"),
        offsets=offsets,
        context=_numbered(labels, scaling.context_values),
        group=_group_numbers(group, len(offsets) - 1),
        scaling=scaling,
    )


def _fit_scaling(observations, actions, columns, counts, labels) -> Scaling:
    parts: dict[str, np.ndarray] = {}
    for name, values, left_out in (
        ("observation", observations, columns),
        ("action", actions, np.array([], np.int64)),
    ):
        mean = values.mean(0, dtype=np.float64)
        deviation = values.std(0, dtype=np.float64)
        varies = deviation > 1e-6 * (np.abs(mean) + 1e-6)
        varies[left_out] = False
        parts[f"{name}_columns"] = np.flatnonzero(varies)
        parts[f"{name}_mean"] = mean[varies]
        parts[f"{name}_deviation"] = deviation[varies]
    if not len(parts["action_columns"]):
        raise UserError("actions: expected some that differ, got the same at all steps")
    values = np.array([]) if labels is None else np.unique(labels, axis=0)
    return Scaling(
        **parts, choices=counts, context_columns=columns, context_values=values
    )


def _scaled(values: np.ndarray, scaling: Scaling, name: str) -> np.ndarray:
    columns, mean, deviation = (
        getattr(scaling, f"{name}_{part}") for part in ("columns", "mean", "deviation")
    )
    scaled = (values[:, columns] - mean) / deviation
    return np.clip(scaled, -FURTHEST, FURTHEST).astype(np.float32)


def _one_hot(actions: np.ndarray, counts: np.ndarray) -> np.ndarray:
    actions = actions.reshape(len(actions), -1).astype(np.int64)
    if actions.shape[1] != len(counts):
        raise UserError(
            f"choices: expected one number per action column ({actions.shape[1]}), got "
            f"{len(counts)}"
        )
    if (
        (actions < 0).any()
        or (actions >= counts).any()
        or (counts > MOST_CHOICES).any()
    ):
        raise UserError(
            f"actions: expected whole numbers from 0 to less than choices "
            f"({counts.tolist()}, at most {MOST_CHOICES:,})"
        )
    columns = [np.eye(n)[column] for n, column in zip(counts, actions.T)]
    return np.concatenate(columns, axis=1)


def _constant_rows(observations, columns, offsets) -> np.ndarray:
    """[M, columns]: the context columns of each trajectory."""
    values = observations[:, columns]
    first = values[offsets[:-1]]
    if not np.array_equal(np.repeat(first, np.diff(offsets), axis=0), values):
        raise UserError(
            "context: expected columns that stay the same within a trajectory, got "
            f"columns {columns.tolist()}, which change"
        )
    return first


def _labels(name: str, labels: ArrayLike | None, expected: int) -> np.ndarray | None:
    if labels is None:
        return None
    labels = np.asarray(labels)
    if labels.shape != (expected,):
        raise UserError(
            f"{name}: expected one label per trajectory, shape ({expected},), got "
            f"{labels.shape}"
        )
    return labels


def _numbered(labels: np.ndarray | None, values: np.ndarray) -> np.ndarray | None:
    """Position of each label among the known values, -1 where it is not one of them."""
    if labels is None:
        return None
    known = {_key(value): number for number, value in enumerate(values)}
    return np.array([known.get(_key(label), -1) for label in labels])


def _key(value: np.ndarray) -> tuple:
    return tuple(np.atleast_1d(value).tolist())


def _group_numbers(group: ArrayLike | None, expected: int) -> np.ndarray | None:
    labels = _labels("group", group, expected)
    return None if labels is None else np.unique(labels, return_inverse=True)[1]


def _check_shapes(observations, actions, offsets) -> None:
    for name, values in (("observations", observations), ("actions", actions)):
        if values.ndim != 2 or len(values) != offsets[-1]:
            raise UserError(
                f"{name}: expected one row per step, {offsets[-1]} rows, got an array "
                f"of shape {values.shape}"
            )
        if not np.isfinite(values).all():
            raise UserError(f"{name}: expected finite numbers, got NaN or infinity")
    if (np.diff(offsets) < 1).any():
        raise UserError("offsets: expected at least one step in every trajectory")
