"""The paper's three tasks."""

from typing import NamedTuple

from manyhands.errors import UserError


class Task(NamedTuple):
    env_id: str
    observations: int
    actions: int  # in [-1, 1]


TASKS = {
    "hopper": Task("Hopper-v5", 11, 3),
    "halfcheetah": Task("HalfCheetah-v5", 17, 6),
    "walker2d": Task("Walker2d-v5", 17, 6),
}


def task(name: str) -> Task:
    if name not in TASKS:
        raise UserError(f"{name}: expected a task: {', '.join(TASKS)}")
    return TASKS[name]
