"""Where the command line writes: tables, progress, one-line errors."""

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

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
from manyhands.training.planned import Planned

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


class UnderWay:
    """The stage that is being trained, and how fast."""

    def __init__(self, what: str, stages: Sequence[Planned]):
        self.what, self.last = what, stages[-1]
        self.begin(stages[0])

    def begin(self, stage: Planned) -> None:
        self.stage, self.since = stage, None

    @property
    def name(self) -> str:
        if self.stage == self.last:
            return self.what
        return f"{self.what}, {self.stage.name} first"

    def at(self, done: int, values: Mapping[str, float]) -> str:
        """Take note of a report; the words to show for it."""
        now = time.monotonic()
        if self.since is None:  # a continued run starts where it stopped
            self.since = now, done
        words = [f"{name} {value:.4g}" for name, value in values.items()]
        began, there = self.since
        if done > there:
            speed = (done - there) / max(1e-9, now - began)
            words.insert(0, f"{speed:.0f} updates/s")
        if done == self.stage.steps:
            words.append("finishing")  # comparing, evaluating, writing
        return ", ".join(words)


class Shown:
    """A progress of training: called with the updates made and values to show."""

    def __init__(
        self,
        under_way: UnderWay,
        show: Callable[[int, str], None],
        begun: Callable[[], None],
    ):
        self.under_way, self.show, self.begun = under_way, show, begun

    def begin(self, stage: Planned) -> None:
        self.under_way.begin(stage)
        self.begun()

    def __call__(self, done: int, values: dict[str, float]) -> None:
        self.show(done, self.under_way.at(done, values))


@contextmanager
def training_progress(what: str, stages: Sequence[Planned]) -> Iterator[Shown]:
    """Like `progress`, with the stage, updates per second and the learner's values.

    Args:
        stages: those that will be trained, in this order.
    """
    under_way = UnderWay(what, stages)
    lines = _bar if err.is_terminal else _plain_lines
    with lines(under_way, stages) as shown:
        yield shown


@contextmanager
def _plain_lines(under_way: UnderWay, stages: Sequence[Planned]) -> Iterator[Shown]:
    del stages
    started = last = time.monotonic()

    def write(words: str) -> None:
        print(f"{under_way.name}: {words}", file=sys.stderr, flush=True)

    def show(done: int, words: str) -> None:
        nonlocal last
        compiling.cancel()
        now, stage = time.monotonic(), under_way.stage
        ended = (
            stage == under_way.last and done == stage.steps and now - started > PATIENCE
        )
        if now - last > PATIENCE or ended:
            last = now
            most = "at most " if stage.at_most else ""
            write(f"{done:,} of {most}{stage.steps:,}" + (words and f", {words}"))

    compiling = threading.Timer(PATIENCE, write, ["compiling"])
    compiling.daemon = True
    compiling.start()
    try:
        yield Shown(under_way, show, lambda: None)
    finally:
        compiling.cancel()


@contextmanager
def _bar(under_way: UnderWay, stages: Sequence[Planned]) -> Iterator[Shown]:
    # Where a terminal is narrow, the last column is cut, not what everybody looks for.
    most = max(len(f"{stage.steps:,}") for stage in stages)
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
        total = under_way.stage.steps
        task = bar.add_task(under_way.name, total=total, shown="compiling")

        def begun() -> None:
            bar.reset(task)  # else it would expect the speed of the last one
            total = under_way.stage.steps
            name = under_way.name
            bar.update(task, description=name, total=total, shown="compiling")

        def show(done: int, words: str) -> None:
            bar.update(task, completed=done, shown=words)

        yield Shown(under_way, show, begun)
