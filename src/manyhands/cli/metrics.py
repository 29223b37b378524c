"""manyhands export-metrics, and --log of fit and train"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tyro

from manyhands.cli.console import out
from manyhands.runs import Run
from manyhands.training.planned import Planned, announce

Show = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class ExportMetrics:
    """Write the metrics of a run for TensorBoard, Weights & Biases or MLflow."""

    run_directory: tyro.conf.Positional[Path]
    """What `manyhands fit` or `manyhands train` has written."""
    to: str
    """tensorboard, wandb (offline unless WANDB_MODE is set) or mlflow
    (MLFLOW_TRACKING_URI, or a folder in the run)."""

    def run(self) -> None:
        from manyhands.report.sinks import export_metrics

        export_metrics(self.run_directory, self.to)
        words = f"wrote the metrics of {self.run_directory} for {self.to}"
        out.print(words, soft_wrap=True)


class Logged:
    """A progress that also hands new metrics on."""

    def __init__(self, show: Show, update: Callable[[], None]):
        self.show, self.update = show, update

    def begin(self, stage: Planned) -> None:
        announce(self.show, stage)

    def __call__(self, done: int, values: dict[str, float]) -> None:
        self.show(done, values)
        self.update()


@contextmanager
def logged(show: Show, run: Path, names: tuple[str, ...]) -> Iterator[Show]:
    """Progress that hands new metrics on as they come."""
    from manyhands.report.sinks import Follower

    follower = Follower(Run(run), names)
    try:
        yield Logged(show, follower.update)
    finally:
        follower.close()
