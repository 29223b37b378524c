"""The examples run, at sizes that take seconds, and print what they promise."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = "--transitions 800 --steps 20"
# By name: the arguments, what is printed, and what is written.
RUNS = {
    "1_fit_behaviors": (
        SMALL,
        r"behavior 0: \d+ trajectories.*ARI.*unseen trajectory of \S+: behavior",
        "example-1/report.html",
    ),
    "2_importance_sampling": (
        SMALL,
        r"logged probabilities: return of the new policy \d.*one Gaussian: return",
        None,
    ),
    "3_train_and_evaluate": (
        "--transitions 800 --fit-steps 20 --steps 6 --episodes 2",
        r"lbrac_v: return .* over 2 episodes.*bc: return .* over 2 episodes",
        "example-3/lbrac_v/policy.safetensors",
    ),
    "4_your_own_logs": (
        "--shifts 20 --steps 20",
        r"behavior 0: \d+ shifts.*at level \+1 the policy sets [+-]\d",
        "example-4/fit/report.html",
    ),
    "5_sweep": (
        SMALL + " --k 2 3 --seeds 0 1",  # as many as in the documentation's tests
        r"\n  2 +-?\d\.\d+ ± \d.*\n  3 +-?\d\.\d+ ± \d",
        "example-5/report.html",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_it_runs(name, tmp_path, monkeypatch, capsys):
    words, printed, written = RUNS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *words.split()])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert re.search(printed, capsys.readouterr().out, re.DOTALL)
    if written:
        assert (tmp_path / written).stat().st_size > 0


def test_all_of_them_are_short_and_tested():
    numbered = {path.stem: path for path in EXAMPLES.glob("[0-9]_*.py")}
    assert set(numbered) == set(RUNS)
    for path in numbered.values():
        assert len(path.read_text().splitlines()) < 100, path.name
