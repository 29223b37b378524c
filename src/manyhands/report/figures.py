"""Pictures: data in, figure out."""

from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from manyhands.data.trajectories import Trajectories
from manyhands.envs import fork as problem
from manyhands.envs import fork_demonstrators as demonstrators
from manyhands.errors import require
from manyhands.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 40  # trajectories a source: enough to see its way, few enough to see each


def save(figure: "Figure", path: Path) -> Path:
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=150, bbox_inches="tight")
    return path


def blank(width: float, height: float) -> "Figure":
    matplotlib = require(
        "matplotlib.figure", extra="report", purpose="drawing pictures"
    )
    return matplotlib.Figure(figsize=(width, height), layout="constrained")


def fork(data: Trajectories) -> "Figure":
    """Each source's trajectories, and what the mean of all demonstrators does."""
    figure = blank(9, 4.6)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    assert data.sources is not None
    for code, name in enumerate(data.source_names):
        for i, m in enumerate(np.flatnonzero(data.sources == code)[:SHOWN]):
            path = _path(data.observations, data.next_observations, data.offsets, m)
            left.plot(
                *path,
                color=f"C{code}",
                alpha=0.35,
                lw=1,
                label=name if i == 0 else None,
            )
    left.legend(loc="upper left", fontsize=8, framealpha=0.9)

    crowd = demonstrators.stack(data.source_names)
    episodes = demonstrators.rollout(
        lambda s, key: (demonstrators.pooled_mode(s, crowd), jnp.zeros(())),
        jax.random.key(0),
        episodes=SHOWN,
    )
    hits = 0
    for m, length in enumerate(episodes.lengths()):
        path = np.concatenate(
            [
                episodes.observations[m, :length, :2],
                episodes.next_observations[m, length - 1 : length, :2],
            ]
        )
        hit = bool(problem.hit_obstacle(episodes.next_observations[m, length - 1]))
        hits += hit
        right.plot(*path.T, color="C3" if hit else "0.5", alpha=0.5, lw=1)
    _scene(left, "what the demonstrators do")
    _scene(right, f"what their mean action does: {hits} of {SHOWN} hit")
    return figure


def _path(
    observations: np.ndarray, following: np.ndarray, offsets: np.ndarray, m: int
) -> np.ndarray:
    start, stop = offsets[m], offsets[m + 1]
    return np.concatenate(
        [observations[start:stop, :2], following[stop - 1 : stop, :2]]
    ).T


def _scene(axes: "Axes", title: str) -> None:
    from matplotlib.patches import Circle

    axes.add_patch(Circle(problem.OBSTACLE, problem.OBSTACLE_RADIUS, color="0.25"))
    width = 2 * (problem.GOAL_SPREAD + problem.GOAL_RADIUS)
    axes.plot(
        [problem.GOAL[0] - width / 2, problem.GOAL[0] + width / 2],
        [problem.GOAL[1]] * 2,
        color="C2",
        lw=6,
        alpha=0.3,
        solid_capstyle="round",
    )
    axes.text(problem.GOAL[0], problem.GOAL[1] + 0.06, "goal", ha="center", fontsize=9)
    axes.text(*problem.OBSTACLE, "obstacle", color="w", ha="center", va="center")
    axes.set(title=title, xlim=(-1, 1), ylim=(-1, 1.05), aspect="equal")
