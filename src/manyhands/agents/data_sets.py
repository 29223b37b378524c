"""The data sets of the paper, played by stored policies: `hopper-heterogeneous-3`, ...

Every data set has complete trajectories, with the source of each and the exact
log-probability of every action. The same seed makes the same data, whatever the number
of processes.
"""

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manyhands.agents import policies
from manyhands.agents.acting import Layers
from manyhands.agents.players import Players
from manyhands.agents.policies import MEDIUM, STORED, About
from manyhands.agents.tasks import task
from manyhands.data.trajectories import Trajectories
from manyhands.envs.rollout import Episode, episode_seeds
from manyhands.errors import UserError

Progress = Callable[[int], None]
# Episodes already played, by environment, digest of the policy, seed of the data set
# and number of the source. Data sets of one task share many: heterogeneous-k is part of
# heterogeneous-(k + 1), medium of medium-expert.
Takes = dict[tuple[str, bytes, int, int], list[Episode]]


class Roles(NamedTuple):
    """The stored policies of one task by their parts in its data sets."""

    finals: list[About]  # every agent's last policy, by seed
    expert: About
    medium: About
    to_medium: list[About]  # stages of the expert's training, medium is the last

    @staticmethod
    def of(name: str, folder: Path) -> "Roles":
        stored = [about for about in policies.manifest(folder) if about.task == name]
        if not stored:
            raise UserError(f"{name}: no policies of this task are stored in {folder}")
        last = max(about.step for about in stored)
        finals = sorted((a for a in stored if a.step == last), key=lambda a: a.seed)
        stages = [a for a in stored if a.step < last]  # only the expert has them
        expert = next(a for a in finals if a.seed == stages[0].seed)
        target = MEDIUM * expert.return_mean
        medium = min(stages, key=lambda a: abs(a.return_mean - target))
        before = [a for a in stages if a.step <= medium.step]
        return Roles(finals, expert, medium, sorted(before, key=lambda a: a.step))


def make(
    name: str,
    transitions: int,
    seed: int = 0,
    progress: Progress = lambda done: None,
    takes: Takes | None = None,
    *,
    folder: Path = STORED,
    workers: int | None = None,
) -> Trajectories:
    """At least so many transitions, an equal share from every source.

    Args:
        takes: episodes of data sets made before; new episodes are added to it.
        folder: of the stored policies.
    """
    task_name, _, kind = name.partition("-")
    sources = source_policies(task_name, kind, folder)
    env_id = task(task_name).env_id
    return record(name, env_id, sources, transitions, seed, progress, workers, takes)


def record(
    name: str,
    env_id: str,
    sources: Mapping[str, Layers | None],
    transitions: int,
    seed: int = 0,
    progress: Progress = lambda done: None,
    workers: int | None = None,
    takes: Takes | None = None,
) -> Trajectories:
    """Episodes of several policies as one data set, an equal share from each.

    Args:
        sources: the policies by the names of their sources; None for uniform actions.
        takes: as for `make`.
    """
    share = -(-transitions // len(sources))
    takes = {} if takes is None else takes
    for other in [key for key in takes if key[0] != env_id]:
        del takes[other]  # the episodes of one task are some hundred megabytes
    episodes: list[Episode] = []
    made_by: list[int] = []
    done = 0
    with ExitStack() as stack:
        players: list[Players] = []  # started when the first new episode is needed

        def start() -> Players:
            if not players:
                players.append(stack.enter_context(Players(env_id, workers)))
            return players[0]

        for number, layers in enumerate(sources.values()):
            kept = takes.setdefault((env_id, _digest(layers), seed, number), [])
            seeds = episode_seeds(seed, number)
            with closing(_played(start, layers, seeds, kept)) as played:
                for episode in _up_to(share, played):
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
        source_names=list(sources),
        env_id=env_id,
        name=name,
        copy=False,
    )
    return data.shuffle(seed).renumbered()


def source_policies(
    task_name: str, kind: str, folder: Path
) -> dict[str, Layers | None]:
    """The policies of a data set by the names of its sources."""
    if kind == "random":
        return {"random": None}
    roles = Roles.of(task_name, folder)
    if kind.startswith("heterogeneous-"):
        first = roles.finals[: int(kind.removeprefix("heterogeneous-"))]
        chosen = {f"agent-{about.seed}": about for about in first}
    elif kind == "medium-replay":
        chosen = {f"step-{about.step}": about for about in roles.to_medium}
    else:
        known = {"medium": roles.medium, "expert": roles.expert}
        chosen = {name: known[name] for name in kind.split("-")}
    return {name: policies.load(about, folder).layers for name, about in chosen.items()}


def _played(
    start: Callable[[], Players],
    layers: Layers | None,
    seeds: Iterator[int],
    kept: list[Episode],
) -> Generator[Episode]:
    """The episodes kept so far, then new ones, which are added to them."""
    yield from list(kept)
    with closing(start().play(layers, islice(seeds, len(kept), None))) as new:
        for episode in new:
            kept.append(episode)
            yield episode


def _digest(layers: Layers | None) -> bytes:
    return hashlib.sha256(
        b"".join(array.tobytes() for layer in layers or [] for array in layer)
    ).digest()


def _up_to(steps: int, episodes: Iterable[Episode]) -> Iterator[Episode]:
    """Whole episodes, until they have at least so many steps."""
    have = 0
    for episode in episodes:
        have += len(episode)
        yield episode
        if have >= steps:
            return
