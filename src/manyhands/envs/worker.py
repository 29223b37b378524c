"""A process that steps some environments; see `pool.py` for its other end.

Numbers are exchanged in a file that both map; a byte on standard input says that it is
the worker's turn, a byte on standard output that it has done.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

IDLE, STEP, RESET = range(3)


class Block:
    """The numbers that a pool and its workers exchange: one row per environment."""

    def __init__(self, path: Path, slots: int, states: int, actions: int):
        mapped = np.memmap(path, _row(states, actions), "r+", shape=(slots,))
        rows = np.asarray(mapped)  # a memmap's every slice costs microseconds more
        self.command, self.seed = rows["command"], rows["seed"]
        self.action, self.observation = rows["action"], rows["observation"]
        self.reward = rows["reward"]
        self.terminal, self.timeout = rows["terminal"], rows["timeout"]

    @staticmethod
    def create(path: Path, slots: int, states: int, actions: int) -> "Block":
        path.write_bytes(bytes(slots * _row(states, actions).itemsize))
        return Block(path, slots, states, actions)


def _row(states: int, actions: int) -> np.dtype:
    return np.dtype(
        [
            ("command", np.int64),
            ("seed", np.int64),
            ("action", np.float32, (actions,)),
            ("observation", np.float64, (states,)),
            ("reward", np.float64),
            ("terminal", np.bool_),
            ("timeout", np.bool_),
        ],
        align=True,
    )


def main(ids: Sequence[str], first: int) -> None:
    """Serve these environments, the slots from `first` on."""
    answer = quiet()

    import gymnasium

    try:
        envs = [gymnasium.make(name, disable_env_checker=True) for name in ids]
        about = [describe(env) for env in envs]
    except Exception as error:  # whatever it is, the caller should say it
        os.write(answer, (json.dumps({"error": str(error)}) + "\n").encode())
        return
    os.write(answer, (json.dumps({"spaces": about}) + "\n").encode())
    path, slots, states, actions = json.loads(sys.stdin.readline())
    block = Block(Path(path), slots, states, actions)
    os.write(answer, b".")
    while os.read(0, 1):
        for slot, env in enumerate(envs, first):
            serve(block, slot, env)
        os.write(answer, b".")


def quiet() -> int:
    """Leave Ctrl-C and SIGTERM to the caller, and standard output to our answers.

    Returns where to write them: what libraries print must not get between the bytes.
    """
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


def describe(env) -> dict:
    observation, action = env.observation_space, env.action_space
    for what, space in (("observation", observation), ("action", action)):
        if type(space).__name__ != "Box" or len(space.shape) != 1:
            raise ValueError(f"expected a vector as {what}, got {space}")
    return {
        "states": observation.shape[0],
        "actions": action.shape[0],
        "low": action.low.tolist(),
        "high": action.high.tolist(),
    }


def serve(block: Block, slot: int, env) -> None:
    if block.command[slot] == RESET:
        observation, _ = env.reset(seed=int(block.seed[slot]))
    elif block.command[slot] == STEP:
        action = block.action[slot, : env.action_space.shape[0]].copy()
        observation, reward, terminal, truncated, _ = env.step(action)
        block.reward[slot] = reward
        block.terminal[slot] = terminal
        # A fall in the last step is a fall: time-outs are never terminals.
        block.timeout[slot] = truncated and not terminal
    else:
        return
    block.observation[slot, : len(observation)] = observation


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
