"""Signs of life: each stage of a learner has its name, its count and its rate."""

import io
import time

import pytest
from rich.console import Console

from manyhands.cli import console
from manyhands.training.planned import Planned

STAGES = [Planned("bc", "behavior", 2000), Planned("brac_v", "", 1000)]
# What a learner reports, when: a stage that comes first, and then its own.
REPORTS = [
    (10.0, 100, {}),
    (15.0, 200, {}),
    (30.0, 50, {"critic/q": 1.5}),
    (34.0, 450, {"critic/q": 2.5}),
]
RATES = ["", "20 updates/s", "critic/q 1.5", "100 updates/s, critic/q 2.5"]


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_every_stage_has_its_own_name_count_and_rate(clock, capsys):
    with console.training_progress("brac_v on x", STAGES) as show:
        for clock[0], done, values in REPORTS:
            if values and show.under_way.stage == STAGES[0]:
                show.begin(STAGES[1])
            show(done, values)
    counts = [f"brac_v on x, bc first: {done} of 2,000" for done in (100, 200)]
    counts += [f"brac_v on x: {done} of 1,000" for done in (50, 450)]
    lines = [count + (rate and f", {rate}") for count, rate in zip(counts, RATES)]
    assert capsys.readouterr().err.splitlines() == lines


def test_a_stage_may_end_earlier(clock, capsys):
    stages = [Planned("dynamics", "dynamics", 3000, True), Planned("mopo", "", 900)]
    with console.training_progress("mopo on x", stages) as show:
        clock[0] = 5
        show(20, {"held-out error": 1.0})
        show.begin(stages[1])
        clock[0] = 9
        show(50, {"critic/q": 1.0})
    assert capsys.readouterr().err.splitlines() == [
        "mopo on x, dynamics first: 20 of at most 3,000, held-out error 1",
        "mopo on x: 50 of 900, critic/q 1",
    ]


def test_the_bar_of_the_last_stage_follows_that_of_the_first(monkeypatch):
    written = io.StringIO()
    screen = Console(file=written, force_terminal=True, width=120)
    monkeypatch.setattr(console, "err", screen)
    with console.training_progress("brac_v on x", STAGES) as show:
        for _, done, values in REPORTS:
            if values and show.under_way.stage == STAGES[0]:
                show.begin(STAGES[1])
            show(done, values)
    frames = [line for line in written.getvalue().splitlines() if "brac_v" in line]
    assert "brac_v on x, bc first" in frames[0]
    assert "0/2000" in frames[0]
    assert "bc first" not in frames[-1]
    assert "450/1000" in frames[-1]
    assert "critic/q 2.5" in frames[-1]


def test_a_long_compilation_is_told_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(console, "PATIENCE", 0.05)
    with console.training_progress("fitting", [Planned("fit", "", 10)]) as show:
        time.sleep(0.3)
        show(5, {})
        show(10, {"loss": 1.0})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fitting: compiling"
    assert lines[-1].startswith("fitting: 10 of 10")
    assert lines[-1].endswith("finishing")
