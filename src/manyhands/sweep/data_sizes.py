"""Sizes of data sets, also of those that are still to be made."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from manyhands import datasets
from manyhands.agents.tasks import TASKS
from manyhands.data.trajectories import Trajectories
from manyhands.envs import fork
from manyhands.sweep.making import data_file, made_here

LONGEST = 1000  # steps of an episode, but for the fork's
STEPS = 4  # of a stand-in's trajectories


class Sizes(NamedTuple):
    """All of a data set that the shapes and the time of a training depend on."""

    observations: int
    actions: int
    transitions: int
    trajectories: int
    env: str | None  # where policies are evaluated
    terminals: bool = True  # whether any world ended
    episode: int = LONGEST  # steps of the longest one

    @property
    def table(self) -> int:
        """Bytes of all transitions as the fleet has them."""
        columns = 2 * self.observations + 2 * self.actions + 3
        return 4 * self.transitions * columns

    def stand_in(self) -> Trajectories:
        """Random data of these sizes, but for the lengths of trajectories."""
        random = np.random.default_rng(0)
        rows = self.trajectories * STEPS
        ends = np.arange(rows) % STEPS == STEPS - 1
        terminals = ends & self.terminals
        return Trajectories.from_arrays(
            random.normal(size=(rows, self.observations)),
            random.uniform(-0.9, 0.9, (rows, self.actions)),
            random.normal(size=rows),
            terminals,
            timeouts=ends & ~terminals,
            next_observations=random.normal(size=(rows, self.observations)),
            env_id=self.env,
            name="stand-in",
        )


def sizes_of(folder: Path, data: str, transitions: int | None) -> Sizes:
    """By its file, or by its name where it is still to be made."""
    place = data_file(folder, data)
    if not made_here(data):
        return _measured(datasets.load(data))
    if place.exists():
        return _measured(datasets.load(place))
    size = size_to_make(data, transitions)
    assert size is not None
    maker, _, name = data.partition(":")
    if maker == "fork":
        shape = fork.OBSERVATION_SIZE, fork.ACTION_SIZE
        env = fork.COURSES[name.partition("-")[0]].env_id
        return sizes_in(Sizes(*shape, size, -(-size // fork.HORIZON), env), env)
    task = TASKS[name.partition("-")[0]]
    shape = task.observations, task.actions
    return Sizes(*shape, size, -(-size // LONGEST), task.env_id)


def size_to_make(data: str, transitions: int | None) -> int | None:
    """Transitions of a data set that is made here."""
    if not made_here(data):
        return None
    usual = datasets.usual_size(data.partition(":")[2])  # knows what names there are
    return transitions or usual


def _measured(data: Trajectories) -> Sizes:
    return sizes_in(
        Sizes(
            data.observation_size,
            data.action_size,
            data.transitions,
            len(data),
            data.env_id,
            bool(data.terminals.any()),
        ),
        data.env_id,
    )


def sizes_in(sizes: Sizes, env: str | None) -> Sizes:
    """Where policies are evaluated in this environment."""
    ours = env in {course.env_id for course in fork.COURSES.values()}
    return sizes._replace(env=env, **({"episode": fork.HORIZON} if ours else {}))
