"""The data sets that ship are what they were when they were registered."""

import pytest

from manyhands.agents.tasks import TASKS, data_set_sizes
from zoo import registry
from zoo.registry import Check

QUICK = [f"{task}-medium-replay" for task in TASKS]  # most of the stored policies


def test_all_data_sets_are_registered_on_each_machine():
    for known in registry._read(registry.REGISTRY).values():
        assert list(known) == list(data_set_sizes())
        assert len(set(known.values())) == len(known) == 27


def compare(names):
    if registry.machine() not in registry.machines():
        pytest.skip(f"no data sets are registered for {registry.machine()}")
    checks = list(registry.check(names))
    assert [check.name for check in checks if not check.same] == []
    return checks


def test_data_sets_have_not_changed():
    assert len(compare(QUICK)) == 3


@pytest.mark.slow
def test_no_data_set_has_changed():
    assert len(compare(data_set_sizes())) == 27


def test_what_is_registered_is_found_again_and_a_change_is_noticed(tmp_path):
    path = tmp_path / "fingerprints.json"
    registry.write([Check("hopper-random", None, "wrong")], path)
    assert registry.machines(path) == [registry.machine()]
    (found,) = registry.check(["hopper-random"], path)
    assert not found.same
    registry.write([found], path)
    (again,) = registry.check(["hopper-random"], path)
    assert again.same
    assert registry.machines(tmp_path / "absent") == []


def test_fingerprints_of_other_machines_are_kept(tmp_path):
    path = tmp_path / "fingerprints.json"
    path.write_text('{"another machine": {"hopper-random": "its own"}}')
    (found,) = registry.check(["hopper-random"], path)
    assert found.expected is None
    registry.write([found], path)
    assert registry._read(path) == {
        "another machine": {"hopper-random": "its own"},
        registry.machine(): {"hopper-random": found.found},
    }
