"""The paper's three tasks, and the names and sizes of its data sets."""

from typing import NamedTuple

from manyhands.errors import UserError


class Task(NamedTuple):
    env_id: str
    observations: int
    actions: int  # in [-1, 1]
    replay: int  # transitions of D4RL's medium-replay


TASKS = {
    "hopper": Task("Hopper-v5", 11, 3, 402_000),
    "halfcheetah": Task("HalfCheetah-v5", 17, 6, 202_000),
    "walker2d": Task("Walker2d-v5", 17, 6, 302_000),
}


def task(name: str) -> Task:
    if name not in TASKS:
        raise UserError(f"{name}: expected a task: {', '.join(TASKS)}")
    return TASKS[name]


def data_set_sizes() -> dict[str, int]:
    """Usual numbers of transitions by name: the paper's data sets, and D4RL's."""
    sizes = {}
    for name, about in TASKS.items():
        for k in range(1, 6):
            sizes[f"{name}-heterogeneous-{k}"] = 1_000_000
        sizes[f"{name}-random"] = 1_000_000
        sizes[f"{name}-medium"] = 1_000_000
        sizes[f"{name}-medium-replay"] = about.replay
        sizes[f"{name}-medium-expert"] = 2_000_000
    return sizes
