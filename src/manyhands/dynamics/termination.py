"""When worlds end: the rules of tasks where they are known.

A rule sees the observation that a step arrives in, in the units of the task. Time-outs
are no ends.
"""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from manyhands.data.trajectories import Trajectories
from manyhands.envs import fork
from manyhands.errors import UserError

Ending = Literal["auto", "learned", "never", "hopper", "walker2d", "ant", "fork"]
Rule = Callable[[Float[Array, "*lead state"]], Bool[Array, "*lead"]]


def never(s: Float[Array, "*lead state"]) -> Bool[Array, "*lead"]:
    return jnp.zeros(s.shape[:-1], bool)


def hopper(s: Float[Array, "*lead state"]) -> Bool[Array, "*lead"]:
    # Comparisons with NaN are false, so it is not healthy either.
    inside = (jnp.abs(s[..., 1:]) < 100).all(axis=-1)
    upright = (s[..., 0] > 0.7) & (jnp.abs(s[..., 1]) < 0.2)
    return ~(inside & jnp.isfinite(s[..., 0]) & upright)


def walker2d(s: Float[Array, "*lead state"]) -> Bool[Array, "*lead"]:
    height, angle = s[..., 0], s[..., 1]
    return ~((height > 0.8) & (height < 2.0) & (jnp.abs(angle) < 1.0))


def ant(s: Float[Array, "*lead state"]) -> Bool[Array, "*lead"]:
    height = s[..., 0]
    return ~(jnp.isfinite(s).all(axis=-1) & (height >= 0.2) & (height <= 1.0))


_fork = jnp.vectorize(
    lambda s: fork.hit_obstacle(s) | fork.reached_goal(s), signature="(s)->()"
)

RULES: dict[str, Rule] = {
    "never": never,
    "hopper": hopper,
    "walker2d": walker2d,
    "ant": ant,
    "fork": _fork,
}
TASKS = {name: name for name in RULES} | {"halfcheetah": "never", "leap": "fork"}


def rule_of(env_id: str | None) -> str | None:
    """The name of the rule for `Hopper-v5` and its likes; None: nobody knows one."""
    task = (env_id or "").rpartition("/")[2].partition("-")[0].lower()
    return TASKS.get(task)


def decide(ending: str, data: Trajectories, env: str | None) -> str:
    """What "auto" means for this data: a rule, "never" or "learned"."""
    if ending == "auto":
        found = rule_of(env) or ("learned" if data.terminals.any() else "never")
    else:
        found = ending
    if found == "learned" and not data.next_known().terminals.any():
        raise UserError(
            "ending: expected a rule, as no observation that the world ended in is in "
            f"{data.name}; choose one of {', '.join(RULES)}"
        )
    return found
