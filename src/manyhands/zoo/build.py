"""The data sets of the paper, made by stored policies: `hopper-heterogeneous-3`, ...

Every one is made of complete trajectories, with the source of each and the exact
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

from manyhands.data.trajectories import Trajectories
from manyhands.envs.rollout import Episode, episode_seeds
from manyhands.errors import UserError
from manyhands.zoo import policies
from manyhands.zoo.acting import Layers
from manyhands.zoo.players import Players
from manyhands.zoo.policies import MEDIUM, STORED, About
from manyhands.zoo.tasks import task

Progress = Callable[[int], None]
# Episodes by who played them, from which seed on, in the order of their seeds. Sets of
# one task have many in common: those of k and k + 1 agents, medium and medium-expert.
Takes = dict[tuple[str, bytes, int, int], list[Episode]]


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
        stages = [a for a in mine if a.step < last]  # of the expert alone
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
    """At least so many transitions, in equal shares of the sources.

    Args:
        takes: episodes of sets that were made before; new ones are added.
    """
    whose, _, kind = name.partition("-")
    hands, env_id = sources(whose, kind, folder), task(whose).env_id
    return record(name, env_id, hands, transitions, seed, progress, workers, takes)


def record(
    name: str,
    env_id: str,
    hands: Mapping[str, Layers | None],
    transitions: int,
    seed: int = 0,
    progress: Progress = lambda done: None,
    workers: int | None = None,
    takes: Takes | None = None,
) -> Trajectories:
    """Let some policies play, in equal shares, and write down what they do.

    Args:
        hands: the policies by the names of their sources; None for uniform actions.
    """
    share = -(-transitions // len(hands))
    takes = {} if takes is None else takes
    for other in [key for key in takes if key[0] != env_id]:
        del takes[other]  # one task's are some hundred megabytes
    episodes: list[Episode] = []
    made_by: list[int] = []
    done = 0
    with ExitStack() as stack:
        players: list[Players] = []  # started where somebody has to play

        def begun() -> Players:
            if not players:
                players.append(stack.enter_context(Players(env_id, workers)))
            return players[0]

        for number, layers in enumerate(hands.values()):
            kept = takes.setdefault((env_id, _name_of(layers), seed, number), [])
            seeds = episode_seeds(seed, number)
            with closing(played(begun, layers, seeds, kept)) as some:
                for episode in until(share, some):
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


def sources(whose: str, kind: str, folder: Path) -> dict[str, Layers | None]:
    """The policies of a data set by the names of its sources."""
    if kind == "random":
        return {"random": None}
    roles = Roles.of(whose, folder)
    if kind.startswith("heterogeneous-"):
        first = roles.finals[: int(kind.removeprefix("heterogeneous-"))]
        chosen = {f"agent-{about.seed}": about for about in first}
    elif kind == "medium-replay":
        chosen = {f"step-{about.step}": about for about in roles.to_medium}
    else:
        known = {"medium": roles.medium, "expert": roles.expert}
        chosen = {name: known[name] for name in kind.split("-")}
    return {name: policies.load(about, folder).layers for name, about in chosen.items()}


def played(
    players: Callable[[], Players],
    layers: Layers | None,
    seeds: Iterator[int],
    kept: list[Episode],
) -> Generator[Episode]:
    """Those that are kept, then new ones, which are kept, too."""
    yield from list(kept)
    with closing(players().play(layers, islice(seeds, len(kept), None))) as new:
        for episode in new:
            kept.append(episode)
            yield episode


def _name_of(layers: Layers | None) -> bytes:
    return hashlib.sha256(
        b"".join(array.tobytes() for layer in layers or [] for array in layer)
    ).digest()


def until(steps: int, episodes: Iterable[Episode]) -> Iterator[Episode]:
    """Whole episodes, until there are enough steps."""
    have = 0
    for episode in episodes:
        have += len(episode)
        yield episode
        if have >= steps:
            return
