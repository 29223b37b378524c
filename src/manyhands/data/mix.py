"""Several data sets as one, keeping who made what."""

from collections.abc import Sequence

import numpy as np

from manyhands.data.trajectories import PER_TRANSITION, Trajectories
from manyhands.errors import UserError


def concatenate(
    parts: Sequence[Trajectories], *, by_part: bool = False, name: str = "mix"
) -> Trajectories:
    """One data set from several, with one source label per trajectory.

    A part without labels is one source, named after the part. Labels that are names
    mean the same source wherever they occur; labels that are mere numbers do not, so
    they get the part's name in front. With `by_part`, every part is one source whatever
    its labels say.
    """
    if not parts:
        raise UserError("expected at least one data set, got none")
    _check_alike(parts)
    part_names = _distinct([part.name for part in parts])
    labels: list[str] = []
    for part, part_name in zip(parts, part_names):
        if part.sources is None or by_part:
            labels += [part_name] * len(part)
            continue
        numbers = all(label.isdecimal() for label in part.source_names)
        own = [f"{part_name}/{s}" if numbers else s for s in part.source_names]
        labels += [own[code] for code in part.sources]
    names = tuple(dict.fromkeys(labels))  # in order of appearance
    code = {label: i for i, label in enumerate(names)}

    flat = {
        field: np.concatenate([getattr(part, field) for part in parts])
        for field in PER_TRANSITION
        if all(getattr(part, field) is not None for part in parts)
    }
    lengths = np.concatenate([part.lengths for part in parts])
    environments = {part.env_id for part in parts}
    return Trajectories(
        **flat,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        action_low=parts[0].action_low,
        action_high=parts[0].action_high,
        final_known=np.concatenate([part.final_known for part in parts]),
        ids=np.arange(len(lengths)),
        sources=np.array([code[label] for label in labels], np.int32),
        source_names=names,
        env_id=environments.pop() if len(environments) == 1 else None,
        name=name,
        clipped=sum(part.clipped for part in parts),
        timeouts_marked=all(part.timeouts_marked for part in parts),
    )


def _check_alike(parts: Sequence[Trajectories]) -> None:
    first = parts[0]
    for part in parts[1:]:
        for field in ("observation_size", "action_size"):
            if getattr(part, field) != getattr(first, field):
                raise UserError(
                    f"{part.name}: {field}: expected {getattr(first, field)} as in "
                    f"{first.name}, got {getattr(part, field)}"
                )
        for field in ("action_low", "action_high"):
            if not np.array_equal(getattr(part, field), getattr(first, field)):
                raise UserError(
                    f"{part.name}: {field}: expected {getattr(first, field)} as in "
                    f"{first.name}, got {getattr(part, field)}"
                )


def _distinct(names: list[str]) -> list[str]:
    """Number the names that occur more than once."""
    return [
        f"{name}#{names[:i].count(name) + 1}" if names.count(name) > 1 else name
        for i, name in enumerate(names)
    ]
