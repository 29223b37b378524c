"""Fleets that end in every way, and what the next attempt makes of it."""

from dataclasses import replace

import pytest
from untrained import BC, Untrained, change_the_data, keys, preset, rows_of

from manyhands import make, save
from manyhands.files import lock
from manyhands.sweep.benchmark import Outcome, benchmark
from manyhands.sweep.continuing import look
from manyhands.sweep.local import Live, run_process
from manyhands.sweep.plan import Fleet
from manyhands.sweep.results import Results

pytestmark = pytest.mark.usefixtures("here")


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


def test_what_the_data_decided_is_written_down(here):
    iql = {"name": "iql", "steps": 5, "width": 16, "reward_scale": 0.0}
    fleets = look(here, preset(iql, BC)).todo
    decided = {f.algo: run_process(here, f).rows[0]["decided"] for f in fleets}
    assert decided["bc"] == {}
    assert list(decided["iql"]) == ["reward_scale"]
    assert decided["iql"]["reward_scale"] > 0


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
