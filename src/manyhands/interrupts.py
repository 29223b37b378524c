"""Ctrl-C and SIGTERM, politely."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """For what only starts others and waits for them."""

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stop_politely() -> Iterator[Callable[[], bool]]:
    """Ctrl-C waits for the end of the chunk; a second one does not. SIGTERM, by which
    schedulers of clusters take a machine back, waits as often as it comes."""
    asked = False

    def ask(signum: int, frame: Any) -> None:
        nonlocal asked
        if asked and signum == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    before = {}
    try:
        for one in (signal.SIGINT, signal.SIGTERM):
            before[one] = signal.signal(one, ask)
    except ValueError:  # not in the main thread: signals are not ours to handle
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
