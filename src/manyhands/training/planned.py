"""Stages as a request plans them, and how a progress is told which one comes next."""

from typing import Any, NamedTuple


class Planned(NamedTuple):
    name: str
    folder: str  # in the run directory; empty: the run itself
    steps: int
    at_most: bool = False  # it may end earlier


def announce(progress: Any, stage: Planned) -> None:
    """Call the `begin` of a progress that has one."""
    begin = getattr(progress, "begin", None)
    if begin:
        begin(stage)
