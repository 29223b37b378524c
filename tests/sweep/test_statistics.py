"""What several runs say together, against numbers worked out by hand."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from manyhands.sweep.statistics import improvement, iqm, iqm_interval


@pytest.mark.parametrize("many", [4, 8, 100])
def test_the_interquartile_mean_is_the_mean_of_the_middle_half(many):
    scores = np.random.default_rng(0).normal(size=(3, many))
    np.testing.assert_allclose(iqm(scores), trim_mean(scores, 0.25, axis=1))


def test_ends_of_the_middle_half_count_in_part():
    # Of three runs the middle half is a quarter of the first and last: 3/4 to 9/4.
    assert iqm(np.array([3.0, 0.0, 1.0])) == pytest.approx(
        (0.25 * 0 + 1 + 0.25 * 3) / 1.5
    )
    assert iqm(np.array([2.0])) == 2.0


def test_intervals_hold_the_value_and_shrink_with_more_runs():
    random = np.random.default_rng(0)
    wide, narrow = (
        iqm_interval([random.normal(size=many) for _ in range(4)]) for many in (5, 500)
    )
    widths = []
    for value, low, high in (wide, narrow):
        assert low is not None
        assert high is not None
        assert low <= value <= high
        widths.append(high - low)
    assert widths[1] < 0.3 * widths[0]
    assert abs(narrow.value) < 0.1


def test_runs_are_drawn_anew_within_tasks():
    """Across tasks, as if they were one, these would have intervals."""
    tasks = [np.zeros(5), np.full(5, 100.0)]
    assert iqm_interval(tasks) == (50.0, 50.0, 50.0)
    assert improvement(tasks, tasks[::-1]) == (0.5, 0.5, 0.5)


def test_every_task_has_the_same_weight():
    assert iqm_interval([np.full(5, 1.0), np.full(2, 3.0)]).value == pytest.approx(2.0)
    scores = np.random.default_rng(0).normal(size=12)
    doubled = iqm(np.repeat(scores, 2))
    assert iqm(scores, np.full(12, 2.0)) == pytest.approx(doubled)


def test_of_single_runs_there_are_no_intervals():
    few, more = [np.array([1.0]), np.array([2.0])], [np.zeros(3), np.zeros(3)]
    assert iqm_interval(few) == (1.5, None, None)
    assert improvement(few, more) == (1.0, None, None)
    assert improvement(more, few) == (0.0, None, None)


def test_an_interval_of_improvement_has_the_spread_of_its_draws():
    """Ours wins against theirs whenever the better of its two runs is drawn: the share
    of that in two draws is 0, 1/2 or 1."""
    value, low, high = improvement([np.array([0.0, 2.0])], [np.ones(2)])
    assert (value, low, high) == (0.5, 0.0, 1.0)


def test_what_has_diverged_is_worse_than_all_others():
    lost = np.array([5.0, -np.inf, 5.0])
    assert improvement([lost], [np.zeros(3)]).value == pytest.approx(2 / 3)
    assert improvement([np.zeros(3)], [lost]).value == pytest.approx(1 / 3)
    assert improvement([lost], [lost]).value == pytest.approx(
        (4 * 0.5 + 1 * 0.5 + 2) / 9
    )
    value, low, high = iqm_interval([lost])
    assert (value, low, high) == (-np.inf, -np.inf, pytest.approx(5.0))
    many = np.array([-np.inf, *[1.0] * 9])
    assert iqm(many) == 1.0  # among the lowest quarter


def test_improvement_counts_pairs():
    ours, theirs = [np.array([1.0, 3.0])], [np.array([0.0, 1.0, 2.0, 4.0])]
    # 1 wins against 0, ties with 1; 3 wins against 0, 1 and 2.
    assert improvement(ours, theirs).value == pytest.approx((1.5 + 3) / 8)
    assert improvement([np.ones(3)], [np.zeros(3)]) == (1.0, 1.0, 1.0)
