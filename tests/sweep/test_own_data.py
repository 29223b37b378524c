"""Benchmarks on users' own files."""

from dataclasses import replace

import numpy as np
import pytest

from manyhands import UserError, make, save
from manyhands.cli import main
from manyhands.sweep import preset as presets
from manyhands.sweep.benchmark import benchmark
from manyhands.sweep.cost import Costs
from manyhands.sweep.local import Local, run_process
from manyhands.sweep.plan import fleets, joined
from manyhands.sweep.results import Results

HERE = "manyhands/Fork-v0"


@pytest.fixture
def mine(tmp_path, monkeypatch) -> str:
    """A file that names no environment."""
    monkeypatch.chdir(tmp_path)
    save(replace(make("fork-2", 400), env_id=None), "mine.npz")
    return "mine.npz"


def preset(*data: str, **changes) -> presets.Preset:
    content = {"data": list(data), "seeds": [0], "episodes": 2, "evaluations": 2}
    algo = [{"name": "bc", "steps": 5}]
    return presets.parse("mine", content | {"algo": algo} | changes)


@pytest.mark.parametrize("env", [HERE, {"mine.npz": HERE}])
def test_it_is_evaluated_where_the_preset_says(tmp_path, mine, env, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert not benchmark(preset(mine, env=env), tmp_path / "out", Local())
    (row,) = Results(tmp_path / "out").rows()
    assert len(row["returns"]) == 2
    assert len(row["curve"]) == 2
    assert row["env"] == HERE
    assert row["together"] == 1
    assert "XLA_FLAGS" not in row["environment"]


def test_without_episodes_no_environment_is_needed(tmp_path, mine, monkeypatch):
    flags = "--xla_force_host_platform_device_count=1"
    monkeypatch.setenv("XLA_FLAGS", flags)
    asked = preset(mine, episodes=0, seeds=[0, 1])
    assert not benchmark(asked, tmp_path / "out", Local())
    rows = Results(tmp_path / "out").rows()
    assert [row["return_mean"] for row in rows] == [None, None]
    # What may change rounding is written down.
    assert [row["together"] for row in rows] == [2, 2]
    assert [row["environment"]["XLA_FLAGS"] for row in rows] == [flags, flags]


def test_what_cannot_be_used_is_refused_before_anything_is_written(tmp_path, mine):
    data = make("fork-2", 400)
    observations = np.array(data.observations)
    observations[7, 1] = np.nan
    np.savez(
        "nan.npz",
        observations=observations,
        actions=data.actions,
        rewards=data.rewards,
        terminals=data.terminals,
    )
    for name, message in {
        mine: "mine.npz: expected an environment's id to evaluate in, got none",
        "absent.npz": "absent.npz: no such file",
        "nan.npz": "nan.npz: observations: row 7, column 1",
    }.items():
        with pytest.raises(UserError, match=message):
            benchmark(preset("fork:fork-2", name), tmp_path / "out", Local())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "Pendulum-v1"}, "mine.npz: env: expected one with 4 obs.* 2 actions"),
        (
            {"algo": [{"name": "lbrac_v", "k": [1, 500]}]},
            "mine.npz: k: expected a number from 1 to the .* trajectories",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    tmp_path, mine, changes, message
):
    with pytest.raises(UserError, match=message):
        benchmark(preset(mine, **{"env": HERE} | changes), tmp_path / "out", Local())
    assert not (tmp_path / "out").exists()


def test_a_run_that_cannot_be_evaluated_is_not_finished(tmp_path, mine):
    """As on a machine that lacks the environment."""
    save(replace(make("fork-2", 400), env_id="Absent-v0"), "absent.npz")
    (fleet,) = fleets(preset("absent.npz"))
    (tmp_path / "out").mkdir()
    outcome = run_process(tmp_path / "out", fleet)
    assert outcome.rows is None
    assert "Absent" in outcome.error


def test_finished_runs_do_not_need_their_data_again(tmp_path, mine):
    both = preset(mine, "fork:fork-2", transitions=400, episodes=0)
    assert not benchmark(both, tmp_path / "out", Local(), only=("mine",))
    (tmp_path / mine).unlink()
    assert not benchmark(both, tmp_path / "out", Local(), resume=True)
    assert len(Results(tmp_path / "out").rows()) == 2


def test_a_plan_goes_on_without_data_that_cannot_be_read(tmp_path, mine, capsys):
    text = 'data = ["absent.npz"]\nseeds = [0]\n[[algo]]\nname = "bc"\n'
    (tmp_path / "mine.toml").write_text(text)
    assert main.run("benchmark mine.toml --out out --plan".split()) == 0
    assert "its data cannot be read" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_only_data_sets_of_one_environment_train_together(tmp_path, mine):
    save(make("fork-2", 400), "other.npz")
    costs = Costs(tmp_path, together=False)
    for env, together in (({mine: HERE}, 2), (HERE, 1)):
        apart = fleets(preset(mine, "other.npz", env=env))
        assert len(joined(apart, costs.kind, lambda fleet: 2)) == together
        assert [s.env for f in apart for s in costs.sizes(f)] == [HERE, HERE]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"others.npz": HERE}, "env: expected one of mine.npz; got others.npz"),
        (3, "env: expected an environment's id, or .* got 3"),
        ({"mine.npz": ""}, "env: expected an environment's id, or .* got ''"),
    ],
)
def test_environments_that_are_none(env, message):
    with pytest.raises(UserError, match=message):
        preset("mine.npz", env=env)


def test_seeds_that_are_alike():
    with pytest.raises(UserError, match="seeds: expected no two alike, got 0, 0"):
        preset("fork:fork-2", seeds=[0, 0])
