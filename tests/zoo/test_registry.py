"""The data sets that ship are what they were when they were registered."""

import warnings

import pytest

from manyhands.zoo import registry
from manyhands.zoo.registry import Check
from manyhands.zoo.tasks import TASKS, data_sets

QUICK = [f"{task}-medium-replay" for task in TASKS]  # most of the stored policies


def test_all_data_sets_are_registered():
    known = registry._read(registry.REGISTRY)["fingerprints"]
    assert list(known) == list(data_sets())
    assert len(set(known.values())) == len(known) == 27


def compare(names):
    checks = list(registry.check(names))
    if registry.machine() == registry.made_on():
        assert [check.name for check in checks if not check.same] == []
    else:
        others = [check.name for check in checks if not check.same]
        warnings.warn(
            f"made on {registry.made_on()}; here differ {others}", stacklevel=2
        )
    return checks


def test_data_sets_have_not_changed():
    assert len(compare(QUICK)) == 3


@pytest.mark.slow
def test_no_data_set_has_changed():
    assert len(compare(data_sets())) == 27


def test_what_is_registered_is_found_again_and_a_change_is_noticed(tmp_path):
    path = tmp_path / "fingerprints.json"
    registry.write([Check("hopper-random", None, "wrong")], path)
    assert registry.made_on(path) == registry.machine()
    (found,) = registry.check(["hopper-random"], path)
    assert not found.same
    registry.write([found], path)
    (again,) = registry.check(["hopper-random"], path)
    assert again.same
    assert registry.made_on(tmp_path / "absent") == "none"
