import pytest

from manyhands import UserError, fit, make
from manyhands.behavior.options import resolve


@pytest.mark.parametrize(
    ("transitions", "steps"),
    [(0, 12_000), (40_000, 12_000), (100_000, 30_000), (10**6, 60_000)],
)
def test_more_data_more_updates(transitions, steps):
    assert resolve("default", {}, transitions).steps == steps
    assert resolve("default", {"steps": 7}, transitions).steps == 7
    assert resolve("paper", {}, transitions).steps == 500_000


def test_a_number_of_updates_must_make_sense():
    with pytest.raises(UserError, match="steps: expected at least 1, got 0"):
        resolve("default", {"steps": 0}, 10)


def test_the_more_data_the_weaker_the_decay():
    options = resolve("default", {}, 10)
    assert options.decay(100_000) == 0.2
    assert options.decay(500) == 4.0  # not 40: networks could not tell sources apart
    assert resolve("paper", {}, 10).decay(500) == 0


def test_little_data_is_enough():
    """With a decay of 20 learning rates, and not of 4, the ARI was 0.60."""
    found = fit(make("fork-3", 1000), k=3, steps=2000, policy_width=64, batch_size=128)
    assert found.summary["behavior"]["ari"] > 0.95
