"""manyhands train and evaluate: what they print and what they leave behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyhands import load_policy
from manyhands.cli import main

TINY = "--steps 30 --width 16 --batch-size 32".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Data, a behavior set, and a run with two seeds and two values of an option."""
    here = tmp_path_factory.mktemp("train")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        bc = ["--algo", "bc", "--policy-rate", "1e-3", "3e-3", *TINY]
        for words in (
            "data make fork-2 --out data.npz --transitions 600".split(),
            "fit data.npz --out set --k 2 --steps 40 --policy-width 16 "
            "--no-compare --no-figures".split(),
            "train data.npz --out many --seeds 0 1 --episodes 2".split() + bc,
        ):
            assert main.run(words) == 0
    return here


def test_a_run_of_several_replicas(folder):
    summary = json.loads((folder / "many" / "summary.json").read_text())
    assert [r["seed"] for r in summary["replicas"]] == [0, 1, 0, 1]
    returns = [r["return_mean"] for r in summary["replicas"]]
    assert summary["mean"]["return_mean"] == pytest.approx(np.mean(returns))
    rates = [
        load_policy(folder / "many" / f"replica-{r}").options.policy_rate
        for r in range(4)
    ]
    assert rates == [1e-3, 1e-3, 3e-3, 3e-3]
    # They can be told apart.
    assert [r["options"] for r in summary["replicas"]] == [
        {"policy_rate": rate} for rate in rates
    ]


def test_evaluate_prints_every_replica(folder, cli):
    done = cli("evaluate", folder / "many", "--episodes", 2, "--workers", 1)
    assert done.returncode == 0
    for r in range(4):
        assert f"bc replica-{r}" in done.stdout
    assert "policy_rate" in done.stdout
    assert "0.003" in done.stdout
    summary = json.loads((folder / "many" / "summary.json").read_text())
    # The same episodes as at the end of training.
    assert f"{summary['replicas'][0]['return_mean']:.2f}" in done.stdout


def test_a_policy_that_diverged_is_told_of_in_files_that_all_can_read(folder, cli):
    words = "--algo bc --policy-rate 1e30 --episodes 2 --evaluations 1".split()
    done = cli("train", folder / "data.npz", "--out", folder / "lost", *words, *TINY)
    assert done.returncode == 0
    assert "diverged" in done.stdout

    def refuse(constant: str) -> None:
        raise ValueError(constant)  # NaN is JSON for Python alone

    def read(text: str) -> dict[str, Any]:
        return json.loads(text, parse_constant=refuse)

    lost = folder / "lost"
    policy = read((lost / "summary.json").read_text())["policy"]
    assert policy["return_mean"] is None
    assert policy["returns"] == [None, None]
    assert read((lost / "policy.json").read_text())["summary"]["policy"] == policy
    lines = (lost / "metrics.jsonl").read_text().splitlines()
    assert None in read(lines[-1]).values()
    assert main.run(["report", str(lost)]) == 0


def test_train_from_a_behavior_set(folder, cli):
    words = "--steps 20 --critic-width 16 --warm-up 5 --episodes 0".split()
    data, behavior = folder / "data.npz", folder / "set"
    done = cli("train", data, "--out", "run", "--behavior", behavior, *words)
    assert done.returncode == 0, done.stderr
    assert "not evaluated" in done.stdout
    with np.load("run/embeddings.npz") as arrays:
        assert set(arrays.files) == {"W", "E", "e_pi"}
        # One step of 5e-5 after another: still close to the behavior it began as.
        assert (arrays["E"] @ arrays["e_pi"]).max() > 0.99
    again = cli("train", data, "--out", "run", *words)
    assert again.returncode == 1
    assert again.stderr.startswith("error: run: holds a finished run")


def test_a_run_of_train_is_no_behavior_set(folder, cli):
    wrong, said = folder / "many", "behavior: expected a run of `manyhands fit`, got "
    train = ["train", folder / "data.npz", "--out", "run", "--behavior"]
    done = cli(*train, wrong)
    assert done.returncode == 1
    assert done.stderr == f"error: {said}{wrong}, a run of `manyhands train`\n"
    # Some have one inside.
    for path, name in (("begun", "config.json"), ("begun/behavior", "behavior.json")):
        Path(path).mkdir()
        Path(path, name).write_bytes((folder / "many" / "config.json").read_bytes())
    done = cli(*train, "begun")
    assert done.stderr.endswith("`manyhands train`; its own is begun/behavior\n")
    assert not Path("run").exists()


def test_a_run_of_fit_is_not_gone_on_with(folder, cli):
    Path("begun").mkdir()
    Path("begun/config.json").write_bytes((folder / "set" / "config.json").read_bytes())
    done = cli("train", folder / "data.npz", "--out", "begun", "--algo", "bc")
    assert done.returncode == 1
    assert done.stderr == (
        "error: begun: expected a run of `manyhands train` to go on with, got a run of "
        "`manyhands fit`; choose another directory\n"
    )


def test_of_several_k_one_is_to_be_chosen(folder, cli):
    data, words = folder / "data.npz", "--steps 40 --policy-width 16 --no-compare"
    fit = ["--k", 2, 3, "--no-figures", *words.split()]
    assert cli("fit", data, "--out", "sets", *fit).returncode == 0
    train = "--out run --steps 5 --critic-width 16 --episodes 0".split()
    done = cli("train", data, "--behavior", "sets", *train)
    assert done.returncode == 1
    assert done.stderr == (
        "error: behavior: expected one k, got 2; choose sets/replica-0 (k 2), "
        "sets/replica-1 (k 3)\n"
    )
    assert not Path("run").exists()
    done = cli("train", data, "--behavior", "sets/replica-1", *train)
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("run/config.json").read_text())["k"] == 3


def test_options_are_those_of_the_algorithm(cli):
    assert "--beta" in cli("train", "--algo", "brac_v", "--help").stdout
    assert "--beta" not in cli("train", "--algo=bc", "--help").stdout
    for words in (["--beta", "3"], ["--beta=3"]):
        done = cli("train", "x.npz", "--out", "new", "--algo", "td3_bc", *words)
        assert done.returncode == 1
        assert done.stderr == (
            "error: --beta: td3_bc has no such option; see manyhands train --algo "
            "td3_bc --help\n"
        )
    done = cli("train", "x.npz", "--out", "new", "--expectile", "0.7")
    assert done.stderr.startswith("error: --expectile: lbrac_v has no such option; see")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algo", "bcc"], "algo: expected one of bc, "),
        (["--algo", "bc", "--policy-rate", "-1"], "policy_rate: expected above 0"),
        (["--algo", "iql", "--k", "3"], "k: expected none, for no behavior set is fi"),
        (["--algo", "bc", "--seeds", "1", "1"], "seed: expected different ones, got 1"),
        (["--algo", "bc", "--preset", "x"], "preset: expected one of default, paper"),
        (["--behavior", "nowhere"], "nowhere/behavior.json: no such file"),
        (["--k", "2", "many"], "k: expected a number or auto, got many"),
        (
            ["--algo", "clone", "--steps", "20"],
            "steps: expected 0, for clone makes no updates of its own",
        ),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(folder, cli, words, message):
    done = cli("train", folder / "data.npz", "--out", "new", *words)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("new").exists()


def test_evaluate_refuses_what_does_not_fit(folder, cli):
    done = cli("evaluate", folder / "many" / "replica-0", "--env", "Pendulum-v1")
    assert done.returncode == 1
    assert "expected one with 4 observations and 2 actions" in done.stderr


def test_evaluate_says_what_a_run_without_a_policy_is(folder, cli):
    Path("begun").mkdir()
    config = (folder / "many" / "config.json").read_bytes()
    Path("begun/config.json").write_bytes(config)
    for run, message in (
        ("begun", "this run is not finished; repeat its command to go on with it"),
        (
            folder / "set",
            "expected a run of `manyhands train`, got one of `manyhands f",
        ),
        ("nowhere", "no such file; expected a run directory"),
    ):
        done = cli("evaluate", run)
        assert done.returncode == 1
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    done = cli("evaluate", folder / "many" / "replica-0", "--seed", "-1")
    assert done.stderr == "error: seed: expected a number from 0 to 2^31 - 1, got -1\n"


def test_a_killed_run_goes_on_to_the_same_bits(folder, tmp_path):
    """A real process, killed at random moments until it happens to finish."""
    program = (
        "import sys, manyhands as mh; data = mh.load(sys.argv[1]);"
        "mh.train(data, 'brac_v', out=sys.argv[2], steps=60, behavior_steps=40, "
        "width=16, behavior_width=16, critic_width=16, batch_size=32, warm_up=10, "
        "episodes=2, evaluations=3, workers=1, checkpoint_seconds=0.0)"
    )
    data = str(folder / "data.npz")

    def begin(out: str) -> subprocess.Popen:
        command = [sys.executable, "-c", program, data, str(tmp_path / out)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    assert begin("straight").wait() == 0
    random, kills = np.random.default_rng(0), 0
    while True:
        process = begin("killed")
        # Once it has begun; the first time at once, so that there is a kill at all.
        begun = tmp_path / "killed" / "behavior" / "metrics.jsonl"
        while process.poll() is None and not begun.exists():
            time.sleep(0.02)
        deadline = time.monotonic() + kills * random.uniform(1, 3)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if process.poll() is not None:
            assert process.returncode == 0
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills > 0
    one, other = (
        (tmp_path / out / "policy.safetensors").read_bytes()
        for out in ("straight", "killed")
    )
    assert one == other

    def rows(out: str) -> list[str]:
        lines = (tmp_path / out / "metrics.jsonl").read_text().splitlines()
        return sorted(lines)

    assert rows("straight") == rows("killed")
