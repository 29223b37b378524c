"""What a data set holds: its figures, and what a careful colleague would remark."""

from typing import Any

import numpy as np

from manyhands.data import checks
from manyhands.data.trajectories import Trajectories
from manyhands.wording import counted

AT_BOUND = 1e-3  # of the width of an action's range
# Trajectories with the same, longest length: their share, how many at least, and how
# many times as many as of any other length from half of it on.
SUSPICIOUS, ENOUGH, PILE = 0.05, 5, 3
WORTH_SAYING = 0.01  # share of action values at the bounds


def card(data: Trajectories) -> dict[str, Any]:
    """Everything `manyhands data info` shows, ready for JSON."""
    ends = data.offsets[1:] - 1
    terminals, timeouts = data.terminals[ends].sum(), data.timeouts[ends].sum()
    return {
        "name": data.name,
        "fingerprint": data.fingerprint,
        "env_id": data.env_id,
        "trajectories": len(data),
        "transitions": data.transitions,
        "observation_size": data.observation_size,
        "action_size": data.action_size,
        "action_low": data.action_low.tolist(),
        "action_high": data.action_high.tolist(),
        "returns": _spread(data.returns),
        "lengths": _spread(data.lengths),
        "ends": {
            "terminal": int(terminals),
            "timeout": int(timeouts),
            "cut_off": len(data) - int(terminals) - int(timeouts),
        },
        "log_prob": None if data.log_probs is None else float(data.log_probs.mean()),
        "sources": _sources(data),
        "remarks": remarks(data),
    }


def _spread(values: np.ndarray) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def _sources(data: Trajectories) -> list[dict[str, Any]]:
    if data.sources is None:
        return []
    rows = []
    for code, name in enumerate(data.source_names):
        mine = data.sources == code
        if not mine.any():
            continue
        row = {
            "name": name,
            "trajectories": int(mine.sum()),
            "transitions": int(data.lengths[mine].sum()),
            "return_mean": float(data.returns[mine].mean()),
            "return_std": float(data.returns[mine].std()),
        }
        if data.log_probs is not None:
            row["log_prob"] = float(data.log_probs[mine[data.trajectory]].mean())
        rows.append(row)
    return rows


def remarks(data: Trajectories) -> list[str]:
    """Problems, most serious first; empty where there is nothing to say."""
    found = [
        *_boundaries(data),
        *_time_limits(data),
        *_ends(data),
        *_duplicates(data),
        *_columns(data),
        *_choices(data),
        *_actions(data),
    ]
    if data.rewards.min() == data.rewards.max():
        found.append(f"every reward is {data.rewards[0]:g}")
    return found


def _boundaries(data: Trajectories) -> list[str]:
    rows = checks.gaps(data)
    if not len(rows):
        return []
    return [
        f"{_do(len(rows), 'next observation', 'differs', 'differ')} from the "
        f"observation that follows in the same trajectory, first at row {rows[0]}: "
        "are trajectories divided in the right places?"
    ]


def _time_limits(data: Trajectories) -> list[str]:
    if not data.timeouts_marked:
        return [
            "time-outs are missing: trajectories are divided at terminals and after "
            "--max-steps, and may hold several episodes each"
        ]
    if data.timeouts.any():
        return []
    longest, suspects = data.lengths.max(), _at_a_limit(data)
    if suspects:
        return [
            f"no time-out is marked, and {suspects} of {len(data)} trajectories end in "
            f"a terminal after exactly {longest} steps: a time limit, stored wrongly?"
        ]
    if data.env_id is None:
        return [
            "no time-out is marked: a trajectory that a time limit ended would look "
            "like one that ended in a terminal"
        ]
    return []


def _at_a_limit(data: Trajectories) -> int:
    """How many end in a terminal after the longest length, if these are suspiciously
    many: a limit heaps them up there, while lengths that just vary thin out."""
    longest = data.lengths.max()
    ends_in_terminal = data.terminals[data.offsets[1:] - 1]
    suspects = int((ends_in_terminal & (data.lengths == longest)).sum())
    near = data.lengths[(data.lengths < longest) & (data.lengths >= longest / 2)]
    usual = int(np.bincount(near).max(initial=0))
    enough = max(ENOUGH, SUSPICIOUS * len(data), PILE * usual)
    return suspects if suspects >= enough else 0


def _ends(data: Trajectories) -> list[str]:
    ends = data.offsets[1:] - 1
    terminal, timeout = data.terminals[ends], data.timeouts[ends]
    found = []
    cut = ~terminal & ~timeout
    if cut.any():
        found.append(
            f"{_do(cut.sum(), 'trajectory', 'is', 'are')} cut off (neither terminal "
            f"nor time-out), first trajectory {np.argmax(cut)}: returns there are "
            "partial"
        )
    # Where a time limit is evident, a time-out before it is a recording cut short.
    lengths, counts = np.unique(data.lengths[timeout], return_counts=True)
    if len(lengths) > 1 and counts[-1] > timeout.sum() / 2:
        early = timeout & (data.lengths < lengths[-1])
        found.append(
            f"{_do(early.sum(), 'time-out', 'comes', 'come')} before the usual "
            f"{lengths[-1]} steps, "
            f"first trajectory {np.argmax(early)} after {data.lengths[early][0]}: "
            "returns there look cut off"
        )
    unknown = ~data.final_known
    if unknown.any():
        used = (unknown & ~terminal).sum()
        found.append(
            "the observation after the last step is not stored for "
            + counted(unknown.sum(), "trajectory")
            + (
                f"; learning values leaves out the last step of {used:,}"
                if used
                else " (all end in a terminal, where values do not need it)"
            )
        )
    return found


def _duplicates(data: Trajectories) -> list[str]:
    seen: dict[tuple[int, int], int] = {}
    first, count = None, 0
    for m, (start, stop) in enumerate(zip(data.offsets[:-1], data.offsets[1:])):
        content = (
            hash(data.observations[start:stop].tobytes()),
            hash(data.actions[start:stop].tobytes()),
        )
        if content in seen:
            count += 1
            first = first or (m, seen[content])
        else:
            seen[content] = m
    if first is None:
        return []
    return [
        f"{_do(count, 'trajectory', 'is a copy of another', 'are copies of others')}, "
        f"first trajectory {first[0]} (of {first[1]})"
    ]


def _columns(data: Trajectories) -> list[str]:
    low, high = data.observations.min(axis=0), data.observations.max(axis=0)
    constant = np.flatnonzero(low == high)
    if not len(constant):
        return []
    return [f"constant observation columns: {_few(constant)}"]


def _choices(data: Trajectories) -> list[str]:
    if (data.actions != np.round(data.actions)).any():
        return []
    different = len(np.unique(data.actions))
    if different == 1:  # nobody's choice
        return []
    # Clipped, several may have become one.
    which = "once clipped" if data.clipped else f"{different:,} different ones"
    return [
        f"all actions are whole numbers, {which}: discrete "
        "actions are not known here, these are taken for points between the bounds"
    ]


def _actions(data: Trajectories) -> list[str]:
    found = []
    if data.clipped:
        found.append(
            f"{data.clipped:,} of {data.actions.size:,} action values were outside the "
            "bounds and are clipped here; without --clip such data is refused"
        )
    margin = AT_BOUND * (data.action_high - data.action_low)
    at_bound = (data.actions <= data.action_low + margin) | (
        data.actions >= data.action_high - margin
    )
    share = at_bound.mean(axis=0)
    many = np.flatnonzero(share > WORTH_SAYING)
    if len(many):
        found.append(
            f"{at_bound.mean():.1%} of action values are at the bounds, most in "
            f"dimension {np.argmax(share)} ({share.max():.1%}): log-probabilities "
            "there depend on how they are clipped"
        )
    constant = np.flatnonzero(data.actions.min(axis=0) == data.actions.max(axis=0))
    if len(constant):
        found.append(f"constant action dimensions: {_few(constant)}")
    return found


def _do(number: int, thing: str, one: str, several: str) -> str:
    return f"{counted(number, thing)} {one if number == 1 else several}"


def _few(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")
