"""Where policies are played: environments that can be made and fit the data."""

import re

import numpy as np

from manyhands.data.trajectories import Trajectories
from manyhands.envs.pool import Pool, Spaces
from manyhands.errors import UserError, note
from manyhands.types import Box

NOTABLE = 0.01  # of the width of bounds

# Data sets were recorded in versions that Gymnasium no longer makes.
EARLIER = re.compile(
    "(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedDoublePendulum|"
    "InvertedPendulum|Pusher|Reacher|Swimmer|Walker2d)-v[23]"
)


def today(env_id: str) -> str:
    """The environment that a file names, or its version that can still be made.

    "module:ID" makes Gymnasium import the module. A file may not ask for that; a person
    may, by naming the environment.
    """
    if ":" in env_id:
        raise UserError(
            f"env: the file names {env_id}, but a file may not make us import a "
            f"module; if you trust it, name it yourself (--env {env_id}), or pass "
            "--episodes 0"
        )
    found = EARLIER.fullmatch(env_id)
    if not found:
        return env_id
    note(f"{env_id} is no longer made: policies are evaluated in {found[1]}-v5")
    return f"{found[1]}-v5"


def usable(
    sets: list[Trajectories], envs: list[str], named: bool, scale_actions: bool
) -> bool:
    """Can policies be played there? Asked before anything is learnt or written.

    Args:
        named: by the user, who is told what is wrong; data can be learnt from without
            the environment that made it.
    """
    try:
        spaces = {env: spaces_of(env) for env in dict.fromkeys(envs)}
        for data, env in zip(sets, envs):
            space, low, high = spaces[env], data.action_low, data.action_high
            check_sizes(env, space, data.observation_size, data.action_size)
            check_actions(env, space, low, high, scale_actions)
    except UserError as error:
        if named or len(sets) > 1:
            raise UserError(f"{error}; pass --env ID or --episodes 0") from None
        note(f"{error}; policies are not evaluated, --env ID names another")
        return False
    return True


def spaces_of(env: str) -> Spaces:
    """It is made once, which may be refused."""
    with Pool([env], workers=1) as pool:
        return pool.spaces[0]


def check_sizes(env: str, space: Spaces, states: int, actions: int) -> None:
    if (space.states, space.actions) != (states, actions):
        raise UserError(
            f"env: expected one with {states} observations and {actions} actions, as "
            f"in the data; {env} has {space.states} and {space.actions}"
        )


def check_actions(
    env: str, space: Spaces, low: np.ndarray, high: np.ndarray, scale_actions: bool
) -> None:
    """Say so where the actions of the data are in other units."""
    width = space.high - space.low
    if not np.isfinite(width).all():
        if scale_actions:
            raise UserError(f"scale_actions: expected finite bounds, {env} has none")
        return
    difference = np.maximum(abs(low - space.low), abs(high - space.high))
    apart = difference > NOTABLE * width
    inside = np.all((low >= space.low) & (high <= space.high))
    # Where nobody stated bounds they are the extent of the actions, hardly symmetric.
    extent = inside and not np.array_equal(low, -high)
    if apart.any() and not extent and not scale_actions:
        n = int(np.argmax(apart))
        note(
            f"actions of the data are within {low[n]:g} to {high[n]:g}, those of {env} "
            f"within {space.low[n]:g} to {space.high[n]:g}; --scale-actions stretches "
            "them"
        )


def stretched(actions: np.ndarray, box: Box, space: Spaces) -> np.ndarray:
    """From a box to the environment's; [policy, episode, action], a box each."""
    low, high = (np.asarray(x)[:, None] for x in box)
    return space.low + (actions - low) / (high - low) * (space.high - space.low)
