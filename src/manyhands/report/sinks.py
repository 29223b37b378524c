"""metrics.jsonl for other programs: TensorBoard, Weights & Biases, MLflow.

A sink takes rows as they are in metrics.jsonl. Nothing of it is known to the learners:
`Follower` reads the file they write.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from manyhands.errors import UserError, require
from manyhands.runs import Run

Row = dict[str, Any]
NOT_METRICS = ("step", "replica", "seed")


PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


def package(name: str) -> Any:
    """What a sink needs, or an error that says how to get it."""
    return require(PACKAGES[name], extra=name, purpose=f"logging to {name}")


class Sink(Protocol):
    def log(self, replica: int, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """RUN/tensorboard/replica-N, made anew: metrics.jsonl holds all there is."""

    def __init__(self, run: Path, config: dict[str, Any]):
        self.folder = run / "tensorboard"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.new: Callable[..., Any] = package("tensorboard").SummaryWriter
        self.writers: dict[int, Any] = {}

    def log(self, replica: int, step: int, values: dict[str, float]) -> None:
        if replica not in self.writers:
            self.writers[replica] = self.new(str(self.folder / f"replica-{replica}"))
        for name, value in values.items():
            self.writers[replica].add_scalar(name, value, step)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


class WeightsAndBiases:
    """RUN/wandb, offline unless WANDB_MODE says otherwise; `wandb sync` sends it."""

    def __init__(self, run: Path, config: dict[str, Any]):
        self.wandb = package("wandb")
        self.run, self.config = run, config
        self.runs: dict[int, Any] = {}

    def log(self, replica: int, step: int, values: dict[str, float]) -> None:
        if replica not in self.runs:
            self.runs[replica] = self.wandb.init(
                project="manyhands",
                group=self.run.name,
                name=f"{self.run.name}-{replica}",
                config=self.config | {"replica": replica},
                dir=str(self.run),
                mode=os.environ.get("WANDB_MODE", "offline"),
                reinit="create_new",
                settings=self.wandb.Settings(silent=True),
            )
        self.runs[replica].log(values, step=step)

    def close(self) -> None:
        for one in self.runs.values():
            one.finish()


class MLflow:
    """Where MLFLOW_TRACKING_URI says, or RUN/mlruns."""

    def __init__(self, run: Path, config: dict[str, Any]):
        self.mlflow = package("mlflow")
        where = os.environ.get("MLFLOW_TRACKING_URI")
        if where is None:
            # It warns against folders as a store for teams; for one run it will do.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            where = (run.resolve() / "mlruns").as_uri()
        self.client = self.mlflow.MlflowClient(tracking_uri=where)
        known = self.client.get_experiment_by_name("manyhands")
        self.experiment = (
            known.experiment_id if known else self.client.create_experiment("manyhands")
        )
        self.run, self.config = run, config
        self.runs: dict[int, str] = {}

    def log(self, replica: int, step: int, values: dict[str, float]) -> None:
        if replica not in self.runs:
            name = f"{self.run.name}-{replica}"
            one = self.client.create_run(self.experiment, run_name=name)
            self.runs[replica] = one.info.run_id
            for key in ("method", "algo", "preset"):
                if key in self.config:
                    self.client.log_param(one.info.run_id, key, self.config[key])
        now = int(time.time() * 1000)
        metric = self.mlflow.entities.Metric
        points = [metric(name, value, now, step) for name, value in values.items()]
        self.client.log_batch(self.runs[replica], metrics=points)

    def close(self) -> None:
        for one in self.runs.values():
            self.client.set_terminated(one)


SINKS: dict[str, Callable[[Path, dict[str, Any]], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}


class Follower:
    """Hands on what is new in a run's metrics.jsonl, whenever it is asked to."""

    def __init__(self, run: Run, names: Iterable[str]):
        self.run, self.names = run, list(names)
        for name in self.names:
            if name not in SINKS:
                raise UserError(f"log: expected one of {', '.join(SINKS)}, got {name}")
            package(name)  # complain before any work is done
        self.sinks: list[Sink] = []
        # Lines: a run that goes on after an interruption may take some back first.
        self.seen: set[bytes] = set()

    def update(self) -> None:
        path = self.run.path / "metrics.jsonl"
        if not self.names or not path.exists():
            return
        if not self.sinks:
            config = self.run.read_json("config.json")
            self.sinks = [SINKS[name](self.run.path, config) for name in self.names]
        *whole, _ = path.read_bytes().split(b"\n")  # the last may not be complete
        for line in whole:
            if line not in self.seen:
                self.seen.add(line)
                self._hand_on(json.loads(line))

    def _hand_on(self, row: Row) -> None:
        values = {
            name: float(value)
            for name, value in row.items()
            if name not in NOT_METRICS and isinstance(value, int | float)
        }
        for sink in self.sinks:
            sink.log(row["replica"], row["step"], values)

    def close(self) -> None:
        self.update()
        for sink in self.sinks:
            sink.close()


def export_metrics(run: str | Path, to: str) -> None:
    """Write the metrics of a run for another program: one of `SINKS`."""
    follower = Follower(Run(run), [to])
    if not (follower.run.path / "metrics.jsonl").exists():
        raise UserError(f"{run}: expected a run directory with metrics.jsonl in it")
    follower.close()
