"""Hyper-parameters: what may be given, and what is said of the rest."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from manyhands import UserError, hyper


@dataclass(frozen=True)
class Some:
    steps: int = hyper.option(10, "Updates.", hyper.COUNT)
    rate: float = hyper.option(0.1, "How fast.", hyper.POSITIVE)
    share: float = hyper.option(0.5, "How much.", hyper.PART)
    discount: float = hyper.option(0.9, "How far.", hyper.SHARE)
    start: Literal["here", "there"] = hyper.option("here", "Where.")
    decay: bool = hyper.option(True, "Slower.")
    offset: float = hyper.option(0.0, "Anything.")


PRESETS = {"default": Some(), "paper": Some(steps=500)}


def test_what_differs():
    assert hyper.varying([Some(), Some(rate=2, steps=3), Some(rate=2)]) == [
        {"steps": 10, "rate": 0.1},
        {"steps": 3, "rate": 2},
        {"steps": 10, "rate": 2},
    ]
    assert hyper.varying([Some()]) == [{}]


def test_a_preset_with_changes():
    changes = {"rate": 2, "start": "there", "discount": 1.0, "steps": np.int64(7)}
    assert hyper.resolve(PRESETS, "paper", {}) == Some(steps=500)
    assert hyper.resolve(PRESETS, "paper", changes) == Some(
        steps=7, rate=2, start="there", discount=1.0
    )


@pytest.mark.parametrize("seven", [7, 7.0, np.int64(7)])
def test_whole_numbers_are_pythons(seven):
    steps = hyper.resolve(PRESETS, "default", {"steps": seven}).steps
    assert (type(steps), steps) == (int, 7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stpes": 1}, "stpes: expected one of the options steps, rate"),
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"steps": 1.5}, "steps: expected a whole number at least 1, got 1.5"),
        ({"steps": float("nan")}, "steps: expected a whole number at least 1, got nan"),
        ({"rate": 0.0}, "rate: expected above 0, got 0.0"),
        ({"rate": float("nan")}, "rate: expected above 0, got nan"),
        ({"steps": "7"}, "steps: expected a whole number at least 1, got '7'"),
        ({"rate": "fast"}, "rate: expected a number above 0, got 'fast'"),
        ({"rate": "0.1"}, "rate: expected a number above 0, got '0.1'"),
        ({"offset": "1"}, "offset: expected a number, got '1'"),
        ({"share": 1.0}, "share: expected between 0 and 1, got 1.0"),
        ({"discount": 1.1}, "discount: expected from 0 to 1, got 1.1"),
        ({"start": "foo"}, "start: expected one of here, there, got foo"),
        ({"decay": 1}, "decay: expected true or false, got 1"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_was_expected(changes, words):
    with pytest.raises(UserError) as error:
        hyper.resolve(PRESETS, "default", changes)
    assert str(error.value).startswith(words)


def test_an_unknown_preset_is_refused():
    with pytest.raises(UserError, match="preset: expected one of default, paper"):
        hyper.resolve(PRESETS, "papre", {})
