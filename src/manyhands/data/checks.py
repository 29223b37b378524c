"""What must hold of a data set. Each error names the field, the first bad index, what
was expected and what was found."""

from typing import TYPE_CHECKING

import numpy as np

from manyhands.errors import UserError

if TYPE_CHECKING:
    from manyhands.data.trajectories import Trajectories


class ActionsOutside(UserError):
    """Actions outside their bounds: the one fault that can be mended on request."""


BLOCK = 1 << 16  # rows looked at together: temporaries stay in the cache


def check(data: "Trajectories") -> None:
    """Everything, in the order in which a person would want to hear of it."""
    _shapes(data)
    _offsets(data.offsets, data.transitions)
    for field in ("observations", "actions", "rewards", "next_observations"):
        _finite(field, getattr(data, field))
    if data.log_probs is not None:
        _finite("log_probs", data.log_probs)
    ends = data.offsets[1:] - 1
    only_at_ends("terminals", data.terminals, ends)
    only_at_ends("timeouts", data.timeouts, ends)
    both = data.terminals & data.timeouts
    if both.any():
        raise UserError(
            f"timeouts: row {np.argmax(both)}: expected a time-out or a terminal, "
            "got both"
        )
    _sources(data)
    _bounds(data)
    if not isinstance(data.env_id, str | None):
        raise UserError(f"env_id: expected text, got {data.env_id!r}")


def same_length(rows: int, **arrays: np.ndarray | None) -> None:
    for field, array in arrays.items():
        if array is not None and len(array) != rows:
            raise UserError(f"{field}: expected length {rows}, got {len(array)}")


def contiguous(trajectory: np.ndarray) -> None:
    """No trajectory id comes back after another one began."""
    change = np.flatnonzero(trajectory[1:] != trajectory[:-1]) + 1
    starts = np.concatenate([[0], change])
    _, first = np.unique(trajectory[starts], return_index=True)
    if len(first) != len(starts):
        again = starts[np.setdiff1d(np.arange(len(starts)), first)[0]]
        raise UserError(
            f"trajectory: row {again}: expected a new id (trajectories are "
            f"contiguous), got {trajectory[again]} again"
        )


def only_at_ends(field: str, flags: np.ndarray, ends: np.ndarray) -> None:
    inside = flags.copy()
    inside[ends] = False
    if inside.any():
        row = int(np.argmax(inside))
        end = int(ends[np.searchsorted(ends, row)])
        raise UserError(
            f"{field}: row {row}: expected true only at the end of a trajectory, got "
            f"true inside the one that ends at row {end}"
        )


def one_source_each(labels: np.ndarray, offsets: np.ndarray) -> None:
    """Labels per row do not change within a trajectory."""
    change = labels[1:] != labels[:-1]
    change[offsets[1:-1] - 1] = False
    if change.any():
        row = int(np.argmax(change)) + 1
        raise UserError(
            f"source: row {row}: expected one source per trajectory, got {labels[row]} "
            f"after {labels[row - 1]} inside trajectory "
            f"{np.searchsorted(offsets, row, side='right') - 1}"
        )


def gaps(data: "Trajectories") -> np.ndarray:
    """Rows whose next observation is not the one that follows in their trajectory."""
    apart = (data.next_observations[:-1] != data.observations[1:]).any(axis=1)
    apart[data.offsets[1:-1] - 1] = False
    return np.flatnonzero(apart)


def outside(
    actions: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[int, tuple[int, int] | None]:
    """How many action values lie outside the bounds, and where the first one is."""
    count, first = 0, None
    for start in range(0, len(actions), BLOCK):
        block = actions[start : start + BLOCK]
        bad = (block < low) | (block > high)
        if bad.any():
            count += int(bad.sum())
            if first is None:
                row, column = np.unravel_index(np.argmax(bad), bad.shape)
                first = (start + int(row), int(column))
    return count, first


def _shapes(data: "Trajectories") -> None:
    rows, count = len(data.observations), len(data.offsets) - 1
    size, action_size = data.observations.shape[1:], data.actions.shape[1:]
    expected = {
        "observations": (rows, *size),
        "actions": (rows, *action_size),
        "rewards": (rows,),
        "next_observations": (rows, *size),
        "terminals": (rows,),
        "timeouts": (rows,),
        "log_probs": (rows,),
        "action_low": action_size,
        "action_high": action_size,
        "final_known": (count,),
        "ids": (count,),
        "sources": (count,),
    }
    for field, shape in expected.items():
        array = getattr(data, field)
        if array is not None and array.shape != shape:
            raise UserError(f"{field}: expected shape {shape}, got {array.shape}")
    for field in ("observations", "actions"):
        if 0 in getattr(data, field).shape:
            raise UserError(
                f"{field}: expected at least one row and column, got shape "
                f"{getattr(data, field).shape}"
            )


def _offsets(offsets: np.ndarray, rows: int) -> None:
    if offsets[0] != 0 or offsets[-1] != rows:
        raise UserError(
            f"offsets: expected to run from 0 to {rows}, got {offsets[0]} to "
            f"{offsets[-1]}"
        )
    empty = np.diff(offsets) < 1
    if empty.any():
        m = int(np.argmax(empty))
        raise UserError(
            f"offsets: trajectory {m}: expected at least one transition, got "
            f"{offsets[m + 1] - offsets[m]}"
        )


def _finite(field: str, array: np.ndarray) -> None:
    for start in range(0, len(array), BLOCK):
        finite = np.isfinite(array[start : start + BLOCK])
        if not finite.all():
            where = np.unravel_index(np.argmin(finite), finite.shape)
            row, *column = int(where[0]) + start, *map(int, where[1:])
            place = f"row {row}" + (f", column {column[0]}" if column else "")
            value = array[(row, *column)]
            raise UserError(f"{field}: {place}: expected a finite number, got {value}")


def _sources(data: "Trajectories") -> None:
    if data.sources is None:
        return
    bad = (data.sources < 0) | (data.sources >= len(data.source_names))
    if bad.any():
        m = int(np.argmax(bad))
        raise UserError(
            f"sources: trajectory {m}: expected an index below "
            f"{len(data.source_names)}, got {data.sources[m]}"
        )
    if len(set(data.source_names)) != len(data.source_names):
        raise UserError(
            f"source_names: expected different names, got {list(data.source_names)}"
        )


def _bounds(data: "Trajectories") -> None:
    low, high = data.action_low, data.action_high
    bad = ~(np.isfinite(low) & np.isfinite(high) & (low < high))
    if bad.any():
        i = int(np.argmax(bad))
        raise UserError(
            f"action_bounds: dimension {i}: expected finite low < high, got "
            f"[{low[i]}, {high[i]}]"
        )
    count, first = outside(data.actions, low, high)
    if first is not None:
        row, column = first
        raise ActionsOutside(
            f"actions: row {row}, column {column}: expected a value in "
            f"[{low[column]:g}, {high[column]:g}], got {data.actions[first]:g} "
            f"({count:,} of {data.actions.size:,} values are outside); pass clip "
            "(--clip) to move them onto the bounds, or other action bounds"
        )
