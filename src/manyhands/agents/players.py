"""Processes that play stored policies, each an episode of its own.

`envs/rollout.py` plays any policy, all episodes in step with each other. Stored
policies are small enough to act in the process that steps the environment, so no
episode waits for another.
"""

import json
from collections.abc import Generator, Iterable
from itertools import count, islice
from pathlib import Path

from manyhands.agents import player
from manyhands.agents.acting import Layers
from manyhands.agents.player import Job
from manyhands.envs.processes import Processes, how_many
from manyhands.envs.rollout import Episode
from manyhands.errors import require

STEPS = 500  # of a job, about: short episodes are played several at a time
MOST = 64  # episodes of a job


class Players:
    """Processes for one environment. Use as a context manager."""

    def __init__(self, env_id: str, workers: int | None = None):
        require("gymnasium", extra="mujoco", purpose="an environment")
        self._processes = Processes("manyhands.agents.player")
        for _ in range(how_many(workers)):
            self._processes.start([env_id])
        self._policies = count()

    def play(
        self, layers: Layers | None, seeds: Iterable[int], by_mode: bool = False
    ) -> Generator[Episode]:
        """One episode for each seed, in their order; seeds may go on without end.

        Args:
            layers: of the policy; uniform actions if None.
        """
        policy = ""
        if layers is not None:
            path = self._processes.folder / f"policy-{next(self._policies)}"
            player.write_layers(path, layers)
            policy = str(path)
        seeds = iter(seeds)
        busy: dict[int, int] = {}  # process: number of its job
        waiting: dict[int, list[Episode]] = {}  # finished before an earlier one
        started = next_out = 0
        steps, played = 0, 0
        try:
            while True:
                for number in range(len(self._processes)):
                    if number in busy:
                        continue
                    many = min(MOST, STEPS * played // steps + 1) if steps else 1
                    if not (some := list(islice(seeds, many))):
                        break
                    job = Job(policy, by_mode, some, self._result(number))
                    self._processes.tell_one(number, json.dumps(job).encode())
                    busy[number], started = started, started + 1
                if not busy:
                    return
                number, episodes = self._next_result()
                waiting[busy.pop(number)] = episodes
                steps += sum(len(episode) for episode in episodes)
                played += len(episodes)
                while next_out in waiting:
                    yield from waiting.pop(next_out)
                    next_out += 1
        finally:
            for _ in busy:  # jobs under way when the caller stops: read and dropped
                self._next_result()

    def _result(self, number: int) -> str:
        return str(self._processes.folder / f"episodes-{number}")

    def _next_result(self) -> tuple[int, list[Episode]]:
        number = self._processes.hear_one()
        return number, player.read(Path(self._result(number)))

    def __enter__(self) -> "Players":
        return self

    def __exit__(self, *error: object) -> None:
        self._processes.close()
