"""What a call of `train` asks for."""

import pytest

from manyhands.algos import asked
from manyhands.algos.registry import ALGORITHMS


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
    [options], several = asked.grid(ALGORITHMS[algo], preset, changes)
    assert options.warm_up == warm_up
    assert not several


def test_presets_are_as_they_are_written():
    for learner in ALGORITHMS.values():
        for name, preset in learner.presets.items():
            assert asked.grid(learner, name, {}) == ([preset], False)
            at_full_length = {"steps": preset.steps}
            assert asked.grid(learner, name, at_full_length) == ([preset], False)
