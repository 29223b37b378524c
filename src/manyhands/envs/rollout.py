"""Whole episodes of a policy, many at a time.

All slots of a pool take their actions from one call of the policy, whatever the number
of processes behind them, and all randomness of an episode comes from its own seed: the
same episodes come out of any number of processes.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from manyhands.envs.pool import Pool
from manyhands.errors import UserError

TOGETHER = 32  # episodes side by side: enough to make a call of the policy cheap

# observations [N, S], seeds [N], times [N] -> actions [N, A], log-probabilities [N]
# (NaN where there are none). Seeds and times name the noise: the same ones always give
# the same.
Act = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Episode:
    seed: int
    observations: np.ndarray  # [T + 1, S] float32
    actions: np.ndarray  # [T, A] float32
    rewards: np.ndarray  # [T] float32
    log_probs: np.ndarray  # [T] float32
    terminal: bool
    timeout: bool  # neither: cut off

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def total(self) -> float:
        """The return."""
        return float(self.rewards.sum(dtype=np.float64))


def episode_seeds(*path: int) -> Iterator[int]:
    """Independent seeds for as many episodes as anybody wants."""
    for number in itertools.count():
        yield int(np.random.SeedSequence([*path, number]).generate_state(1)[0] >> 1)


def returns(
    act: Act, env_id: str, episodes: int, seed: int = 0, workers: int | None = None
) -> np.ndarray:
    """Returns of some episodes, in the order of their seeds."""
    if episodes < 1:
        raise UserError(f"episodes: expected at least 1, got {episodes}")
    seeds = itertools.islice(episode_seeds(seed), episodes)
    with Pool([env_id] * min(episodes, TOGETHER), workers) as pool:
        return np.array([episode.total for episode in play(pool, act, seeds)])


def play(
    pool: Pool, act: Act, seeds: Iterable[int], most_steps: int | None = None
) -> Iterator[Episode]:
    """One episode for each seed, in their order; seeds may go on without end.

    Args:
        most_steps: cut an episode off after so many.
    """
    seeds, slots = iter(seeds), np.arange(len(pool))
    desk = _Desk(pool)
    waiting: dict[int, Episode] = {}  # finished before an earlier one
    number, next_out = np.full(len(pool), -1), 0  # episodes by their place in line
    started = 0
    while True:
        for slot in np.flatnonzero(number < 0).tolist():
            seed = next(seeds, None)
            if seed is None:
                break
            number[slot], started = started, started + 1
            desk.begin(slot, seed)
        playing = slots[number >= 0]
        if not len(playing):
            return
        for slot in desk.advance(playing, act, most_steps).tolist():
            waiting[int(number[slot])] = desk.take(slot)
            number[slot] = -1
        while next_out in waiting:
            yield waiting.pop(next_out)
            next_out += 1


class _Desk:
    """What has been seen so far of the episodes being played, by slot."""

    def __init__(self, pool: Pool):
        self.pool, many = pool, len(pool)
        self.time, self.seed = np.zeros(many, np.int64), np.zeros(many, np.int64)
        self.fresh = np.zeros(many, bool)  # to be reset in the next exchange
        self.ended = np.zeros((many, 2), bool)  # terminal, timeout
        room = 64
        self.observations = np.zeros((many, room, pool.states), np.float32)
        self.actions = np.zeros((many, room, pool.actions), np.float32)
        self.rewards = np.zeros((many, room), np.float32)
        self.log_probs = np.zeros((many, room), np.float32)

    def begin(self, slot: int, seed: int) -> None:
        self.time[slot], self.seed[slot] = 0, seed
        self.fresh[slot] = True

    def advance(
        self, playing: np.ndarray, act: Act, most_steps: int | None
    ) -> np.ndarray:
        """A reset or a step for every slot that plays; returns those that ended."""
        fresh = playing[self.fresh[playing]]
        moving = playing[~self.fresh[playing]]
        if len(fresh):
            self.pool.reset(fresh, self.seed[fresh])
        if len(moving):
            # For all slots, so that the call has one shape.
            now = self.observations[np.arange(len(self.time)), self.time]
            actions, log_probs = act(now, self.seed, self.time)
            at = (moving, self.time[moving])
            self.actions[at] = np.asarray(actions)[moving]
            self.log_probs[at] = np.asarray(log_probs)[moving]
            self.pool.step(moving, self.actions[at])
        block = self.pool.exchange()
        self.fresh[fresh] = False
        self.observations[fresh, 0] = block.observation[fresh]
        if not len(moving):
            return moving
        self.rewards[moving, self.time[moving]] = block.reward[moving]
        self.time[moving] += 1
        self._make_room()
        self.observations[moving, self.time[moving]] = block.observation[moving]
        self.ended[moving, 0] = block.terminal[moving]
        self.ended[moving, 1] = block.timeout[moving]
        over = self.ended[moving].any(axis=1)
        if most_steps is not None:
            over |= self.time[moving] >= most_steps
        return moving[over]

    def take(self, slot: int) -> Episode:
        steps, space = self.time[slot], self.pool.spaces[slot]
        self.time[slot] = 0
        return Episode(
            seed=int(self.seed[slot]),
            observations=self.observations[slot, : steps + 1, : space.states].copy(),
            actions=self.actions[slot, :steps, : space.actions].copy(),
            rewards=self.rewards[slot, :steps].copy(),
            log_probs=self.log_probs[slot, :steps].copy(),
            terminal=bool(self.ended[slot, 0]),
            timeout=bool(self.ended[slot, 1]),
        )

    def _make_room(self) -> None:
        room = self.rewards.shape[1]
        if self.time.max() + 1 < room:
            return
        for name in ("observations", "actions", "rewards", "log_probs"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)], axis=1))
