"""Evaluations beside the training, which waits for none of them before its end."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from manyhands.algos.evaluate import Evaluation
from manyhands.training.loop import interval
from manyhands.types import Pytree

# models of all replicas -> an evaluation of each
Look = Callable[[Pytree], list[Evaluation]]


class Watch(NamedTuple):
    """When to evaluate along the way, and how."""

    look: Look
    every: int  # updates; a multiple of the interval between log lines

    @staticmethod
    def of(look: Look, evaluations: int, steps: int) -> "Watch":
        """As many along so many updates."""
        lines = -(-steps // (evaluations * interval(steps)))
        return Watch(look, max(1, lines) * interval(steps))


class Waiting(NamedTuple):
    step: int
    models: Pytree
    found: Future[list[Evaluation]]


class Queue:
    """Models to look at, one after another, in a thread beside the training.

    Models stay here until what was found is taken, so that a checkpoint holds all whose
    evaluation an interruption would lose.
    """

    def __init__(self, look: Look):
        self.look = look
        self.waiting: deque[Waiting] = deque()
        self.aside = ThreadPoolExecutor(1)

    def add(self, step: int, models: Pytree) -> None:
        found = self.aside.submit(self.look, models)
        self.waiting.append(Waiting(step, models, found))

    def done(self) -> Iterator[tuple[int, list[Evaluation]]]:
        """Take what was found by now, with the step it belongs to."""
        while self.waiting and self.waiting[0].found.done():
            found = self.waiting[0].found.result()
            yield self.waiting.popleft().step, found

    def wait(self, seconds: float) -> None:
        """Until the next one has ended, but no longer than this."""
        wait([self.waiting[0].found], timeout=seconds)

    def close(self) -> None:
        # After an error only the one that has begun is waited for.
        self.aside.shutdown(cancel_futures=True)
