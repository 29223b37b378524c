"""Processes that play the zoo's policies, each an episode of its own.

`envs/rollout.py` plays any policy, all episodes in step with each other; these policies
are small enough to be computed where the environment is, and nobody waits.
"""

import json
from collections.abc import Generator, Iterable
from itertools import count, islice
from pathlib import Path

from manyhands.envs.processes import Processes, how_many
from manyhands.envs.rollout import Episode
from manyhands.errors import require
from manyhands.zoo import player
from manyhands.zoo.acting import Layers
from manyhands.zoo.player import Errand

STEPS = 500  # of an errand, more or less: short episodes go several at a time
MOST = 64  # episodes of an errand


class Players:
    """Processes for one environment. Use as a context manager."""

    def __init__(self, env_id: str, workers: int | None = None):
        require("gymnasium", extra="mujoco", purpose="an environment")
        self._processes = Processes("manyhands.zoo.player")
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
        busy: dict[int, int] = {}  # process: number of its errand
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
                    errand = Errand(policy, by_mode, some, self._answer(number))
                    self._processes.tell_one(number, json.dumps(errand).encode())
                    busy[number], started = started, started + 1
                if not busy:
                    return
                number, episodes = self._hear()
                waiting[busy.pop(number)] = episodes
                steps += sum(len(episode) for episode in episodes)
                played += len(episodes)
                while next_out in waiting:
                    yield from waiting.pop(next_out)
                    next_out += 1
        finally:
            for _ in busy:  # nobody wants to know
                self._hear()

    def _answer(self, number: int) -> str:
        return str(self._processes.folder / f"episodes-{number}")

    def _hear(self) -> tuple[int, list[Episode]]:
        number = self._processes.hear_one()
        return number, player.read(Path(self._answer(number)))

    def __enter__(self) -> "Players":
        return self

    def __exit__(self, *error: object) -> None:
        self._processes.close()
