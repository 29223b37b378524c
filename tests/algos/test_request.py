"""Requests: arguments of `train` are checked once, and say what will be trained."""

import json
import subprocess
import sys

import pytest

from manyhands import UserError, fit, make
from manyhands.algos import request
from manyhands.algos.registry import ALGORITHMS


def test_of_few_trajectories_no_more_behaviors_are_looked_for():
    """Unless somebody asks for them."""
    three, many = make("fork-2", 2000)[:3], make("fork-2", 2000)
    learner = ALGORITHMS["lbrac_v"]
    assert request.check_ks(learner, [three], None, None) == ([3], False)
    assert request.check_ks(learner, [many], None, None) == ([10], False)
    with pytest.raises(UserError, match="from 1 to the 3 trajectories, .*got 10"):
        request.check_ks(learner, [three], None, 10)
    found = fit(three, steps=4, policy_width=8)
    assert found.summary["behavior"]["k"] == 3


@pytest.mark.parametrize(
    ("algo", "preset", "changes", "warm_up"),
    [
        ("lbrac_v", "default", {"steps": 500}, 100),
        ("brac_v", "default", {"steps": 100_000}, 20_000),
        ("cql", "default", {"steps": 500_000}, 10_000),
        ("cql", "paper", {}, 40_000),
        ("cql", "default", {"steps": 500, "warm_up": 500}, 500),
    ],
)
def test_a_short_run_warms_up_for_a_fifth_of_it(algo, preset, changes, warm_up):
    [options], several = request.option_grid(ALGORITHMS[algo], preset, changes)
    assert options.warm_up == warm_up
    assert not several


@pytest.mark.parametrize(
    ("algo", "preset", "changes", "updates"),
    [
        ("plas", "default", {"steps": 20}, 100_000),
        ("brac_v", "default", {"behavior_steps": 30}, 30),
        # As many as `fit` takes: three for ten of 100,000 transitions.
        ("lbrac_v", "default", {}, 30_000),
        ("lbrac_v", "default", {"behavior_steps": 50}, 50),
        ("clone", "paper", {}, 500_000),
    ],
)
def test_updates_of_what_is_fitted_first(algo, preset, changes, updates):
    learner = ALGORITHMS[algo]
    [options], _ = request.option_grid(learner, preset, changes)
    assert (
        request.behavior_options_of(learner, preset, options, 100_000).steps == updates
    )


def test_presets_are_as_they_are_written():
    for learner in ALGORITHMS.values():
        for name, preset in learner.presets.items():
            assert request.option_grid(learner, name, {}) == ([preset], False)
            at_full_length = {"steps": preset.steps}
            assert request.option_grid(learner, name, at_full_length) == (
                [preset],
                False,
            )


def test_a_request_plans_its_stages():
    """The command line, `--plan` and the estimate read them."""
    data = make("fork-2", 300)

    def stages(algo: str, **changes) -> list[tuple]:
        found = request.resolve(data, algo, **changes).stages
        return [(s.name, s.folder, s.steps, s.at_most) for s in found]

    tiny = dict(behavior_steps=30, steps=50)
    own = ("lbrac_v", "", 50, False)
    assert stages("lbrac_v", **tiny) == [("behaviors", "behavior", 30, False), own]
    behavior = fit(data, k=2, steps=4, policy_width=8)
    assert stages("lbrac_v", behavior=behavior, **tiny) == [own]
    assert stages("bc", steps=7) == [("bc", "", 7, False)]
    dynamics = ("dynamics", "dynamics", 9, True)
    assert stages("mopo", steps=7, model_steps=9) == [
        dynamics,
        ("mopo", "", 7, False),
    ]
    assert stages("mopp", steps=7, model_steps=9, behavior=behavior)[0] == dynamics


def test_replicas_come_in_one_order():
    data = make("fork-2", 300)
    found = request.resolve(
        [data, data], "lbrac_v", k=[2, 3], seed=[0, 1], beta=[0.1, 0.2]
    )
    cells = list(found.cells())
    assert cells == sorted(cells)
    assert len(cells) == found.replicas == 16
    assert cells[1] == request.Cell(0, 0, 0, 1)


REFUSED = {
    "fit('mine.npz')": "data: expected a data set (mh.load), got 'mine.npz'",
    "train([data, 3], 'bc')": "data: expected a data set (mh.load), got 3",
    "fit(data, k=2.5)": "k: expected a number from 1 to the",
    "train(data, k=2.5)": "k: expected a number from 1 to the",
    "train(data, 'bc', policy_rate=[])": "policy_rate: expected at least one number",
    "fit(data, steps='10')": "steps: expected a whole number at least 1, got '10'",
    "train(data, steps='10')": "steps: expected a whole number at least 0, got '10'",
    "train(data, 'bc', policy_rate='0.1')": "policy_rate: expected a number above 0, "
    "got '0.1'",
    "fit(data, seed=-1)": "seed: expected a number from 0 to 2^31 - 1, got -1",
}
PROGRAM = """
import json, sys
import manyhands as mh
data = mh.make("fork-2", 500)
said = {}
for call in sys.argv[1:]:
    try:
        eval("mh." + call)
        said[call] = "no error"
    except Exception as error:
        said[call] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """By the library as users have it: tests also check the types of arguments."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *REFUSED], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("call", REFUSED)
def test_what_is_no_data_and_no_number_is_refused(said, call):
    assert said[call].startswith(f"UserError: {REFUSED[call]}")
