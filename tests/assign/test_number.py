"""How many hands: numbers on problems where they are known."""

import numpy as np
import pytest
from hands import linear_hands

from manyhands.assign.inputs import prepare
from manyhands.assign.number import _strength, how_many


def test_groups_of_three_hands_name_three():
    o, a, offsets, source = linear_hands(each=54, steps=15)
    group = np.empty(len(source), int)
    group[np.argsort(source, kind="stable")] = np.arange(len(source)) // 6
    found = how_many(prepare(o, a, offsets, group=group))
    assert found.best == found.guess == 3
    assert found.low <= 3 <= found.high


def test_an_interval_holds_three_hands():
    o, a, offsets, _ = linear_hands(each=30)
    found = how_many(prepare(o, a, offsets))
    assert found.low <= 3 <= found.high
    assert found.why.endswith(".")
    if found.best is not None:
        assert found.high <= 2 * found.low


def test_one_hand_is_not_excluded():
    o, a, offsets, _ = linear_hands(hands=1, each=60)
    found = how_many(prepare(o, a, offsets))
    assert found.low == 1


def test_few_trajectories_tell_nothing():
    o, a, offsets, _ = linear_hands(each=2)
    found = how_many(prepare(o, a, offsets))
    assert (found.low, found.high, found.best) == (1, 6, None)
    assert "too few to tell" in found.why


@pytest.mark.parametrize(
    ("labels", "crossed", "expected"),
    [
        ([0, 0, 0, 1, 1], [2, 2, 2, 0, 0], 1.0),
        ([0, 0, 0, 1, 1], [2, 2, 1, 0, 0], 1 / 3),
        ([0, 0, 1], [0, 1, 1], 0.0),
    ],
)
def test_prediction_strength_counts_pairs(labels, crossed, expected):
    assert np.isclose(_strength(np.array(labels), np.array(crossed)), expected)
