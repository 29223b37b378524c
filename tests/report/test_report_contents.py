"""The report: its numbers against their definitions, and its command."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_pages import NAMES, content_of, moved, read_json

from manyhands import Behavior, Trajectories, UserError, load_policy, write_report
from manyhands.cli import main
from manyhands.report import trajectory_map
from manyhands.report.payload import payload
from manyhands.report.saved_run import open_run


@pytest.fixture(scope="module")
def content(folder) -> dict[str, Any]:
    return payload(open_run(folder / "train"))


def floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


# What it says


def test_log_probabilities_and_divergences(folder, data, content):
    behavior, fit = Behavior.load(folder / "fit"), content["fit"]
    by_code = behavior.code_log_probs(data).astype(np.float64)
    sums = np.array(
        [by_code[data.trajectory == m].sum(axis=0) for m in range(len(data))]
    )
    shown = floats(fit["log_probs"]).reshape(len(data), behavior.k)
    np.testing.assert_allclose(shown, sums / data.lengths[:, None], rtol=1e-5)
    for row in fit["behaviors"]:
        mine = (behavior.codes == row["code"])[data.trajectory]
        losses = (by_code[mine, row["code"]][:, None] - by_code[mine]).mean(axis=0)
        losses[row["code"]] = np.inf
        assert row["nearest"]["code"] == losses.argmin()
        assert row["nearest"]["distance"] == pytest.approx(losses.min(), rel=1e-5)
        own = data.returns[behavior.codes == row["code"]]
        assert row["return_std"] == pytest.approx(own.std(), rel=1e-4)


def test_the_plane_is_that_of_the_largest_singular_values(folder, content):
    with np.load(folder / "train" / "embeddings.npz") as arrays:
        W, e_pi = arrays["W"].astype(np.float64), np.atleast_2d(arrays["e_pi"])
    _, sizes, axes = np.linalg.svd(W - W.mean(axis=0), full_matrices=False)
    expected, places = (W - W.mean(axis=0)) @ axes[:2].T, content["fit"]["places"]
    found = floats(places["xy"]).reshape(-1, 2)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-4)
    assert places["variance"] == pytest.approx(
        (sizes[:2] ** 2).sum() / (sizes**2).sum()
    )
    policy = (e_pi - W.mean(axis=0)) @ axes[:2].T
    np.testing.assert_allclose(np.abs(places["policy"]), np.abs(policy), atol=1e-4)


def test_actions_and_rewards_over_time(data, content):
    time_, at = content["fit"]["over_time"], 0
    actions = np.frombuffer(base64.b64decode(time_["actions"]), np.uint8)
    actions = actions.reshape(-1, data.action_size) / 255 * 2 - 1
    reward = np.frombuffer(base64.b64decode(time_["reward"]), np.uint8) / 255
    width = time_["reward_high"] - time_["reward_low"]
    for m, points in enumerate(time_["points"]):
        assert points == min(60, data.lengths[m])
        rows = slice(data.offsets[m], data.offsets[m + 1])
        mine = slice(at, at + points)
        np.testing.assert_allclose(actions[mine], data.actions[rows], atol=1 / 255)
        so_far = time_["reward_low"] + width * reward[mine]
        expected = np.cumsum(data.rewards[rows])
        np.testing.assert_allclose(so_far, expected, atol=width / 255)
        at += points
    assert at == data.transitions


def test_histograms_are_shares(data, content):
    fit = content["fit"]
    for code, shares in fit["histograms"]["by_code"].items():
        mine = np.isin(data.trajectory, np.flatnonzero(_codes(fit) == int(code)))
        for j, row in enumerate(shares):
            expected = np.histogram(data.actions[mine, j], 24, (-1, 1))[0] / mine.sum()
            np.testing.assert_allclose(row, expected, atol=0.005)


def _codes(fit: dict[str, Any]) -> np.ndarray:
    return np.array(fit["shown"]["code"])


def test_confusion_counts_every_trajectory(data, content):
    found = content["fit"]["confusion"]
    assert found["sources"] == sorted(NAMES)
    for i, source in enumerate(found["sources"]):
        of_source = data.sources == data.source_names.index(source)
        for j, code in enumerate(found["codes"]):
            both = of_source & (_codes(content["fit"]) == code)
            assert found["counts"][i][j] == both.sum()


def test_curves_are_the_metrics_of_every_replica(folder, content):
    lines = (folder / "train" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    curve = content["policy"]["curves"]["evaluation/return_mean"]
    for replica in (0, 1):
        for step, value in zip(curve["steps"], curve["values"][replica]):
            (logged,) = (
                row["evaluation/return_mean"]
                for row in rows
                if (row["step"], row["replica"]) == (step, replica)
                and "evaluation/return_mean" in row
            )
            assert value == pytest.approx(logged, rel=1e-4)
    assert content["policy"]["groups"] == [{"label": "lbrac_v", "replicas": [0, 1]}]


def test_a_sample_has_some_of_every_behavior():
    codes = np.repeat([0, 1, 2], [49_000, 990, 10])
    shown = trajectory_map.sample(codes, np.full(50_000, 5))
    assert len(shown) == 2000
    assert len(np.unique(shown)) == 2000
    assert (codes[shown] == 2).sum() == 10
    assert (codes[shown] == 1).sum() >= 20
    everyone = trajectory_map.sample(codes[:1000], np.full(1000, 5))
    assert np.array_equal(everyone, np.arange(1000))
    # Long ones: fewer, so that looking at them does not take minutes.
    assert len(trajectory_map.sample(codes, np.full(50_000, 1000))) == 1000


def test_two_thousand_long_trajectories_are_small(content):
    lengths = np.full(2000, 200)
    many = Trajectories.from_arrays(
        observations=np.zeros((lengths.sum(), 1)),
        actions=np.random.default_rng(0).uniform(-1, 1, (lengths.sum(), 8)),
        rewards=np.ones(lengths.sum()),
        terminals=np.zeros(lengths.sum()),
        trajectory=np.repeat(np.arange(2000), lengths),
    )
    found = trajectory_map.over_time(many)
    size = len(found["actions"]) + len(found["reward"])
    assert size < 2.2e6  # of the five million bytes that a page may have
    each = len(json.dumps(content["fit"]["shown"])) / len(_codes(content["fit"]))
    assert 2000 * each < 0.5e6


# The command


def run(capsys, *words: Any) -> tuple[int, str, str]:
    code = main.run(["report", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_command_finds_the_data_by_itself(folder, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the run remembers where its data is, from anywhere
    code, out, _ = run(capsys, folder / "fit", "--out", "page.html")
    assert (code, out[:16]) == (0, "wrote page.html ")
    assert "Nothing to remark" in Path("page.html").read_text()
    shown = content_of(tmp_path / "page.html")["runs"][0]
    assert shown["card"]["trajectories"] == shown["summary"]["data"]["trajectories"]
    assert shown["summary"] == read_json(folder / "fit" / "summary.json")


ERRORS = {
    "absent": "absent/config.json: no such file; expected a run directory",
    "unfinished": "unfinished: this run is not finished; repeat its command",
    "policy": "policy: expected a run, got a saved policy, which is none; give the "
    "directory that `manyhands train --out` has written",
    "behaviors": "behaviors: expected a run, got a saved behavior set, which is none",
    "train/replica-1": "train/replica-1: expected a run, got a saved policy, which is "
    "none; give train\n",
    "fit train": "out: expected a file for the page of several runs",
    "fit --out fit": "fit: expected a file to write to, got a directory",
    "fit --data fork:fork-1": "fork-1: expected the data set that the runs were made",
}


def test_pictures_lie_beside_the_page(folder, page, tmp_path):
    assert drawn_in(page.parent / "figures") == {"returns.png", "training.png"}
    alone = shutil.copytree(folder / "fit", tmp_path / "fit")
    write_report(alone, tmp_path / "elsewhere.html")
    assert not (alone / "figures").exists()  # a run is left alone
    of_a_fit = {"embeddings.png", "training.png"}
    assert drawn_in(tmp_path / "elsewhere-figures") == of_a_fit
    write_report(alone)
    assert drawn_in(alone / "figures") == of_a_fit
    write_report([alone, folder / "train"], tmp_path / "both.html")
    assert drawn_in(tmp_path / "both-figures" / "fit") == of_a_fit
    assert "returns.png" in drawn_in(tmp_path / "both-figures" / "train")


def drawn_in(folder: Path) -> set[str]:
    for path in folder.iterdir():
        assert path.read_bytes()[:4] == b"\x89PNG"
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("words", ERRORS)
def test_errors_are_one_line(folder, capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    for name in ("fit", "train"):
        moved(folder, name, tmp_path)
    (tmp_path / "unfinished").mkdir()
    shutil.copy("fit/config.json", "unfinished")
    load_policy("train").save("policy")
    Behavior.load("fit").save("behaviors")
    code, out, err = run(capsys, *words.split())
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {ERRORS[words]}")
    assert err.count("\n") == 1
    assert not list(tmp_path.rglob("*.html"))


def test_no_run_at_all():
    with pytest.raises(UserError, match="runs: expected at least one run directory"):
        write_report([])


def test_fitting_hands_its_metrics_on(folder, scalars):
    lines = (folder / "fit" / "metrics.jsonl").read_text().splitlines()
    logged = [(row["step"], row["heldout_log_prob"]) for row in map(json.loads, lines)]
    found = scalars(folder / "fit" / "tensorboard" / "replica-0")
    held = [(step, value) for tag, step, value in found if tag == "heldout_log_prob"]
    np.testing.assert_allclose(held, logged, rtol=1e-6)
