"""More sources than the built-in data sets have."""

from itertools import product

import pytest

from manyhands import fit
from manyhands.envs.fork_demonstrators import Demonstrator, record


@pytest.mark.learns
def test_twelve_sources_are_told_apart_with_their_number_unknown():
    """Both sides, two widths, three speeds; some twenty trajectories of each.

    A third of the default width and a quarter of its updates keep this short. That is
    enough to mix no two of them, not to find that every code but twelve is too many.
    """
    crowd = {
        f"{side} {width} {speed}": Demonstrator(side, width, 1.0, speed, noise=0.12)
        for side, width, speed in product((-1.0, 1.0), (0.55, 0.9), (0.5, 0.7, 0.9))
    }
    data = record(crowd, "twelve", transitions=12 * 500, seed=0)
    found = fit(data, k="auto", steps=3000, policy_width=64).summary["behavior"]
    assert found["purity"] >= 0.95
    assert 12 <= found["codes_used"] <= 24
    assert found["ari"] >= 0.7
