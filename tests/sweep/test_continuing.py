"""Benchmarks that go on: with the same data and options, and more or less to do."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from untrained import BC, LBRAC_V, change_the_data, keys, preset, rows_of, run

from manyhands import UserError, make, save
from manyhands.cli import main
from manyhands.sweep import preset as presets
from manyhands.sweep.benchmark import benchmark
from manyhands.sweep.configs import config_of
from manyhands.sweep.continuing import FLEET, look, placed
from manyhands.sweep.local import Local, run_process
from manyhands.sweep.plan import missing
from manyhands.sweep.results import Results

pytestmark = pytest.mark.usefixtures("here")


# The data


def test_results_of_two_files_are_not_mixed(here):
    run(preset(), only=("*/bc",))
    told = change_the_data()
    written = (here / "results.jsonl").read_text()
    for only in ((), ("*/bc",), ("lbrac_v",)):  # finished or not
        with pytest.raises(UserError, match=told):
            run(preset(), only)
    assert (here / "results.jsonl").read_text() == written


def test_nor_those_that_were_finished_but_not_written_down(here):
    (fleet,) = look(here, preset(BC)).todo
    place = here / "runs" / fleet.name
    place.mkdir(parents=True)
    (place / "rows.json").write_text(json.dumps(rows_of(here, fleet)))
    told = change_the_data()
    with pytest.raises(UserError, match=told):
        run(preset(BC))
    assert not (here / "results.jsonl").exists()


def test_sets_that_are_made_here_are_compared_where_they_are(here):
    made = preset(BC, data=["fork:fork-2"], transitions=300)
    run(made)
    (place,) = (here / "data").glob("*.npz")
    save(make("fork-2", 400), place)
    with pytest.raises(UserError, match="^fork:fork-2: has changed since"):
        run(made)
    place.unlink()
    assert run(made) == []
    assert not place.exists()


# The preset


def test_name_and_about_do_not_count(here):
    run(preset())
    assert run(preset(name="other", about="The same.")) == []
    assert json.loads((here / "preset.json").read_text())["name"] == "other"


@pytest.mark.parametrize(
    ("more", "trained"),
    [
        (
            preset(seeds=[0, 1, 2]),
            {"d.npz/bc/seeds-2": (), "d.npz/lbrac_v/seeds-2": (1, 2)},
        ),
        (
            preset(BC, LBRAC_V | {"k": [1, 5, 2]}),
            {"d.npz/lbrac_v/k-5-seeds-0-1": (5,)},
        ),
        (
            preset(BC, LBRAC_V | {"k": [2, 5]}, seeds=[1, 3]),
            {
                "d.npz/bc/seeds-3": (),
                "d.npz/lbrac_v/k-2-seeds-3": (2,),
                "d.npz/lbrac_v/k-5-seeds-1-3": (5,),
            },
        ),
        (preset(BC, LBRAC_V, BC | {"label": "again"}), {"d.npz/again": ()}),
        (preset(BC, data=["d.npz", "e.npz"]), {"e.npz/bc": ()}),
    ],
)
def test_there_may_be_more_to_do_or_less(more, trained):
    run(preset())
    before = keys()
    ran = run(more)
    assert {fleet.name: fleet.k for fleet in ran} == trained
    asked = {key for fleet in look(Path("out"), more).chosen for key in fleet.keys}
    assert keys() == before | asked  # nothing is lost
    assert len(Results(Path("out")).rows()) == len(keys())
    assert run(more) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (preset(BC | {"steps": 6}), "bc: steps is 5, not 6"),
        (preset(BC | {"batch_size": 8}), "bc: batch_size is not given, not 8"),
        (
            preset(BC | {"for": {"d.npz": {"steps": 6}}}),
            "bc on d.npz: steps is 5, not 6",
        ),
        (
            preset({"name": "iql", "label": "bc", "steps": 5}),
            "bc: algorithm is bc, not iql",
        ),
        (preset(LBRAC_V | {"preset": "paper"}), "lbrac_v: preset is default, not pap"),
        (preset(episodes=3), "episodes is 0, not 3"),
        (preset(evaluations=3), "evaluations is 0, not 3"),
        (preset(transitions=300), "transitions is None, not 300"),
        (preset(env="Other-v0"), "env of d.npz is None, not Other-v0"),
    ],
)
def test_what_decides_a_result_may_not_change(here, changed, told):
    run(preset(), only=("*/bc",))  # of the others not a result is there, but they count
    written = (here / "preset.json").read_text()
    with pytest.raises(UserError, match=f"^out: holds another benchmark: {told}"):
        run(changed)
    assert (here / "preset.json").read_text() == written


def test_options_for_other_data_are_no_change():
    run(preset(BC))
    other = BC | {"for": {"e.npz": {"steps": 6}}}
    ran = run(preset(other, data=["d.npz", "e.npz"]))
    assert [fleet.name for fleet in ran] == ["e.npz/bc"]


def test_what_was_left_out_for_a_while_comes_back_as_it_was():
    run(preset())
    run(preset(LBRAC_V))
    with pytest.raises(UserError, match="bc on d.npz: steps is 5, not 6; choose"):
        run(preset(BC | {"steps": 6}, LBRAC_V))
    assert run(preset()) == []


def test_so_do_its_episodes(here):
    """What preset.json no longer says is in the results."""
    run(preset(episodes=2, env="manyhands/Fork-v0"))
    run(preset(BC | {"label": "other"}, episodes=3, env="manyhands/Fork-v0"))
    with pytest.raises(UserError, match="bc on d.npz: episodes is 2, not 3; choose"):
        run(preset(BC, episodes=3, env="manyhands/Fork-v0"))


def test_a_default_that_has_changed_since_is_told_of(here):
    run(preset(BC))
    rows = Results(here).rows()
    (fleet,) = look(here, preset(BC)).chosen
    config = config_of(fleet, rows[0]["transitions"])
    assert config["steps"] == 5
    assert {"steps", "batch_size", "width"} < set(config)

    def written(**changes: Any) -> None:
        more = {"config": config | changes, "evaluations": 0}
        lines = [json.dumps(row | more) + "\n" for row in rows]
        (here / "results.jsonl").write_text("".join(lines))

    # An option that only one of the versions has says nothing.
    written(another=1)
    assert run(preset(BC)) == []
    written(batch_size=7)
    now = config["batch_size"]
    with pytest.raises(UserError, match=f"bc on d.npz: batch_size is 7, not {now}; ch"):
        run(preset(BC))


def test_defaults_of_what_is_fitted_first_count(here):
    (fleet,) = look(here, preset(LBRAC_V)).chosen
    config = config_of(fleet, 400)
    assert config["behavior"]["steps"] == 12_000
    assert config["behavior"]["embedding_factor"] > 1
    paper = replace(fleet, preset="paper")
    assert config_of(paper, 400)["behavior"]["embedding_factor"] == 1.0
    brac = {"name": "brac_v", "steps": 5, "behavior_steps": 7}
    (fleet,) = look(here, preset(brac)).chosen
    config = config_of(fleet, 400)
    assert config["behavior"]["steps"] == 7
    assert "policy_rate" in config["behavior"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"entries": [{}]}'])
def test_a_preset_that_cannot_be_read_is_told_of_in_one_line(here, content):
    here.mkdir()
    (here / "preset.json").write_text(content)
    with pytest.raises(UserError, match="^out/preset.json: expected the preset .*$"):
        run(preset())


def test_a_plan_compares_like_the_command(here, capsys):
    text = 'data = ["d.npz"]\nseeds = [0]\nepisodes = 0\n[[algo]]\nname = "bc"\n'
    Path("mine.toml").write_text(text + "steps = 5\n")
    Path("other.toml").write_text(text + "steps = 6\n")
    run(presets.load("mine.toml"))
    files = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    plan = "benchmark {} --out out --plan"
    assert main.run(plan.format("mine.toml").split()) == 0
    assert "nothing is left to run" in capsys.readouterr().out
    assert main.run(plan.format("other.toml").split()) == 1
    assert "bc: steps is 5, not 6" in capsys.readouterr().err
    change_the_data()
    assert main.run(plan.format("mine.toml").split()) == 1
    assert "d.npz: has changed since" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == files


# Parts


def test_what_is_missing_is_put_together_by_seeds():
    (fleet,) = look(Path("out"), preset(LBRAC_V | {"k": [1, 2, 5, "auto"]})).chosen
    assert missing(fleet, set()) == [fleet]
    assert missing(fleet, set(fleet.keys)) == []
    there = {key for key in fleet.keys if key.k in ("1", "2")} - {fleet.keys[0]}
    one, both = missing(fleet, there)
    assert (one.k, one.seeds, one.part) == ((1,), (0,), "k-1-seeds-0")
    assert (both.k, both.seeds, both.part) == ((5, "auto"), (0, 1), "seeds-0-1")


def test_a_folder_of_other_runs_is_left_alone(here):
    """Of K and seeds that a run was begun with, and never finished."""
    (fleet,) = look(here, preset(BC)).todo
    assert run_process(here, fleet).rows
    assert placed(here, [fleet]) == [fleet]
    (here / "runs" / fleet.name / "rows.json").unlink()
    more = preset(BC, seeds=[0, 1, 2])
    (whole,) = look(here, more).todo
    assert whole.name == fleet.name
    (moved,) = placed(here, [whole])
    assert moved == replace(whole, part="seeds-0-1-2")
    assert not benchmark(more, here, Local())
    assert {key.seed for key in keys()} == {0, 1, 2}
    assert (here / "runs" / moved.name / FLEET).exists()
    # As may be where memory is too small for one of them.
    twice = [replace(fleet, k=(1, 2), part="x"), replace(fleet, k=(5, 9), part="x")]
    assert [f.part for f in placed(here, twice)] == ["x", "k-5-9-seeds-0-1"]
