"""Benchmarks that go on: with the same data and options, and more or less to do."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyhands import UserError, load, make, save
from manyhands.cli import main
from manyhands.files import lock
from manyhands.runs import Run
from manyhands.sweep import preset as presets
from manyhands.sweep.benchmark import Outcome, benchmark
from manyhands.sweep.configs import config_of
from manyhands.sweep.continuing import FLEET, look, placed
from manyhands.sweep.counting import Counter
from manyhands.sweep.device_speed import Speed
from manyhands.sweep.local import Live, Local, run_process
from manyhands.sweep.making import place_of
from manyhands.sweep.plan import Fleet, Key, missing
from manyhands.sweep.results import Results

BC = {"name": "bc", "steps": 5}
LBRAC_V = {"name": "lbrac_v", "k": [1, 2], "steps": 5}


class Untrained:
    """Leaves what a fleet would, and remembers what it was asked for."""

    def __init__(self):
        self.ran: list[Fleet] = []

    def run(self, folder, todo, data):
        for fleet in todo:
            data.wait(fleet)
            self.ran.append(fleet)
            yield Outcome(fleet, rows_of(folder, fleet))


def rows_of(folder: Path, fleet: Fleet) -> list[dict[str, Any]]:
    about = {name: getattr(fleet, name) for name in ("algo", "preset", "options")}
    rows = []
    for key in fleet.keys:
        data = load(place_of(folder, key.data))
        sizes = {"transitions": data.transitions, "fingerprint": data.fingerprint}
        more = {"env": fleet.env, "episodes": fleet.episodes, "fleet_seconds": 1.0}
        rows.append(key._asdict() | about | sizes | more)
    return rows


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("d.npz", "e.npz"):
        save(make("fork-2", 400), name)
    return Path("out")


def preset(*algos: dict[str, Any], name: str = "mine", **changes) -> presets.Preset:
    content = {"data": ["d.npz"], "seeds": [0, 1], "episodes": 0}
    content["algo"] = [dict(algo) for algo in algos or (BC, LBRAC_V)]
    return presets.parse(name, content | changes)


def run(asked: presets.Preset, only: tuple[str, ...] = ()) -> list[Fleet]:
    engine = Untrained()
    assert not benchmark(asked, Path("out"), engine, resume=True, only=only)
    return engine.ran


def keys() -> set[Key]:
    return Results(Path("out")).keys()


def change_the_data() -> str:
    """The words that tell of it."""
    before, after = load("d.npz"), make("fork-2", 600)
    save(after, "d.npz")
    return (
        rf"^d.npz: has changed since its results were made \({before.transitions} "
        rf"transitions then, {after.transitions} now\); choose another directory$"
    )


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


# Ends of all kinds


def test_what_was_trained_and_not_written_down_is_not_trained_again(here):
    """A kill behind the last update."""
    asked = preset(BC, episodes=2, evaluations=2, env="manyhands/Fork-v0")
    (fleet,) = look(here, asked).todo
    rows = run_process(here, fleet).rows
    place = here / "runs" / fleet.name
    (place / "rows.json").unlink()
    trained = (place / "policy.safetensors").stat().st_mtime_ns
    again = run_process(here, fleet).rows
    assert (place / "policy.safetensors").stat().st_mtime_ns == trained
    assert rows
    assert again
    for one in (*rows, *again):
        for name in ("fleet_seconds", "fleet_resumed"):
            one.pop(name)
        assert len(one["returns"]) == 2
        # Every episode along the way, too.
        assert [len(returns) for returns in one["curve_returns"]] == [2, 2]
        means = [sum(returns) / 2 for returns in one["curve_returns"]]
        assert means == pytest.approx([mean for _, mean, _ in one["curve"]])
    assert again == rows


def test_the_same_result_twice_is_written_once(here):
    here.mkdir()
    (fleet,) = look(here, preset(BC)).chosen
    rows = rows_of(here, fleet)
    Results(here).add(rows + rows)
    Results(here).add(rows)
    assert len(Results(here).rows()) == len(rows) == 2


class Failing(Untrained):
    """Fleets of several data sets fail, with or without an error of their own."""

    def __init__(self, killed: bool):
        super().__init__()
        self.killed = killed

    def run(self, folder, todo, data):
        for fleet in todo:
            self.ran.append(fleet)
            rows = None if len(fleet.data) > 1 else rows_of(folder, fleet)
            yield Outcome(fleet, rows, "too bad", killed=self.killed)


@pytest.mark.parametrize("killed", [False, True])
def test_one_bad_data_set_does_not_take_others_with_it(here, killed):
    engine, said = Failing(killed), []
    both = preset(BC, data=["d.npz", "e.npz"])

    def joined(todo: list[Fleet]) -> list[Fleet]:
        return [replace(todo[0], data=("d.npz", "e.npz"))]

    failed = benchmark(
        both, here, engine, prepare=joined, progress=lambda *a: said.append(a[:2])
    )
    ran, whole = [fleet.data for fleet in engine.ran], ("d.npz", "e.npz")
    if killed:  # apart they would be, too
        assert ran == [whole, whole]
        assert [outcome.fleet.data for outcome in failed] == [whole]
        assert said[-1] == (0, 1)
    else:  # once more from the checkpoint, then apart
        assert ran == [whole, whole, ("d.npz",), ("e.npz",)]
        assert not failed
        assert said[-1] == (2, 2)
        assert len(keys()) == 4


def test_what_was_trained_on_other_data_is_not_read(here):
    (fleet,) = look(here, preset(BC)).todo
    assert run_process(here, fleet).rows
    (here / "runs" / fleet.name / "rows.json").unlink()
    change_the_data()
    again = run_process(here, fleet)
    assert again.rows is None
    assert "holds another run: data.fingerprint is" in again.error
    # Nor where other evaluations were asked for.
    save(make("fork-2", 400), "d.npz")
    assert run_process(here, fleet).rows
    (here / "runs" / fleet.name / "rows.json").unlink()
    more = replace(fleet, episodes=2, env="manyhands/Fork-v0")
    assert "another run: evaluations[1] is 0, not 2" in run_process(here, more).error


def test_a_run_that_an_earlier_version_began_is_finished(here):
    """It did not keep the returns of evaluations along the way."""
    asked = preset(BC, episodes=2, evaluations=2, env="manyhands/Fork-v0")
    (fleet,) = look(here, asked).todo
    assert run_process(here, fleet).rows
    place = here / "runs" / fleet.name
    (place / "rows.json").unlink()
    rows = Run(place).metrics()
    Run(place).write_metrics(
        {k: v for k, v in row.items() if k != "evaluation/returns"} for row in rows
    )
    again = run_process(here, fleet).rows
    assert again
    assert [row["curve_returns"] for row in again] == [[None, None]] * 2
    assert all(len(row["curve"]) == 2 for row in again)


def test_what_begins_after_the_end_ends_at_once(here):
    """A fleet that was about to start when all were told to stop."""
    long = preset(BC | {"steps": 9_999_999})
    (fleet,) = look(here, long).todo
    live = Live()
    live.end()
    outcome = run_process(here, fleet, live=live)
    assert outcome.rows is None
    assert outcome.killed
    # One that waits for an earlier attempt does not go on waiting.
    log = here / "runs" / fleet.name / "log.txt"
    with log.open("ab") as file:
        assert lock(file)
        assert "still at work" in run_process(here, fleet, live=live).error


def test_times_of_results_that_are_no_longer_known_are_left_out(here):
    """A file that is gone, an option of another version: no reason to refuse work."""
    run(preset(BC, BC | {"label": "old"}))
    speed = Speed("cpu: test", 1e10, 1e9, 1e-6, False)
    more = {
        "fleet_resumed": False,
        "fleet_seconds": 9.0,
        "environment": {"device": speed.device},
        "curve": [],
    }
    rows = [row | more for row in Results(here).rows()]
    assert {row["label"] for row in rows} == {"bc", "old"}
    for row in rows:
        if row["label"] == "old":
            row["options"] = {"renamed": 3}
    (here / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert set(Counter(here, speed).correction) == {"bc"}
    Path("d.npz").unlink()
    assert Counter(here, speed).correction == {}
