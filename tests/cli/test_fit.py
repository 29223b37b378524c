"""manyhands fit: what it prints and what it leaves behind."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from manyhands import Behavior, Trajectories, load
from manyhands.cli import main

FIT = "--steps 80 --policy-width 32 --policy-rate 1e-3".split()
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Data, a run with several seeds and K, and one of a single replica."""
    here = tmp_path_factory.mktemp("fit")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for words in (
            "data make fork-2 --out data.npz --transitions 1000".split(),
            ["fit", "data.npz", "--out", "one", "--k", "2", *FIT],
            "fit data.npz --out many --seeds 0 1 --k 2 auto".split() + FIT,
        ):
            assert main.run(words) == 0
    return here


@pytest.fixture(scope="module")
def data(folder) -> Trajectories:
    return load(folder / "data.npz")


def read_json(path: Path):
    return json.loads(path.read_text())


def metrics(run: Path) -> list[dict]:
    return [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]


def names(run: Path) -> set[str]:
    return {str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()}


ONE = {"model.safetensors", "behavior.json", "assignments.csv", "embeddings.npz"}
TOP = {"config.json", "metrics.jsonl", "summary.json"}
FIGURES = {f"figures/{name}.png" for name in ("embeddings", "training", "k")}


def test_a_run_leaves_these_files_and_no_others(folder):
    assert names(folder / "one") == ONE | TOP | FIGURES
    assert not (folder / "one" / "checkpoints").exists()
    for name in FIGURES:
        assert (folder / "one" / name).read_bytes()[:4] == PNG


def test_several_replicas_leave_a_folder_each(folder):
    run = folder / "many"
    parts = {f"replica-{r}/{name}" for r in range(4) for name in ONE}
    assert names(run) >= ONE | TOP | FIGURES | parts


def test_config(folder, data):
    config = read_json(folder / "one" / "config.json")
    assert config["method"] == "vq"
    assert config["k"] == [2]
    assert config["seeds"] == [0]
    assert config["options"]["steps"] == 80
    assert config["options"]["policy_width"] == 32
    assert config["options"]["batch_size"] == 256  # defaults are written out
    assert config["data"]["fingerprint"] == data.fingerprint
    environment = config["environment"]
    assert environment["device"].startswith("cpu")
    assert environment["packages"]["jax"]
    assert environment["manyhands"]


def test_summary_of_one(folder, data):
    summary = read_json(folder / "one" / "summary.json")
    assert summary["data"]["transitions"] == data.transitions
    assert summary["data"]["trajectories"] == len(data)
    assert summary["data"]["sources"] == 2
    about = summary["behavior"]
    assert (about["method"], about["k"]) == ("vq", 2)
    for key in (
        "codes_used",
        "heldout_log_prob",
        "single_gaussian_heldout_log_prob",
        "ari",
        "nmi",
        "purity",
    ):
        assert isinstance(about[key], int | float), key
    assert set(summary["timing"]) == {
        "updates",
        "seconds",
        "updates_per_second",
        "compile_seconds",
        "device",
    }
    assert "replicas" not in summary


def test_summary_of_several(folder):
    summary = read_json(folder / "many" / "summary.json")
    replicas = summary["replicas"]
    pairs = [(replica["k"], replica["seed"]) for replica in replicas]
    assert pairs == [(2, 0), (2, 1), ("auto", 0), ("auto", 1)]
    for key in ("heldout_log_prob", "ari", "nmi", "purity"):
        values = [replica[key] for replica in replicas]
        assert summary["mean"][key] == pytest.approx(np.mean(values))
        assert summary["std"][key] == pytest.approx(np.std(values))
    # At the top stands the one that did best on held-out steps.
    best = max(replicas, key=lambda replica: replica["heldout_log_prob"])
    assert summary["behavior"] == best
    r = replicas.index(best)
    top, its_own = (
        (folder / "many" / part / "model.safetensors").read_bytes()
        for part in (".", f"replica-{r}")
    )
    assert top == its_own


def test_metrics_have_a_row_for_every_interval_and_replica(folder):
    rows = metrics(folder / "one")
    assert [row["step"] for row in rows] == list(range(2, 81, 2))
    assert {row["replica"] for row in rows} == {0}
    assert all(np.isfinite(row["heldout_log_prob"]) for row in rows)
    assert "behavior/log_prob" in rows[-1]
    rows = metrics(folder / "many")
    places = [(row["step"], row["replica"]) for row in rows]
    assert places == [(step, r) for step in range(2, 81, 2) for r in range(4)]
    assert [row["seed"] for row in rows[:4]] == [0, 1, 0, 1]


def test_assignments(folder, data):
    for run in ("one", "many", "many/replica-3"):
        with (folder / run / "assignments.csv").open(newline="") as file:
            table = list(csv.DictReader(file))
        assert (
            list(table[0]) == "trajectory code probability return length source".split()
        )
        behavior = Behavior.load(folder / run)
        columns = {name: [row[name] for row in table] for name in table[0]}
        assert columns["trajectory"] == [str(m) for m in range(len(data))]
        assert np.array_equal(np.array(columns["code"], int), behavior.codes)
        assert columns["length"] == [str(n) for n in data.lengths]
        np.testing.assert_allclose(
            np.array(columns["return"], float), data.returns, rtol=1e-5
        )
        assert columns["source"] == [data.source_names[s] for s in data.sources]
        probabilities = behavior.probabilities[np.arange(len(data)), behavior.codes]
        np.testing.assert_allclose(
            np.array(columns["probability"], float), probabilities, atol=1e-6
        )


def test_embeddings_say_the_codes(folder, data):
    with np.load(folder / "one" / "embeddings.npz", allow_pickle=False) as arrays:
        W, E = arrays["W"], arrays["E"]
    behavior = Behavior.load(folder / "one")
    assert W.shape == (len(data), 8)
    assert E.shape == (behavior.k, 8)
    for rows in (W, E):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-4)
    assert np.array_equal((W @ E.T).argmax(axis=1), behavior.codes)


def test_what_is_printed(cli, folder):
    words = f"fit {folder}/data.npz --out run --method gaussian --no-figures".split()
    done = cli(*words, *FIT)
    assert done.returncode == 0, done.stderr
    for text in ("held-out log-probability", "updates/s", "left-fast", "wrote run"):
        assert text in done.stdout, text
    assert names(Path("run")) == TOP | ONE - {"embeddings.npz"}


def test_the_paper_preset_with_values(cli, folder):
    words = f"fit {folder}/data.npz --out run --preset paper --k 3 --no-compare".split()
    done = cli(*words, *FIT, "--critic-width", "16")
    assert done.returncode == 0, done.stderr
    config = read_json(Path("run/config.json"))
    assert config["preset"] == "paper"
    assert config["options"]["init"] == "random"
    assert config["options"]["discount"] == 0.99
    assert "critic/loss" in metrics(Path("run"))[-1]
    summary = read_json(Path("run/summary.json"))
    assert summary["behavior"]["single_gaussian_heldout_log_prob"] is None


ERRORS = {
    "--out new --k 0": "k: expected a number from 1 to the",
    "--out new --k 9999": "k: expected a number from 1 to the",
    "--out new --k two": "k: expected a number or auto, got two",
    "--out new --k 2 2": "k: expected different ones, got 2 twice",
    "--out new --seeds 1 1": "seed: expected different ones, got 1 twice",
    "--out new --method gaussian --k 5": "k: expected none, gaussian is one behavior",
    "--out new --preset best": "preset: expected one of default, paper, large, got",
    "--out new --method magic": "method: expected one of vq, gaussian, vae, mixture",
    "--out new --holdout 1.5": "holdout: expected between 0 and 1, got 1.5",
    "--out new --policy-rate -1": "policy_rate: expected above 0, got -1.0",
    "--out begun/config.json": "begun/config.json: expected a directory to write to",
    "--out new --steps 0": "steps: expected at least 1, got 0",
    "--out finished --k 2": "finished: holds a finished run; choose another directory",
    "--out begun --k 3": "begun: holds another run: k is 2, not 3; choose another",
    "--out begun --k 2 --seeds 5": "begun: holds another run: seeds is 0, not 5",
    "--out begun --k 2 --batch-size 7": (
        "begun: holds another run: options.batch_size is 256, not 7; choose another"
    ),
    "--out trained": (
        "trained: expected a run of `manyhands fit` to go on with, got a run of "
        "`manyhands train`; choose another directory"
    ),
    "--out foreign": (
        "foreign: expected a run of `manyhands fit` to go on with, got a config.json "
        "that is no run's; choose another directory"
    ),
    "--out list": "list: expected a run of `manyhands fit` to go on with, got a config",
}


@pytest.mark.parametrize("words", ERRORS)
def test_errors_are_one_line_and_nothing_is_written(cli, folder, tmp_path, words):
    begun = (folder / "one" / "config.json").read_bytes()
    for run, name in (("finished", "summary.json"), ("begun", "config.json")):
        (tmp_path / run).mkdir()
        (tmp_path / run / name).write_bytes(begun)
    others = {"trained": '{"algo": "bc"}', "foreign": '{"a": 1}', "list": "[]"}
    for run, content in others.items():
        (tmp_path / run).mkdir()
        (tmp_path / run / "config.json").write_text(content)
    before = names(tmp_path)
    done = cli("fit", folder / "data.npz", *FIT, *words.split())
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {ERRORS[words]}"), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert names(tmp_path) == before
    assert (tmp_path / "begun" / "config.json").read_bytes() == begun


def test_data_that_is_not_there(cli, tmp_path):
    done = cli("fit", "absent.npz", "--out", "new")
    assert done.returncode == 1
    assert done.stderr.startswith("error: absent.npz: no such file or directory")
    assert not names(tmp_path)
