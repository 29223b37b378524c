"""From a training run to the policies that are stored: which ones, and how good."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.agents import policies
from manyhands.agents.players import Players
from manyhands.agents.policies import MEDIUM, About, Policy
from manyhands.agents.tasks import task
from manyhands.envs.rollout import episode_seeds
from manyhands.envs.scores import normalized
from manyhands.errors import UserError
from manyhands.runs import Run, environment
from zoo.explorer import read_policy
from zoo.train import policies_at

EPISODES = 20
CANDIDATES = 5  # for medium, by the returns seen in training; played to choose one
TO_MEDIUM, FROM_MEDIUM = 7, 8  # stages of one agent's training, both ends included
Progress = Callable[[int], None]  # policies played so far


class Trained:
    """A finished run of `train`, to take policies from."""

    def __init__(self, path: Path):
        self.run = Run(path)
        self.config = self.run.read_json("config.json")
        if not (path / "summary.json").exists():
            raise UserError(
                f"{path}: expected a finished run of `python tools/zoo train`"
            )
        self.agents = [(name, seed) for name, seed in self.config["agents"]]
        files = (path / "policies").glob("*.safetensors")
        self.steps = sorted(int(file.stem) for file in files)

    def tasks(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.agents))

    def command(self) -> str:
        """What trained it; options that are not the defaults are in `config`."""
        seeds = dict.fromkeys(str(seed) for _, seed in self.agents)
        words = [*self.tasks(), "--seeds", *seeds, "--out", self.run.path.name]
        return f"python tools/zoo train {' '.join(words)}"

    def expected(self) -> int:
        """About how many policies will be stored."""
        return len(self.agents) + len(self.tasks()) * (TO_MEDIUM + FROM_MEDIUM - 1)

    def policy(self, replica: int, step: int) -> Policy:
        """An agent's policy as it was kept after some steps, without its padding."""
        (name, seed), file = self.agents[replica], self.run.path / policies_at(step)
        sizes = task(name).observations, task(name).actions
        kept = read_policy(file, replica, *sizes)
        layers = [(w.astype(np.float32), b.astype(np.float32)) for w, b in kept]
        return Policy(About(name, seed, step), layers)


def export(
    run: str | Path,
    folder: str | Path,
    *,
    command: str = "",
    episodes: int = EPISODES,
    workers: int | None = None,
    progress: Progress = lambda done: None,
) -> None:
    """Choose, play and store policies of a run that `train` has finished.

    Every agent's last policy; and for each task, of the agent that did best (the
    expert), the stages of its training: up to `medium`, and from there to the end.
    """
    trained, kept = Trained(Path(run)), []
    for name in trained.tasks():
        with Players(task(name).env_id, workers) as players:

            def played(replica: int, step: int, players: Players = players) -> Policy:
                return play_policy(trained.policy(replica, step), players, episodes)

            for policy in choose(trained, name, played):
                kept.append(policy)
                progress(len(kept))
    kept.sort(key=lambda p: (p.about.task, p.about.seed, p.about.step))
    commands = [trained.command(), command]
    made = {"commands": commands, "run": trained.config, "played": environment()}
    policies.write(Path(folder), kept, made)


def choose(
    trained: Trained, name: str, played: Callable[[int, int], Policy]
) -> Iterator[Policy]:
    """The policies of one task to store, played."""
    steps, last = trained.steps, trained.steps[-1]
    replicas = [r for r, agent in enumerate(trained.agents) if agent[0] == name]
    finals = {}
    for r in replicas:
        finals[r] = played(r, last)
        yield finals[r]
    best = max(finals, key=lambda r: finals[r].about.return_mean)
    target = MEDIUM * finals[best].about.return_mean
    seen = returns_seen(trained.run.metrics(), best, steps)
    near = sorted(steps[:-1], key=lambda step: abs(seen[step] - target))
    tried = [played(best, step) for step in near[:CANDIDATES]]
    medium = min(tried, key=lambda policy: abs(policy.about.return_mean - target))
    yield medium
    for step in stages(steps, medium.about.step):
        if step not in (medium.about.step, last):
            yield played(best, step)


def play_policy(policy: Policy, players: Players, episodes: int) -> Policy:
    """The policy with its returns, sampling and by the mode, on the same seeds."""

    def totals(by_mode: bool) -> np.ndarray:
        seeds = islice(episode_seeds(0), episodes)
        played = players.play(policy.layers, seeds, by_mode)
        return np.array([episode.total for episode in played])

    sampled, by_mode = totals(by_mode=False), totals(by_mode=True)
    score = normalized(sampled, task(policy.about.task).env_id)
    assert score is not None
    about = replace(
        policy.about,
        return_mean=float(sampled.mean()),
        return_std=float(sampled.std()),
        normalized=float(score.mean()),
        mode_return_mean=float(by_mode.mean()),
        mode_return_std=float(by_mode.std()),
    )
    return replace(policy, about=about)


def returns_seen(
    rows: list[dict[str, Any]], replica: int, steps: Sequence[int]
) -> dict[int, float]:
    """The mean return in training around each of these steps; inf where none ended."""
    mine = [r for r in rows if r["replica"] == replica and r["return"] is not None]
    at = np.array([row["step"] for row in mine])
    value = np.array([row["return"] for row in mine])
    width = max(1, min(np.diff(steps), default=1))
    found = {}
    for step in steps:
        near = np.abs(at - step) <= width
        found[step] = float(value[near].mean()) if near.any() else np.inf
    return found


def stages(steps: Sequence[int], medium: int) -> list[int]:
    """Evenly spaced from the start to medium, and from there to the end."""
    before = [step for step in steps if step <= medium]
    after = [step for step in steps if step >= medium]
    chosen = set()
    for part, many in ((before, TO_MEDIUM), (after, FROM_MEDIUM + 1)):
        places = np.linspace(0, len(part) - 1, many).round().astype(int)
        chosen |= {part[place] for place in places}
    return sorted(chosen)
