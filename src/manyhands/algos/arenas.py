"""Where policies are played: environments that can be made and fit the data."""

import re

from manyhands.data.trajectories import Trajectories
from manyhands.envs.pool import Pool, Spaces
from manyhands.errors import UserError, note

# Data sets were recorded in versions that Gymnasium no longer makes.
EARLIER = re.compile(
    "(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedDoublePendulum|"
    "InvertedPendulum|Pusher|Reacher|Swimmer|Walker2d)-v[23]"
)


def today(env_id: str) -> str:
    """The environment that made a data set, or its version that can still be made."""
    found = EARLIER.fullmatch(env_id)
    if not found:
        return env_id
    note(f"{env_id} is no longer made: policies are evaluated in {found[1]}-v5")
    return f"{found[1]}-v5"


def usable(sets: list[Trajectories], envs: list[str], named: bool) -> bool:
    """Can policies be played there? Asked before anything is learnt or written.

    Args:
        named: by the user, who is told what is wrong; data can be learnt from without
            the environment that made it.
    """
    for data, env in zip(sets, envs):
        try:
            _visit(data, env)
        except UserError as error:
            if named or len(sets) > 1:
                raise UserError(f"{error}; pass --env ID or --episodes 0") from None
            note(f"{error}; policies are not evaluated, --env ID names another")
            return False
    return True


def _visit(data: Trajectories, env: str) -> None:
    with Pool([env], workers=1) as pool:
        check_sizes(env, pool.spaces[0], data.observation_size, data.action_size)


def check_sizes(env: str, space: Spaces, states: int, actions: int) -> None:
    if (space.states, space.actions) != (states, actions):
        raise UserError(
            f"env: expected one with {states} observations and {actions} actions, as "
            f"in the data; {env} has {space.states} and {space.actions}"
        )
