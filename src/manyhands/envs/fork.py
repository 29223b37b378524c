"""Fork: a point must pass an obstacle on the left or on the right to reach the goal.

The problem in miniature that many hands cause: half of the demonstrators pass on the
left, half on the right, and their average drives into the obstacle. Everything is a
pure function of arrays (`reset`, `step`), made to be vmapped and scanned.

There are two courses. On the fork moves are short, and a clone of the average can steer
clear of the obstacle in the end: whoever is a little left of the middle is among those
who pass on the left. The leap has the same arena, but moves that are so long that the
first one decides.

    observation  (x, y, dx, dy): where the point is, and the way to the goal
    action       (ax, ay) in [-1, 1], the move in units of the longest one
    reward       progress towards the goal, less a price per step; +1 at the goal,
                 -1 for hitting the obstacle, both of which end the episode
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

OBSERVATION_SIZE = 4
ACTION_SIZE = 2
HORIZON = 30

START = (0.0, -0.9)
GOAL = (0.0, 0.85)
GOAL_SPREAD = 0.2  # of x, uniform to both sides
GOAL_RADIUS = 0.15
OBSTACLE, OBSTACLE_RADIUS = (0.0, 0.0), 0.35
WALL = 1.0  # the arena is [-WALL, WALL] in x and y
STEP_PRICE = 0.05


class Course(NamedTuple):
    env_id: str
    longest_move: float
    start_spread: float  # of x, uniform to both sides


FORK = Course("manyhands/Fork-v0", longest_move=0.12, start_spread=0.4)
LEAP = Course("manyhands/Leap-v0", longest_move=0.4, start_spread=0.05)
COURSES = {"fork": FORK, "leap": LEAP}


class State(NamedTuple):
    position: Float[Array, "2"]
    goal: Float[Array, "2"]
    time: Int[Array, ""]


class Step(NamedTuple):
    """What one step gives. `timeout` is never true together with `terminal`."""

    state: State
    reward: Float[Array, ""]
    terminal: Bool[Array, ""]
    timeout: Bool[Array, ""]


def reset(key: PRNGKeyArray, course: Course = FORK) -> State:
    start, goal = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
    return State(
        position=jnp.array([START[0] + course.start_spread * start, START[1]]),
        goal=jnp.array([GOAL[0] + GOAL_SPREAD * goal, GOAL[1]]),
        time=jnp.zeros((), jnp.int32),
    )


def step(state: State, action: Float[Array, "2"], course: Course = FORK) -> Step:
    move = course.longest_move * jnp.clip(action, -1.0, 1.0)
    after = state._replace(
        position=jnp.clip(state.position + move, -WALL, WALL), time=state.time + 1
    )
    hit, there = hit_obstacle(observe(after)), reached_goal(observe(after))
    progress = _distance_to_goal(state) - _distance_to_goal(after)
    reward = progress - STEP_PRICE + there - hit
    terminal = hit | there
    timeout = (after.time >= HORIZON) & ~terminal
    return Step(after, reward, terminal, timeout)


def observe(state: State) -> Float[Array, "4"]:
    return jnp.concatenate([state.position, state.goal - state.position])


def reached_goal(observation: Float[Array, "4"]) -> Bool[Array, ""]:
    return jnp.linalg.norm(observation[2:]) < GOAL_RADIUS


def hit_obstacle(observation: Float[Array, "4"]) -> Bool[Array, ""]:
    return jnp.linalg.norm(observation[:2] - jnp.array(OBSTACLE)) < OBSTACLE_RADIUS


def _distance_to_goal(state: State) -> Float[Array, ""]:
    return jnp.linalg.norm(state.goal - state.position)
