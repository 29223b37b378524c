"""The schedule of a fit: phases of training, and the events between them."""

from typing import NamedTuple

from manyhands.behavior import gaussian, mixture, vae, vq_learning
from manyhands.behavior.options import Options
from manyhands.fleet import Update
from manyhands.training import loop

# The phase with codes has so many parts. Trajectories are assigned after each of them,
# codes merged after some. Before the first merge codes must have become pure: the more
# sources, the more assignments that takes. A merged code has more data to learn from,
# so false divisions are easier to tell after it: look again.
PARTS = 20
MERGES = (8, 10, 12, 14)


class Phase(NamedTuple):
    update: Update
    first: int
    end: int


def interval(options: Options) -> int:
    """Phases and events keep to multiples of it."""
    return loop.interval(options.steps)


def plan(method: str, options: Options) -> list[Phase]:
    if method != "vq":
        module = {"gaussian": gaussian, "vae": vae, "mixture": mixture}[method]
        return [Phase(module.update, 0, options.steps)]
    if options.init == "random":
        return [Phase(vq_learning.update, 0, options.steps)]
    every = interval(options)
    embed = max(1, round(options.embed_share * options.steps / every)) * every
    return [
        Phase(vq_learning.embed, 0, embed),
        Phase(vq_learning.update, embed, options.steps),
    ]


def events(method: str, options: Options, phases: list[Phase]) -> dict[int, str]:
    """What is due after which step."""
    if method != "vq" or options.init == "random":
        return {}
    first, end = phases[-1].first, phases[-1].end
    due = {first: "quantise"}
    every = interval(options)
    for part in range(1, PARTS):
        step = first + round((end - first) * part / PARTS / every) * every
        if first < step < end:
            merges = options.merge and part in MERGES
            due[step] = "merge" if merges or due.get(step) == "merge" else "assign"
    return due
