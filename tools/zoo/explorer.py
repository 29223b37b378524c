"""A process that steps environments for some agents while the device learns.

It takes an agent through all steps of an epoch by itself: exchanging messages at every
step would take longer than the step. `explorers.py` starts these processes, by the path
of this file: it imports nothing from its own folder.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import safe_open

from manyhands.agents import acting
from manyhands.agents.acting import Layers
from manyhands.envs.rollout import episode_seeds
from manyhands.envs.worker import quiet


class Shape(NamedTuple):
    """Sizes of the replay file; smaller observations and actions are padded."""

    agents: int
    capacity: int  # transitions of each agent
    observations: int
    actions: int

    @property
    def columns(self) -> int:
        """As in fleet.Packed: s, a, r, s', terminal, number of the trajectory."""
        return 2 * self.observations + self.actions + 3

    def open(self, path: Path) -> np.memmap:
        mode = "r+" if path.exists() else "w+"
        shape = (self.agents, self.capacity, self.columns)
        return np.memmap(path, np.float32, mode, shape=shape)


class Job(NamedTuple):
    """An epoch of this process's agents; a line of its standard input."""

    policies: str  # path of the file with all agents' policies
    start: int  # the first row to write
    steps: int
    number: int  # of the epoch: part of the episodes' seeds


class Agent(NamedTuple):
    number: int  # its row in the replay and in the file of policies
    env_id: str
    seeds: list[int]  # seed of its training, number of its task


def main(agents: Sequence[Agent], replay: Path, shape: Shape) -> None:
    answer = quiet()

    import gymnasium

    envs = [gymnasium.make(a.env_id, disable_env_checker=True) for a in agents]
    rows = np.asarray(shape.open(replay))  # slices of a memmap are slow
    for line in sys.stdin:
        job = Job(*json.loads(line))
        end = job.start + job.steps
        returns = []
        for agent, env in zip(agents, envs):
            layers = read_policy(Path(job.policies), agent.number, *sizes(env))
            seeds = episode_seeds(*agent.seeds, job.number)
            place = rows[agent.number, job.start : end]
            returns.append(explore(env, layers, seeds, place, shape))
        os.write(answer, (json.dumps(returns) + "\n").encode())


def sizes(env) -> tuple[int, int]:
    return env.observation_space.shape[0], env.action_space.shape[0]


def read_policy(path: Path, agent: int, observations: int, actions: int) -> Layers:
    """One of many policies that were stored together, without its padding."""
    with safe_open(path, "numpy") as file:
        many = len(list(file.keys())) // 2
        layers = [
            tuple(file.get_slice(f".layers[{i}].{part}")[agent] for part in "wb")
            for i in range(many)
        ]
    return cut(layers, observations, actions)


def cut(layers: Layers, observations: int, actions: int) -> Layers:
    """Without the rows and columns that padded a smaller task to the largest."""
    (first, bias), *middle, (last, last_bias) = layers
    each = np.arange(actions)
    keep = np.concatenate([each, len(last_bias) // 2 + each])
    return [(first[:observations], bias), *middle, (last[:, keep], last_bias[keep])]


def explore(
    env, layers: Layers, seeds: Iterator[int], rows: np.ndarray, shape: Shape
) -> list[float]:
    """Fill rows with steps; the returns of the episodes that ended within them."""
    size = env.action_space.shape[0]
    a, r = shape.observations, shape.observations + shape.actions
    rows[:] = 0
    returns: list[float] = []

    def begin():
        seed = next(seeds)
        return env.reset(seed=seed)[0], np.random.default_rng(seed), 0.0

    observation, noise, total = begin()
    for row in rows:
        seen = observation.astype(np.float32)
        mean, log_std = acting.distribution(layers, seen)
        action = np.tanh(mean + np.exp(log_std) * noise.standard_normal(size, "f"))
        observation, reward, terminal, timeout, _ = env.step(action)
        row[: len(seen)] = seen
        row[a : a + size] = action
        row[r] = reward
        row[r + 1 : r + 1 + len(seen)] = observation
        row[-2] = terminal  # a time-out is no terminal
        total += float(reward)
        if terminal or timeout:
            returns.append(total)
            observation, noise, total = begin()
    return returns


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(
        [Agent(*agent) for agent in given["agents"]],
        Path(given["replay"]),
        Shape(*given["shape"]),
    )
