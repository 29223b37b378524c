"""When what happens in a fit: stages of training, and what is due between them."""

from typing import NamedTuple

from manyhands.behavior import gaussian, vae, vq
from manyhands.behavior.options import Options
from manyhands.fleet import Update


class Stage(NamedTuple):
    update: Update
    first: int
    end: int


def interval(options: Options) -> int:
    """Steps between log lines; stages and events keep to multiples of it."""
    return max(1, min(1000, options.steps // 40))


def plan(method: str, options: Options) -> list[Stage]:
    if method != "vq":
        update = {"gaussian": gaussian.update, "vae": vae.update}[method]
        return [Stage(update, 0, options.steps)]
    if options.init == "random":
        return [Stage(vq.update, 0, options.steps)]
    every = interval(options)
    embed = max(1, round(options.embed_share * options.steps / every)) * every
    return [Stage(vq.embed, 0, embed), Stage(vq.update, embed, options.steps)]


def events(method: str, options: Options, stages: list[Stage]) -> dict[int, str]:
    """What is due after which step."""
    if method != "vq" or options.init == "random":
        return {}
    first, end = stages[-1].first, stages[-1].end
    due = {first: "quantise"}
    for tenth in range(1, 10):
        merges = options.merge and tenth in (4, 7)
        every = interval(options)
        step = first + round((end - first) * tenth / 10 / every) * every
        if first < step < end:
            due[step] = "merge" if merges else "assign"
    return due
