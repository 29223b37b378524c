"""Five demonstrators of the fork problem, each with a way of its own, and their data.

`fork-k` and `leap-k` are the data sets of the first k of them, equal shares of
transitions, with source labels and exact log-probabilities.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from manyhands.data.trajectories import Trajectories
from manyhands.envs import fork
from manyhands.nn.distributions import TanhNormal

EPISODES_TOGETHER = 256  # simulated at once; results do not depend on how many follow


Number = float | Float[Array, "..."]


class Demonstrator(NamedTuple):
    """Steers along an arc from the start around the obstacle to the goal.

    At the share t of the way, the arc is side * width * sin(pi t)^curvature beside the
    straight line: a curvature of 1 is a round arc, a larger one goes straight first and
    turns sharply.
    """

    side: Number  # -1 passes on the left, +1 on the right
    width: Number  # how far out it passes the obstacle
    curvature: Number
    speed: Number  # share of the longest move
    noise: Number  # standard deviation before the tanh


# Fast and tight, slow and wide, late and shaky: the first is the best of them.
DEMONSTRATORS = {
    "left-fast": Demonstrator(-1.0, 0.55, 1.0, 0.92, 0.12),
    "right-steady": Demonstrator(+1.0, 0.66, 1.0, 0.85, 0.12),
    "left-late": Demonstrator(-1.0, 0.56, 2.0, 0.75, 0.25),
    "right-wide": Demonstrator(+1.0, 0.90, 1.0, 0.85, 0.20),
    "left-wide": Demonstrator(-1.0, 0.85, 1.0, 0.90, 0.20),
}
NEAR = 0.2
PULL = 2.0  # how firmly a demonstrator steers back to its arc


def distribution(who: Demonstrator, observation: Float[Array, "4"]) -> TanhNormal:
    """The demonstrator's policy in one state."""
    x, y = observation[0], observation[1]
    goal_x, goal_y = x + observation[2], y + observation[3]
    height = goal_y - fork.START[1]

    def arc(t: Float[Array, ""]) -> Float[Array, ""]:
        bump = jnp.sin(jnp.pi * jnp.clip(t, 1e-3, 1 - 1e-3)) ** who.curvature
        return goal_x * t + who.side * who.width * bump

    t = (y - fork.START[1]) / height
    place, slope = jax.value_and_grad(arc)(t)
    along = jnp.array([slope / height + PULL * (place - x), 1.0])
    # Close to the goal straight to it: an arc missed by a hair would lead past it.
    near = jax.nn.sigmoid((NEAR - jnp.linalg.norm(observation[2:])) / 0.1)
    way = (1 - near) * along / jnp.linalg.norm(along) + near * (
        observation[2:] / jnp.linalg.norm(observation[2:])
    )
    return TanhNormal(
        mean=jnp.arctanh(who.speed * way / jnp.maximum(jnp.linalg.norm(way), 1.0)),
        log_std=jnp.full(2, jnp.log(who.noise)),
        center=jnp.zeros(2),
        scale=jnp.ones(2),
    )


def pooled_mode(
    observation: Float[Array, "4"], crowd: Demonstrator
) -> Float[Array, "2"]:
    """The mean action of all: what one Gaussian for all of them would aim at."""
    modes = jax.vmap(lambda who: distribution(who, observation).mode())(crowd)
    return modes.mean(axis=0)


def stack(names: tuple[str, ...]) -> Demonstrator:
    """Several demonstrators as one, with a leading axis on every field."""
    return Demonstrator(*map(jnp.array, zip(*(DEMONSTRATORS[n] for n in names))))


class Episodes(NamedTuple):
    """Simulated for the whole horizon; rows after the end are not part of it."""

    observations: Float[Array, "episode time 4"]
    actions: Float[Array, "episode time 2"]
    log_probs: Float[Array, "episode time"]
    rewards: Float[Array, "episode time"]
    next_observations: Float[Array, "episode time 4"]
    terminals: Array  # [episode, time] bool
    timeouts: Array  # [episode, time] bool

    def lengths(self) -> np.ndarray:
        return np.argmax(np.asarray(self.terminals | self.timeouts), axis=1) + 1


# observation, key -> action, log-probability
Actor = Callable[[Array, PRNGKeyArray], tuple[Array, Array]]


def rollout(
    act: Actor, key: PRNGKeyArray, episodes: int, course: fork.Course = fork.FORK
) -> Episodes:
    """Run whole episodes side by side."""

    def episode(key: PRNGKeyArray) -> Episodes:
        key_start, key_steps = jax.random.split(key)

        def one(state: fork.State, key: PRNGKeyArray):
            observation = fork.observe(state)
            action, log_prob = act(observation, key)
            after = fork.step(state, action, course)
            row = Episodes(
                observations=observation,
                actions=action,
                log_probs=log_prob,
                rewards=after.reward,
                next_observations=fork.observe(after.state),
                terminals=after.terminal,
                timeouts=after.timeout,
            )
            return after.state, row

        keys = jax.random.split(key_steps, fork.HORIZON)
        return jax.lax.scan(one, fork.reset(key_start, course), keys)[1]

    return jax.vmap(episode)(jax.random.split(key, episodes))


@partial(jax.jit, static_argnames=("episodes", "course"))
def demonstrate(
    who: Demonstrator,
    key: PRNGKeyArray,
    episodes: int,
    course: fork.Course = fork.FORK,
) -> Episodes:
    def act(observation: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        return distribution(who, observation).sample(key)

    return rollout(act, key, episodes, course)


def make(
    name: str,
    transitions: int = 20_000,
    seed: int = 0,
    progress: Callable[[int], None] = lambda done: None,
    takes: dict | None = None,
) -> Trajectories:
    """A data set by name: complete trajectories, at least `transitions` in all.

    Deterministic given the seed; trajectories of the sources are shuffled.
    """
    del takes  # played in no time
    course, k = name.split("-")
    crowd = dict(list(DEMONSTRATORS.items())[: int(k)])
    return record(crowd, name, transitions, seed, progress, fork.COURSES[course])


def record(
    crowd: dict[str, Demonstrator],
    name: str,
    transitions: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
    course: fork.Course = fork.FORK,
) -> Trajectories:
    """The data set of these demonstrators, equal shares of transitions."""
    share = -(-transitions // len(crowd))
    rows: dict[str, list[Any]] = {field: [] for field in Episodes._fields}
    lengths: list[int] = []
    source: list[int] = []
    for index, who in enumerate(crowd.values()):
        key_source = jax.random.fold_in(jax.random.key(seed), index)
        have, batch = 0, 0
        while have < share:
            key = jax.random.fold_in(key_source, batch)
            episodes = demonstrate(who, key, EPISODES_TOGETHER, course)
            steps = episodes.lengths()
            # Whole episodes, until the share is reached.
            keep = int(np.searchsorted(have + np.cumsum(steps), share)) + 1
            steps = steps[:keep]
            inside = np.arange(fork.HORIZON) < steps[:, None]
            for field, values in episodes._asdict().items():
                rows[field].append(np.asarray(values)[:keep][inside])
            lengths += steps.tolist()
            source += [index] * len(steps)
            have, batch = have + int(steps.sum()), batch + 1
            progress(min(have, share) + index * share)
    flat: dict[str, Any] = {
        field: np.concatenate(parts) for field, parts in rows.items()
    }
    data = Trajectories.from_arrays(
        **flat,
        trajectory=np.repeat(np.arange(len(lengths)), lengths),
        source=source,
        source_names=list(crowd),
        env_id=course.env_id,
        name=name,
        copy=False,
    )
    return data.shuffle(seed).renumbered()
