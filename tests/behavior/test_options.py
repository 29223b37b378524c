import pytest

from manyhands import UserError
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
