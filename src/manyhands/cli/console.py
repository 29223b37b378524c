"""Where the command line writes: tables, progress, one-line errors."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

PATIENCE = 2.0  # seconds without a sign of life that a person should not have to bear

# Results go to standard output, so that they can be piped; signs of life do not.
# No markup: names and messages may hold brackets.
out = Console(highlight=False, markup=False)
err = Console(stderr=True, highlight=False, markup=False)


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

    def say(done: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > PATIENCE:
            last = now
            line = f"{what}: {done:,} of {total:,}" + (f", {note}" if note else "")
            print(line, file=sys.stderr, flush=True)

    yield say


@contextmanager
def training_progress(
    what: str, steps: int
) -> Iterator[Callable[[int, dict[str, float]], None]]:
    """Like `progress`, with updates per second and what the learner has to show."""
    started, first = time.monotonic(), 0
    shown = ""

    def describe(done: int, values: dict[str, float]) -> str:
        nonlocal first
        first = first or done  # a continued run starts where it stopped
        rate = (done - first) / max(1e-9, time.monotonic() - started)
        words = [f"{name} {value:.4g}" for name, value in values.items()]
        return ", ".join([*words, f"{rate:.0f} updates/s"])

    if not err.is_terminal:
        with progress(what, steps) as say:

            def plain(done: int, values: dict[str, float]) -> None:
                say(done, describe(done, values))

            yield plain
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}"),
        console=err,
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=steps, shown=shown)

        def show(done: int, values: dict[str, float]) -> None:
            bar.update(task, completed=done, shown=describe(done, values))

        yield show
