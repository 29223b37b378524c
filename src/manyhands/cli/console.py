"""Where the command line writes: tables, progress, one-line errors."""

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from manyhands.errors import UserNote

PATIENCE = 2.0  # seconds without a sign of life that a person should not have to bear

# Results go to standard output, so that they can be piped; signs of life do not.
# No markup: names and messages may hold brackets.
out = Console(highlight=False, markup=False)
err = Console(stderr=True, highlight=False, markup=False)


@contextmanager
def notes() -> Iterator[None]:
    """Print notes as one line each, and none twice; other warnings, as ever."""
    usual, said = warnings.showwarning, set()

    def show(message, category, *where, **more) -> None:
        text = str(message)
        if not issubclass(category, UserNote):
            usual(message, category, *where, **more)
        elif text not in said:
            said.add(text)
            err.print(Text.assemble(("note: ", "yellow"), text), soft_wrap=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserNote)
        warnings.showwarning = show
        yield


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Yield a function to tell how much is done; shown once it takes a while.

    A bar on a terminal, otherwise a plain line every few seconds.
    """
    started = time.monotonic()
    if err.is_terminal:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        with bar:
            task = bar.add_task(what, total=total, visible=False)

            def show(done: int) -> None:
                late = time.monotonic() - started > PATIENCE
                bar.update(task, completed=done, visible=late)

            yield show
        return

    last = started

    def say(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > PATIENCE:
            last = now
            print(f"{what}: {done:,} of {total:,}", file=sys.stderr, flush=True)

    yield say


class First(NamedTuple):
    """What is fitted before a policy learns."""

    name: str
    steps: int
    at_most: bool = False  # it may end earlier


class Stages:
    """Which of a learner's stages is under way, and how fast it is.

    What a policy needs is fitted first and counts its own updates: a new stage is one
    whose count falls back, or one that was foretold and has other things to show.
    """

    def __init__(self, what: str, steps: int, before: Sequence[First]):
        self.coming = [one._replace(name=f"{what}, {one.name} first") for one in before]
        self.coming.append(First(what, steps))
        self.what, self.steps, self.at_most = self.coming.pop(0)
        self.names: set[str] | None = None  # of what it shows; None: nothing yet

    def at(self, done: int, values: Mapping[str, float]) -> str:
        """Take note of a report, and say what there is to show."""
        now, names = time.monotonic(), set(values)
        self.new = self.names is None
        if not self.new and (done < self.last or (self.coming and names != self.names)):
            self.new = True
            if self.coming:
                self.what, self.steps, self.at_most = self.coming.pop(0)
        if self.new:  # compiling is over, and a continued run starts where it stopped
            self.since = now, done
        self.names, self.last = names, done
        words = [f"{name} {value:.4g}" for name, value in values.items()]
        began, there = self.since
        if done > there:
            speed = (done - there) / max(1e-9, now - began)
            words.insert(0, f"{speed:.0f} updates/s")
        if done == self.steps:
            words.append("finishing")  # comparing, evaluating, writing
        return ", ".join(words)


@contextmanager
def training_progress(
    what: str, steps: int, before: Sequence[First] = ()
) -> Iterator[Callable[[int, dict[str, float]], None]]:
    """Like `progress`, with updates per second and what the learner has to show.

    Args:
        before: what is fitted first, in this order.
    """
    stages = Stages(what, steps, before)
    if not err.is_terminal:
        started = last = time.monotonic()

        def say(words: str) -> None:
            print(f"{stages.what}: {words}", file=sys.stderr, flush=True)

        def plain(done: int, values: dict[str, float]) -> None:
            nonlocal last
            compiling.cancel()
            shown = stages.at(done, values)
            now = time.monotonic()
            ended = done == stages.steps and now - started > PATIENCE
            if now - last > PATIENCE or ended:
                last = now
                most = "at most " if stages.at_most else ""
                say(f"{done:,} of {most}{stages.steps:,}" + (shown and f", {shown}"))

        compiling = threading.Timer(PATIENCE, say, ["compiling"])
        compiling.daemon = True
        compiling.start()
        try:
            yield plain
        finally:
            compiling.cancel()
        return
    # Where a terminal is narrow, the last column is cut, not what everybody looks for.
    most = max(len(f"{many:,}") for many in (steps, *(one.steps for one in before)))
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20, table_column=Column(min_width=12)),
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=2 * most)),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn(
            "{task.fields[shown]}",
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        ),
        console=err,
        transient=True,
    )
    with bar:
        task = bar.add_task(stages.what, total=stages.steps, shown="compiling")

        def show(done: int, values: dict[str, float]) -> None:
            shown = stages.at(done, values)
            if stages.new:
                bar.reset(task)  # else it would expect the speed of the last one
            bar.update(
                task,
                description=stages.what,
                total=stages.steps,
                completed=done,
                shown=shown,
            )

        yield show
