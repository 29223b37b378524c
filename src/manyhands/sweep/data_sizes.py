"""Sizes of data sets, also of those that are still to be made."""

from pathlib import Path

from manyhands import datasets
from manyhands.agents.tasks import TASKS
from manyhands.data.trajectories import Trajectories
from manyhands.envs import fork
from manyhands.sweep.making import data_file, made_here
from manyhands.sweep.programs import Sizes


def sizes_of(folder: Path, data: str, transitions: int | None) -> Sizes:
    """By its file, or by its name where it is still to be made."""
    place = data_file(folder, data)
    if not made_here(data):
        return _measured(datasets.load(data))
    if place.exists():
        return _measured(datasets.load(place))
    size = asked_for(data, transitions)
    assert size is not None
    maker, _, name = data.partition(":")
    if maker == "fork":
        shape = fork.OBSERVATION_SIZE, fork.ACTION_SIZE
        env = fork.COURSES[name.partition("-")[0]].env_id
        return sizes_in(Sizes(*shape, size, -(-size // fork.HORIZON), env), env)
    task = TASKS[name.partition("-")[0]]
    shape = task.observations, task.actions
    return Sizes(*shape, size, -(-size // 1000), task.env_id)


def asked_for(data: str, transitions: int | None) -> int | None:
    """Transitions of a data set that is made here."""
    if not made_here(data):
        return None
    usual = datasets.usual_size(data.partition(":")[2])  # knows what names there are
    return transitions or usual


def _measured(data: Trajectories) -> Sizes:
    return sizes_in(Sizes.of(data), data.env_id)


def sizes_in(sizes: Sizes, env: str | None) -> Sizes:
    """Where policies are evaluated in this environment."""
    ours = env in {course.env_id for course in fork.COURSES.values()}
    return sizes._replace(env=env, **({"episode": fork.HORIZON} if ours else {}))
