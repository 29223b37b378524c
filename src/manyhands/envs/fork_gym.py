"""The fork problem as Gymnasium environments, `manyhands/Fork-v0` and `Leap-v0`."""

from typing import Any

import gymnasium
import jax
import numpy as np

from manyhands.envs import fork

_reset = jax.jit(fork.reset, static_argnames="course")
_step = jax.jit(fork.step, static_argnames="course")
_observe = jax.jit(fork.observe)


class ForkEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """See `manyhands.envs.fork`. `info["outcome"]` is set at the end of an episode."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012, gymnasium's type
    observation_space = gymnasium.spaces.Box(
        # Beyond the walls the way to the goal can be as long as the arena is wide.
        np.array([-1, -1, -2, -2], np.float32) * fork.WALL,
        np.array([1, 1, 2, 2], np.float32) * fork.WALL,
    )
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (fork.ACTION_SIZE,), np.float32)
    _state: fork.State

    def __init__(self, course: str = "fork"):
        self._course = fork.COURSES[course]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        key = jax.random.key(int(self.np_random.integers(2**31)))
        self._state = _reset(key, course=self._course)
        return np.asarray(_observe(self._state)), {}

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        after = _step(self._state, np.asarray(action, np.float32), course=self._course)
        self._state = after.state
        observation = np.asarray(_observe(after.state))
        terminal, timeout = bool(after.terminal), bool(after.timeout)
        info = {}
        if terminal or timeout:
            hit = bool(fork.hit_obstacle(fork.observe(after.state)))
            info["outcome"] = "timeout" if timeout else "hit" if hit else "goal"
        return observation, float(after.reward), terminal, timeout, info
