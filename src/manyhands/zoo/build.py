"""The data sets of the paper, made by stored policies: `hopper-heterogeneous-3`, ...

Every one is made of complete trajectories, with the source of each and the exact
log-probability of every action. The same seed makes the same data, whatever the number
of processes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manyhands.data.trajectories import Trajectories
from manyhands.envs.pool import Pool
from manyhands.envs.rollout import TOGETHER, Act, Episode, episode_seeds, play
from manyhands.errors import UserError
from manyhands.zoo import policies
from manyhands.zoo.export import MEDIUM
from manyhands.zoo.policies import STORED, About
from manyhands.zoo.tasks import task

Progress = Callable[[int], None]


class Roles(NamedTuple):
    """Who is who among a task's stored policies."""

    finals: list[About]  # by seed
    expert: About
    medium: About
    to_medium: list[About]  # stages of the expert's training, medium the last

    @staticmethod
    def of(name: str, folder: Path) -> "Roles":
        mine = [about for about in policies.manifest(folder) if about.task == name]
        if not mine:
            raise UserError(f"{name}: no policies of this task are stored in {folder}")
        last = max(about.step for about in mine)
        finals = sorted((a for a in mine if a.step == last), key=lambda a: a.seed)
        expert = max(finals, key=lambda a: a.return_mean)
        stages = [a for a in mine if a.seed == expert.seed and a.step < last]
        target = MEDIUM * expert.return_mean
        medium = min(stages, key=lambda a: abs(a.return_mean - target))
        before = [a for a in stages if a.step <= medium.step]
        return Roles(finals, expert, medium, sorted(before, key=lambda a: a.step))


def make(
    name: str,
    transitions: int,
    seed: int = 0,
    progress: Progress = lambda done: None,
    *,
    folder: Path = STORED,
    workers: int | None = None,
) -> Trajectories:
    """At least so many transitions, in equal shares of the sources."""
    whose, _, kind = name.partition("-")
    hands = sources(whose, kind, folder)
    share, env_id = -(-transitions // len(hands)), task(whose).env_id
    episodes: list[Episode] = []
    made_by: list[int] = []
    done = 0
    with Pool([env_id] * TOGETHER, workers) as pool:
        for number, act in enumerate(hands.values()):
            for episode in until(share, play(pool, act, episode_seeds(seed, number))):
                episodes.append(episode)
                made_by.append(number)
                done += len(episode)
                progress(min(done, transitions))
    lengths = [len(episode) for episode in episodes]
    ends = np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros((2, sum(lengths)), bool)
    terminals[ends] = [episode.terminal for episode in episodes]
    timeouts[ends] = [episode.timeout for episode in episodes]
    data = Trajectories.from_arrays(
        observations=np.concatenate([e.observations[:-1] for e in episodes]),
        actions=np.concatenate([e.actions for e in episodes]),
        rewards=np.concatenate([e.rewards for e in episodes]),
        next_observations=np.concatenate([e.observations[1:] for e in episodes]),
        log_probs=np.concatenate([e.log_probs for e in episodes]),
        terminals=terminals,
        timeouts=timeouts,
        trajectory=np.repeat(np.arange(len(episodes)), lengths),
        source=made_by,
        source_names=list(hands),
        env_id=env_id,
        name=name,
        copy=False,
    )
    return data.shuffle(seed).renumbered()


def sources(whose: str, kind: str, folder: Path) -> dict[str, Act]:
    """The policies of a data set by the names of its sources."""
    if kind == "random":
        return {"random": policies.random_act(task(whose).actions)}
    roles = Roles.of(whose, folder)
    if kind.startswith("heterogeneous-"):
        first = roles.finals[: int(kind.removeprefix("heterogeneous-"))]
        chosen = {f"agent-{about.seed}": about for about in first}
    elif kind == "medium-replay":
        chosen = {f"step-{about.step}": about for about in roles.to_medium}
    else:
        known = {"medium": roles.medium, "expert": roles.expert}
        chosen = {name: known[name] for name in kind.split("-")}
    return {name: policies.load(about, folder).act() for name, about in chosen.items()}


def until(steps: int, episodes: Iterator[Episode]) -> Iterator[Episode]:
    """Whole episodes, until there are enough steps."""
    have = 0
    while have < steps:
        episode = next(episodes)
        have += len(episode)
        yield episode
