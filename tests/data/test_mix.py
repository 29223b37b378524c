import numpy as np
import pytest

from manyhands import Trajectories, UserError, concatenate


def part(name, source=None, names=None, **changes) -> Trajectories:
    arrays = {
        "observations": np.zeros((4, 2)),
        "actions": np.zeros((4, 1)),
        "rewards": np.ones(4),
        "terminals": [False, True, False, True],
        "timeouts": np.zeros(4),
        "source": source,
        "source_names": names,
        "name": name,
    }
    return Trajectories.from_arrays(**(arrays | changes))


def labels(data: Trajectories) -> list[str]:
    assert data.sources is not None
    return [data.source_names[code] for code in data.sources]


def test_unlabelled_parts_are_one_source_each():
    mixed = concatenate([part("left"), part("right")])
    assert labels(mixed) == ["left", "left", "right", "right"]
    assert mixed.ids.tolist() == [0, 1, 2, 3]
    assert mixed.transitions == 8


def test_names_are_the_same_source_everywhere_and_numbers_are_not():
    mixed = concatenate(
        [part("a", [0, 1], ["ann", "bob"]), part("b", ["bob", "cy"]), part("c", [0, 1])]
    )
    assert labels(mixed) == ["ann", "bob", "bob", "cy", "c/0", "c/1"]


def test_by_part_ignores_labels_and_equal_names_are_numbered():
    parts = [part("run", [0, 1], ["ann", "bob"]), part("run")]
    assert labels(concatenate(parts, by_part=True)) == ["run#1"] * 2 + ["run#2"] * 2


def test_log_probs_stay_only_where_all_have_them():
    with_them, without = part("a", log_probs=np.ones(4)), part("b")
    assert concatenate([with_them, with_them]).log_probs is not None
    assert concatenate([with_them, without]).log_probs is None


def test_the_environment_stays_only_where_all_agree():
    hopper, walker = part("a", env_id="Hopper-v5"), part("b", env_id="Walker2d-v5")
    assert concatenate([hopper, hopper]).env_id == "Hopper-v5"
    assert concatenate([hopper, walker]).env_id is None


def test_parts_that_differ_in_shape_or_bounds_are_refused():
    with pytest.raises(UserError, match="b: observation_size: expected 2 .* got 3"):
        concatenate([part("a"), part("b", observations=np.zeros((4, 3)))])
    with pytest.raises(UserError, match="b: action_high: expected .*1.* got .*2"):
        concatenate([part("a"), part("b", action_bounds=(-1, 2))])
    with pytest.raises(UserError, match="at least one"):
        concatenate([])


def test_splitting_by_source_and_mixing_again_gives_the_same_labels(small):
    parts = [small[small.sources == code] for code in range(3)]
    mixed = concatenate(parts)
    assert labels(mixed) == ["ann", "bob", "bob", "cy [test]"]
    assert sorted(mixed.returns) == sorted(small.returns)
