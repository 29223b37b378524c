"""From trained agents to stored policies."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from manyhands import UserError
from manyhands.agents import acting, policies
from manyhands.agents.data_sets import Roles
from manyhands.agents.policies import About
from manyhands.agents.tasks import TASKS
from manyhands.envs.scores import normalized
from zoo import export
from zoo.train import policies_at


@pytest.fixture(scope="module")
def stored(trained, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "policies"
    export.export(trained, folder, command="export", episodes=3, workers=2)
    return folder


def test_the_last_policies_and_the_stages_of_the_best_are_stored(stored):
    found = policies.manifest(stored)
    finals = {(a.task, a.seed) for a in found if a.step == 240}
    assert finals == {(t, s) for t in ("hopper", "halfcheetah") for s in (1, 2)}
    for name in ("hopper", "halfcheetah"):
        roles = Roles.of(name, stored)
        assert [a.seed for a in roles.finals] == [1, 2]
        assert roles.expert.return_mean == max(a.return_mean for a in roles.finals)
        stages = [a for a in found if a.task == name and a.step < 240]
        assert {(a.seed, a.step) for a in stages} == {
            (roles.expert.seed, 0),
            (roles.expert.seed, 120),
        }
        assert roles.to_medium[-1] == roles.medium
    made = json.loads((stored / "manifest.json").read_text())["made"]
    assert made["commands"] == [
        "python tools/zoo train hopper halfcheetah --seeds 1 2 --out run",
        "export",
    ]
    assert made["run"]["options"]["steps"] == 240


def test_manifest_says_how_good_they_are(stored):
    for about in policies.manifest(stored):
        score = normalized(np.array([about.return_mean]), TASKS[about.task].env_id)
        assert about.normalized == pytest.approx(score[0])
        assert about.return_std >= 0
        assert np.isfinite(about.mode_return_mean)


def test_a_stored_policy_acts_as_the_agent_did(stored, trained):
    """Cut to its task's size and in half precision, but the same function."""
    arrays = load_file(trained / policies_at(240))
    for r, (name, seed) in enumerate(
        [("hopper", 1), ("hopper", 2), ("halfcheetah", 1)]
    ):
        task = TASKS[name]
        policy = policies.load(About(name, seed, 240), stored)
        assert policy.layers[0][0].shape[0] == task.observations
        observations = np.random.default_rng(r).normal(size=(5, 17)).astype(np.float32)
        observations[:, task.observations :] = 0
        wide = observations
        for layer in range(3):
            w, b = (
                arrays[f".layers[{layer}].{part}"][r].astype(np.float64)
                for part in "wb"
            )
            wide = wide @ w + b if layer == 2 else np.maximum(wide @ w + b, 0)
        mean, log_std = (wide[:, k : k + task.actions] for k in (0, 6))
        for row, seen in enumerate(observations[:, : task.observations]):
            found = acting.distribution(policy.layers, seen)
            np.testing.assert_allclose(found[0], mean[row], atol=1e-5)
            np.testing.assert_allclose(found[1], log_std[row], atol=1e-5)
            chosen = acting.mode(policy.layers, seen)
            np.testing.assert_allclose(chosen, np.tanh(mean[row]), atol=1e-5)


def test_stages_are_evenly_spaced_and_hold_both_ends_and_medium():
    steps = list(range(0, 1_000_001, 5000))
    chosen = export.stages(steps, medium=60_000)
    assert len(chosen) == export.TO_MEDIUM + export.FROM_MEDIUM
    assert chosen[:7] == [0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]
    assert chosen[-1] == 1_000_000
    assert export.stages([0, 5], medium=0) == [0, 5]


def test_returns_seen_in_training_are_means_around_a_step():
    rows = [dict(replica=0, step=s, **{"return": float(s)}) for s in range(40)]
    rows += [dict(replica=1, step=10, **{"return": 999.0})]
    rows += [dict(replica=0, step=60, **{"return": None})]
    seen = export.returns_seen(rows, 0, [0, 10, 20, 60])
    assert seen[10] == pytest.approx(10)
    assert seen[60] == np.inf


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file; expected a run directory"):
        export.export(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
