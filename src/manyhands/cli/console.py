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
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
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
