"""From the arrays people have to the arrays that `Trajectories` holds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from manyhands.data import checks
from manyhands.errors import UserError


def matrix(field: str, values: ArrayLike, copy: bool) -> np.ndarray:
    array = _numbers(field, values, np.float32, copy)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise UserError(f"{field}: expected (N, size), got shape {array.shape}")
    return np.ascontiguousarray(array)


def column(field: str, values: ArrayLike, dtype: Any, copy: bool) -> np.ndarray:
    array = _numbers(field, values, dtype, copy)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UserError(f"{field}: expected (N,) or (N, 1), got shape {array.shape}")
    return array


def marks(field: str, values: ArrayLike) -> np.ndarray:
    """(N,) true or false. Other numbers than 0 and 1 were meant for something else, and
    NaN would be true."""
    given = column(field, values, None, copy=False)
    wrong = (given != 0) & (given != 1)
    if wrong.any():
        row = np.argmax(wrong)
        raise UserError(f"{field}: row {row}: expected 0 or 1, got {given[row]:g}")
    return given.astype(bool)


def bounds(pair: tuple[ArrayLike, ArrayLike], size: int) -> list[np.ndarray]:
    """Lowest and highest action per dimension, from numbers or arrays."""
    try:
        return [np.array(np.broadcast_to(b, size), np.float32) for b in pair]
    except ValueError:
        shapes = " and ".join(str(np.shape(b)) for b in pair)
        raise UserError(
            f"action_bounds: expected numbers or {size} of them each, got {shapes}"
        ) from None


def _numbers(field: str, values: ArrayLike, dtype: Any, copy: bool) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"dtype {array.dtype}")
        return np.array(array, dtype) if copy else np.asarray(array, dtype)
    except (TypeError, ValueError) as error:
        raise UserError(f"{field}: expected an array of numbers, got {error}") from None


def find_ends(
    terminals: np.ndarray,
    timeouts: np.ndarray | None,
    trajectory: ArrayLike | None,
    max_steps: int | None,
) -> np.ndarray:
    """Rows at which a trajectory ends; the last row always is one."""
    rows = len(terminals)
    if rows == 0:
        raise UserError("observations: expected at least one transition, got none")
    if trajectory is not None:
        labels = np.asarray(trajectory).reshape(-1)
        checks.same_length(rows, trajectory=labels)
        checks.contiguous(labels)
        ends = np.flatnonzero(labels[1:] != labels[:-1])
        return np.append(ends, rows - 1)
    over = terminals if timeouts is None else terminals | timeouts
    ends = np.unique(np.append(np.flatnonzero(over), rows - 1))
    if timeouts is None and max_steps is not None:
        if max_steps < 1:
            raise UserError(f"max_steps: expected at least 1, got {max_steps}")
        starts = np.concatenate([[0], ends[:-1] + 1])
        step = np.arange(rows) - np.repeat(starts, np.diff(np.append(starts, rows)))
        full = np.flatnonzero(step % max_steps == max_steps - 1)
        ends = np.union1d(ends, full)
    return ends


def find_following(
    observations: np.ndarray,
    ends: np.ndarray,
    next_observations: ArrayLike | None,
    final_observations: ArrayLike | None,
    final_known: ArrayLike | None,
    copy: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The observation after each row, and whether that of each last row is known."""
    known = np.ones(len(ends), bool)
    if next_observations is not None:
        following = matrix("next_observations", next_observations, copy)
        checks.same_length(len(observations), next_observations=following)
    else:
        following = np.concatenate([observations[1:], observations[-1:]])
        if final_observations is None:
            following[ends] = observations[ends]
            known[:] = False
        else:
            final = matrix("final_observations", final_observations, copy)
            checks.same_length(len(ends), final_observations=final)
            following[ends] = final
    complete = next_observations is not None or final_observations is not None
    if final_known is not None and complete:
        known = column("final_known", final_known, bool, copy)
    return following, known


def encode_sources(
    source: ArrayLike | None,
    names: Sequence[str] | None,
    offsets: np.ndarray,
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Codes per trajectory and their names, from labels per row or per trajectory."""
    if source is None:
        return None, ()
    labels = np.asarray(source).reshape(-1)
    rows, count = int(offsets[-1]), len(offsets) - 1
    if labels.dtype.kind in "SO":  # bytes, as HDF5 stores strings
        labels = np.array(
            [s.decode() if isinstance(s, bytes) else str(s) for s in labels]
        )
    if len(labels) == rows:
        checks.one_source_each(labels, offsets)
        labels = labels[offsets[:-1]]
    elif len(labels) != count:
        raise UserError(
            f"source: expected one label per transition ({rows}) or per trajectory "
            f"({count}), got {len(labels)}"
        )
    if names is not None:
        if labels.dtype.kind not in "iu" or labels.min() < 0:
            raise UserError("source: expected numbers from 0 up beside source names")
        if labels.max() >= len(names):
            first = int(np.argmax(labels >= len(names)))
            raise UserError(
                f"source: trajectory {first}: expected a number below the "
                f"{len(names)} source names, got {labels[first]}"
            )
        return labels.astype(np.int32), tuple(names)
    values, codes = np.unique(labels, return_inverse=True)
    return codes.astype(np.int32).reshape(-1), tuple(str(value) for value in values)
