"""A fixed number of steps from every agent, each in its own environment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from manyhands.envs.pool import Pool
from manyhands.envs.rollout import Act


@dataclass(frozen=True)
class Steps:
    """Leading axes: slot, step. Padding is 0."""

    observations: np.ndarray  # [slot, step, S] float32
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    terminals: np.ndarray
    returns: list[list[float]]  # of the episodes that ended, per slot

    def rows(self) -> np.ndarray:
        """[slot, step, column] in the fleet's layout, all of one trajectory."""
        columns = [
            self.observations,
            self.actions,
            self.rewards[..., None],
            self.next_observations,
            self.terminals[..., None],
            np.zeros_like(self.rewards)[..., None],
        ]
        return np.concatenate([c.astype(np.float32) for c in columns], axis=-1)


def collect(pool: Pool, act: Act, seeds: Sequence[Iterator[int]], steps: int) -> Steps:
    """Every slot begins anew and plays until it has its steps; the last episode is cut.

    Args:
        seeds: of the episodes to play, for every slot.
    """
    many, everyone = len(pool), np.arange(len(pool))
    observations = np.zeros((many, steps, pool.states), np.float32)
    following = np.zeros_like(observations)
    actions = np.zeros((many, steps, pool.actions), np.float32)
    rewards, terminals = (np.zeros((many, steps), np.float32) for _ in range(2))
    now = np.zeros((many, pool.states), np.float32)
    done, time, seed = (np.zeros(many, np.int64) for _ in range(3))
    total, returns = np.zeros(many), [[] for _ in everyone]
    fresh = np.ones(many, bool)
    while (done < steps).any():
        begin = everyone[fresh & (done < steps)]
        move = everyone[~fresh & (done < steps)]
        for slot in begin:
            seed[slot], time[slot], total[slot] = next(seeds[slot]), 0, 0.0
        pool.reset(begin, seed[begin])
        at = (move, done[move])
        if len(move):
            # For all slots, so that the call has one shape.
            chosen, _ = act(now, seed, time)
            observations[at], actions[at] = now[move], chosen[move]
            pool.step(move, actions[at])
        block = pool.exchange()
        fresh[begin] = False
        changed = np.concatenate([begin, move])
        now[changed] = block.observation[changed]
        following[at], rewards[at] = now[move], block.reward[move]
        terminals[at] = block.terminal[move]
        total[move] += block.reward[move]
        time[move] += 1
        done[move] += 1
        for slot in move[block.terminal[move] | block.timeout[move]]:
            returns[slot].append(float(total[slot]))
            fresh[slot] = True
    return Steps(observations, actions, rewards, following, terminals, returns)
