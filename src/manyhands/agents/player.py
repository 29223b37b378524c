"""A process that plays whole episodes of a stored policy; see `players.py`.

One process plays an episode from its start to its end, and all randomness of the
episode comes from its seed: any number of processes plays the same episodes.
"""

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file

from manyhands.agents import acting
from manyhands.agents.acting import Layers
from manyhands.envs.rollout import Episode
from manyhands.envs.worker import quiet
from manyhands.files import save_arrays


class Job(NamedTuple):
    """Episodes of one policy; a line of the process's standard input."""

    policy: str  # path of its file; "" for uniform actions
    by_mode: bool  # actions are the mode, not samples
    seeds: list[int]  # one episode each
    result: str  # path of the file for the episodes


def main(env_id: str) -> None:
    answer = quiet()

    import gymnasium

    env = gymnasium.make(env_id, disable_env_checker=True)
    known, layers = "", None
    for line in sys.stdin:
        job = Job(*json.loads(line))
        if job.policy != known:
            known = job.policy
            layers = read_layers(Path(known)) if known else None
        episodes = [play(env, layers, seed, job.by_mode) for seed in job.seeds]
        write(Path(job.result), episodes)
        os.write(answer, b".\n")


def play(env, layers: Layers | None, seed: int, by_mode: bool) -> Episode:
    size = env.action_space.shape[0]
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    observations, actions, rewards, log_probs = [observation], [], [], []
    terminal = timeout = False
    while not (terminal or timeout):
        now, log_prob = observation.astype(np.float32), np.nan
        if layers is None:
            action, log_prob = rng.uniform(-1, 1, size), -size * np.log(2)
        elif by_mode:
            action = acting.mode(layers, now)
        else:
            noise = rng.standard_normal(size, np.float32)
            action, log_prob = acting.sample(layers, now, noise)
        action = action.astype(np.float32)
        observation, reward, terminal, timeout, _ = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(reward)
        log_probs.append(log_prob)
    return Episode(
        seed=seed,
        observations=np.array(observations, np.float32),
        actions=np.array(actions),
        rewards=np.array(rewards, np.float32),
        log_probs=np.array(log_probs, np.float32),
        terminal=bool(terminal),
        # A fall in the last step is a fall: time-outs are never terminals.
        timeout=bool(timeout and not terminal),
    )


# Files


def write_layers(path: Path, layers: Layers) -> None:
    named = {
        f"{i}/{p}": a for i, layer in enumerate(layers) for p, a in zip("wb", layer)
    }
    save_arrays(path, named)


def read_layers(path: Path) -> Layers:
    arrays = load_file(path)
    return [(arrays[f"{i}/w"], arrays[f"{i}/b"]) for i in range(len(arrays) // 2)]


def write(path: Path, episodes: list[Episode]) -> None:
    arrays = {
        name: np.concatenate([getattr(e, name) for e in episodes])
        for name in ("observations", "actions", "rewards", "log_probs")
    }
    about = [[e.seed, len(e), e.terminal, e.timeout] for e in episodes]
    save_arrays(path, {**arrays, "about": np.array(about, np.int64)})


def read(path: Path) -> list[Episode]:
    arrays = load_file(path)
    found, first = [], 0
    for number, (seed, steps, terminal, timeout) in enumerate(arrays["about"].tolist()):
        end = first + steps
        found.append(
            Episode(
                seed=seed,
                # One more observation than steps in every episode before.
                observations=arrays["observations"][first + number : end + number + 1],
                actions=arrays["actions"][first:end],
                rewards=arrays["rewards"][first:end],
                log_probs=arrays["log_probs"][first:end],
                terminal=bool(terminal),
                timeout=bool(timeout),
            )
        )
        first = end
    return found


if __name__ == "__main__":
    main(sys.argv[1])
