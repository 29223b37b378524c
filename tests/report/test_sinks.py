"""metrics.jsonl in TensorBoard's, Weights & Biases' and MLflow's own files."""

import numpy as np
import pytest

from manyhands import UserError
from manyhands.cli import main
from manyhands.report.sinks import Follower
from manyhands.runs import Run

ROWS = [
    {"step": step, "replica": r, "seed": r, "a/loss": step + 0.5 * r, "none": None}
    for step in (0, 10, 20)
    for r in (0, 1)
]


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = Run(tmp_path / "run")
    run.write_json("config.json", {"algo": "bc", "options": [{"steps": 20}]})
    run.append_metrics(ROWS)
    return run


def test_tensorboard(run, scalars, capsys):
    pytest.importorskip("tensorboardX")
    for _ in range(2):  # twice is as good as once
        words = ["export-metrics", str(run.path), "--to", "tensorboard"]
        assert main.run(words) == 0
    assert "for tensorboard" in capsys.readouterr().out
    for r in (0, 1):
        found = scalars(run.path / "tensorboard" / f"replica-{r}")
        assert found == [("a/loss", step, step + 0.5 * r) for step in (0, 10, 20)]


def test_mlflow(run):
    mlflow = pytest.importorskip("mlflow")
    assert main.run(["export-metrics", str(run.path), "--to", "mlflow"]) == 0
    client = mlflow.MlflowClient(tracking_uri=(run.path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("manyhands")
    found = {
        one.info.run_name: one for one in client.search_runs([experiment.experiment_id])
    }
    assert set(found) == {"run-0", "run-1"}
    for r in (0, 1):
        one = found[f"run-{r}"]
        assert one.data.params == {"algo": "bc"}
        history = client.get_metric_history(one.info.run_id, "a/loss")
        points = [(point.step, point.value) for point in history]
        assert points == [(step, step + 0.5 * r) for step in (0, 10, 20)]


@pytest.mark.filterwarnings("ignore")  # of its own, about sockets it left open
def test_wandb_offline(run):
    pytest.importorskip("wandb")
    assert main.run(["export-metrics", str(run.path), "--to", "wandb"]) == 0
    folders = sorted((run.path / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    assert all(list(folder.glob("*.wandb")) for folder in folders)
    assert b"a/loss" in next(folders[0].glob("*.wandb")).read_bytes()


def test_lines_are_handed_on_once_as_they_come(run, scalars):
    pytest.importorskip("tensorboardX")
    follower = Follower(run, ["tensorboard"])
    follower.update()
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 30, "replica": 0, "a/loss"')  # not yet a line
    follower.update()
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(": 30.0}\n")
    # As after an interruption: the last two lines were taken back, and come again.
    lines = (run.path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run.path / "metrics.jsonl").write_text("".join(lines[:-2]))
    follower.update()
    (run.path / "metrics.jsonl").write_text("".join(lines))
    follower.close()
    found = scalars(run.path / "tensorboard" / "replica-0")
    np.testing.assert_equal([step for _, step, _ in found], [0, 10, 20, 30])


def test_errors(run, tmp_path):
    with pytest.raises(
        UserError, match="log: expected one of tensorboard, wandb, mlflow"
    ):
        Follower(run, ["excel"])
    assert main.run(["export-metrics", str(tmp_path), "--to", "tensorboard"]) == 1
