"""The promise: sources are recovered, their number found, their densities learned."""

import numpy as np
import pytest

from manyhands import Behavior, Trajectories, fit, load, make
from manyhands.behavior.options import Options
from manyhands.behavior.problem import prepare

# Less than half of the default: enough for the promise, and the test stays short.
STEPS = {2: 4000, 3: 4000, 4: 4000, 5: 5000}


def true_heldout(data: Trajectories) -> float:
    """The mean log-probability, as logged, of the very steps that were held out."""
    share = Options().holdout
    _, held = data.split_within(share, seed=0)
    judged = prepare(data, share, standardise=True, seed=0).test
    assert np.array_equal(judged.actions, held.actions)
    return float(held.log_probs.mean())


def about(behavior: Behavior) -> dict:
    return behavior.summary["behavior"]


@pytest.mark.learns
@pytest.mark.parametrize("k", STEPS)
def test_sources_are_recovered_with_their_number_given_or_not(k):
    data = make(f"fork-{k}", 20_000)
    given, auto = fit(data, k=[k, "auto"], steps=STEPS[k], compare=k == 2)
    assert about(given)["ari"] >= 0.98
    assert about(auto)["ari"] >= 0.95
    assert about(given)["codes_used"] == about(auto)["codes_used"] == k
    true = true_heldout(data)
    for behavior in (given, auto):
        assert about(behavior)["heldout_log_prob"] == pytest.approx(true, abs=0.1)
    if k == 2:
        # Where both may be, one Gaussian has to be wide enough for either way.
        single = about(given)["single_gaussian_heldout_log_prob"]
        assert about(given)["heldout_log_prob"] - single >= 0.3


@pytest.mark.learns
def test_sources_of_real_data(real_data):
    """Ten episodes: uniform noise, a policy, and that policy with 30 % noise."""
    data = load(real_data / "halfcheetah_brac_example.hdf5")
    found = fit(data, k=3, steps=4000)
    assert about(found)["ari"] == 1
    assert about(found)["codes_used"] == 3
