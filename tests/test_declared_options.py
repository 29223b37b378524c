"""Hyper-parameters: what may be given, and what is said of the rest."""

import importlib
from typing import Literal

import jax
import numpy as np
import pytest

from manyhands import UserError
from manyhands.options import (
    COUNT,
    PART,
    POSITIVE,
    SHARE,
    as_pytree,
    choose,
    option,
    options,
    overrides,
    traced,
    traced_in,
    varying,
)


@options
class Some:
    steps: int = option(10, "Updates.", COUNT)
    rate: float = traced(0.1, "How fast.", POSITIVE)
    share: float = traced(0.5, "How much.", PART)
    discount: float = traced(0.9, "How far.", SHARE)
    start: Literal["here", "there"] = option("here", "Where.")
    decay: bool = option(True, "Slower.")
    offset: float = traced(0.0, "Anything.")


PRESETS = {"default": Some(), "paper": Some(steps=500)}


def test_what_differs():
    assert varying([Some(), Some(rate=2, steps=3), Some(rate=2)]) == [
        {"steps": 10, "rate": 0.1},
        {"steps": 3, "rate": 2},
        {"steps": 10, "rate": 2},
    ]
    assert varying([Some()]) == [{}]


def test_a_preset_with_changes():
    changes = {"rate": 2, "start": "there", "discount": 1.0, "steps": np.int64(7)}
    assert choose(PRESETS, "paper", {}) == Some(steps=500)
    assert choose(PRESETS, "paper", changes) == Some(
        steps=7, rate=2, start="there", discount=1.0
    )


@pytest.mark.parametrize("seven", [7, 7.0, np.int64(7)])
def test_whole_numbers_are_pythons(seven):
    steps = choose(PRESETS, "default", {"steps": seven}).steps
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
        choose(PRESETS, "default", changes)
    assert str(error.value).startswith(words)


def test_an_unknown_preset_is_refused():
    with pytest.raises(UserError, match="preset: expected one of default, paper"):
        choose(PRESETS, "papre", {})


POSTPONED = """
from __future__ import annotations

from typing import Literal

from manyhands.options import COUNT, POSITIVE, option, options, traced


@options
class Postponed:
    steps: int = option(10, "Updates.", COUNT)
    rate: float = traced(0.1, "How fast.", POSITIVE)
    decay: float = option(0.1, "Decides the program.", POSITIVE)
    start: Literal["here", "there"] = option("here", "Where.")
"""


def test_postponed_annotations_change_nothing(tmp_path, monkeypatch):
    """A learner file may begin with `from __future__ import annotations`."""
    monkeypatch.syspath_prepend(tmp_path)
    found = {}
    for name, text in (
        ("later", POSTPONED),
        ("now", POSTPONED.replace("from __future__ import annotations", "")),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        found[name] = importlib.import_module(name).Postponed
    for kind in found.values():
        presets = {"default": kind()}
        assert traced_in(kind) == ("rate",)
        as_pytree(kind)
        assert jax.tree.leaves(kind(rate=0.3)) == [0.3]
        steps = choose(presets, "default", {"steps": np.int64(7)}).steps
        assert (type(steps), steps) == (int, 7)
        for wrong in ({"steps": 1.5}, {"rate": 0}, {"start": "foo"}, {"decay": "1"}):
            with pytest.raises(UserError):
                choose(presets, "default", wrong)
        given = overrides(presets, several=True)
        assert "tuple[float, ...]" in str(given.__annotations__["rate"])
        assert "tuple" not in str(given.__annotations__["decay"])


def test_what_is_traced_is_a_number_and_every_field_is_declared():
    @options
    class Wrong:
        start: str = traced("here", "Where.")  # pyright: ignore

    with pytest.raises(AssertionError, match="start is traced: expected a float"):
        choose({"default": Wrong()}, "default", {"start": "there"})
    with pytest.raises(AssertionError, match="start: expected option"):

        @options
        class Bare:
            start: str = "here"
