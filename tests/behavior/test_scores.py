"""Scores on tables worked out by hand."""

import numpy as np
import pytest

from manyhands.behavior.scores import calibration, recovery

SOURCES = np.repeat([0, 1, 2], [4, 3, 3])
ALL = ("ari", "nmi", "purity", "matched_accuracy")


@pytest.mark.parametrize("names", [[0, 1, 2], [2, 0, 1], [7, 3, 5]])
def test_a_perfect_division_whatever_its_codes_are_called(names):
    scores = recovery(SOURCES, np.array(names)[SOURCES])
    assert scores == pytest.approx(dict.fromkeys(ALL, 1.0))


def test_two_sources_under_one_code():
    scores = recovery(SOURCES, np.array([0, 1, 1])[SOURCES])
    # Pairs: of 45, 6 + 3 + 3 are of one source, 6 + 15 of one code, 12 of both.
    chance = 12 * 21 / 45
    assert scores["ari"] == pytest.approx((12 - chance) / ((12 + 21) / 2 - chance))
    # I(S; C) = H(C), as S tells C; divided by the mean of H(S) and H(C).
    h_s, h_c = entropy(0.4, 0.3, 0.3), entropy(0.4, 0.6)
    assert scores["nmi"] == pytest.approx(2 * h_c / (h_s + h_c))
    assert scores["purity"] == pytest.approx(0.7)
    assert scores["matched_accuracy"] == pytest.approx(0.7)


def test_one_source_under_two_codes():
    codes = np.array([0, 0, 3, 3, 1, 1, 1, 2, 2, 2])
    scores = recovery(SOURCES, codes)
    # Pairs: 12 of one source, 1 + 1 + 3 + 3 of one code, 8 of both.
    chance = 12 * 8 / 45
    assert scores["ari"] == pytest.approx((8 - chance) / ((12 + 8) / 2 - chance))
    h_s, h_c = entropy(0.4, 0.3, 0.3), entropy(0.2, 0.2, 0.3, 0.3)
    assert scores["nmi"] == pytest.approx(2 * h_s / (h_s + h_c))
    assert scores["purity"] == 1  # every code has one source
    assert scores["matched_accuracy"] == pytest.approx(0.8)  # but a source has two


def test_codes_that_know_nothing_of_the_sources():
    sources, codes = np.repeat([0, 1], 50), np.tile([0, 1], 50)
    scores = recovery(sources, codes)
    assert scores["ari"] == pytest.approx(0, abs=0.02)
    assert scores["nmi"] == pytest.approx(0, abs=1e-6)
    assert scores["purity"] == scores["matched_accuracy"] == 0.5


def test_everything_under_one_code():
    scores = recovery(SOURCES, np.zeros(10, int))
    assert scores["ari"] == pytest.approx(0)
    assert scores["purity"] == pytest.approx(0.4)


def entropy(*shares: float) -> float:
    return -float(np.sum(np.array(shares) * np.log(shares)))


TRUE = np.random.default_rng(0).normal(size=1000)


def test_exact_log_probabilities():
    scores = calibration(TRUE, TRUE)
    assert scores["bias"] == scores["mean_absolute_error"] == 0
    assert scores["effective_sample_size"] == pytest.approx(1)


@pytest.mark.parametrize("shift", [0.3, -2.0, 800.0])
def test_a_constant_shift_is_bias_and_cancels_in_normalized_weights(shift):
    """Also where exp(shift) would overflow."""
    scores = calibration(TRUE + shift, TRUE)
    assert scores["bias"] == pytest.approx(shift)
    assert scores["mean_absolute_error"] == pytest.approx(abs(shift))
    assert scores["effective_sample_size"] == pytest.approx(1)


def test_two_kinds_of_errors_in_closed_form():
    """A quarter of the weights is 3, the others 1: (3/2)^2 / (12/4) of the rows."""
    error = np.where(np.arange(1000) % 4 == 0, np.log(3), 0)
    scores = calibration(TRUE - error, TRUE)
    assert scores["bias"] == pytest.approx(-np.log(3) / 4)
    assert scores["mean_absolute_error"] == pytest.approx(np.log(3) / 4)
    assert scores["effective_sample_size"] == pytest.approx(0.75)
    # One weight far above all others counts as one row of a thousand.
    scores = calibration(TRUE - 100.0 * (np.arange(1000) == 7), TRUE)
    assert scores["effective_sample_size"] == pytest.approx(1e-3)


def test_single_precision_is_compared_in_double():
    scores = calibration(TRUE.astype(np.float32), TRUE.astype(np.float32))
    assert scores["bias"] == 0
