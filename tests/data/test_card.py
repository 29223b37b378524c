"""Each remark appears where it should and nowhere else."""

import itertools
import json

import numpy as np
import pytest

from manyhands import Trajectories, load, make
from manyhands.data.card import card, remarks

LENGTH, COUNT = 20, 12


def healthy(**changes) -> Trajectories:
    rows = LENGTH * COUNT
    random = np.random.default_rng(0)
    arrays = {
        "observations": random.normal(size=(rows, 3)),
        "actions": random.uniform(-0.9, 0.9, size=(rows, 2)),
        "rewards": random.normal(size=rows),
        "terminals": np.zeros(rows, bool),
        "timeouts": np.arange(rows) % LENGTH == LENGTH - 1,
        "final_observations": random.normal(size=(COUNT, 3)),
    }
    return Trajectories.from_arrays(**(arrays | changes))


def ends() -> np.ndarray:
    return np.arange(LENGTH * COUNT) % LENGTH == LENGTH - 1


def test_nothing_to_remark_on_healthy_data():
    assert remarks(healthy()) == []
    assert remarks(make("fork-3", 3000)) == []


@pytest.mark.parametrize("name", ["fork-1", "fork-2", "fork-5", "leap-1"])
def test_lengths_that_vary_are_no_time_limit(name):
    """Even where few trajectories happen to have the same, longest length."""
    for transitions, seed in itertools.product((200, 500, 2000), (0, 1)):
        found = remarks(make(name, transitions, seed))
        assert not any("time limit" in remark for remark in found)


def ending_after(lengths: list[int]) -> Trajectories:
    """In terminals."""
    ends = np.isin(np.arange(sum(lengths)), np.cumsum(lengths) - 1)
    random = np.random.default_rng(0)
    rows = random.uniform(-0.9, 0.9, (len(ends), 2))
    return Trajectories.from_arrays(
        observations=rows,
        actions=rows,
        rewards=rows[:, 0],
        terminals=ends,
        timeouts=ends & False,
        final_observations=rows[: len(lengths)],
    )


@pytest.mark.parametrize(
    ("longest", "found"), [(4, False), (5, True), (6, True), (2, False)]
)
def test_a_time_limit_heaps_trajectories_up(longest, found):
    """Among others of different lengths; then among others of nearly that length."""
    said = "a terminal after exactly 100 steps"
    apart = ending_after([*range(10, 70)] + [100] * longest)
    assert any(said in remark for remark in remarks(apart)) == found
    near = ending_after([98] * 3 + [99] * 3 + [100] * longest)
    assert not any(said in remark for remark in remarks(near))


def column(values: np.ndarray, index: int, value: float) -> np.ndarray:
    values = np.array(values)
    values[:, index] = value
    return values


CASES = {
    "time-outs are missing: trajectories are divided at terminals": dict(
        timeouts=None, terminals=ends()
    ),
    "no time-out is marked, and 12 of 12 trajectories end in a terminal after exactly "
    "20 steps": dict(timeouts=ends() & False, terminals=ends()),
    "constant observation columns: 1": dict(
        observations=column(healthy().observations, 1, 0.5)
    ),
    "50.0% of action values are at the bounds, most in dimension 0 (100.0%)": dict(
        actions=column(healthy().actions, 0, 1.0)
    ),
    "all actions are whole numbers, 2 different ones: discrete actions are not": dict(
        actions=np.arange(LENGTH * COUNT) % 2
    ),
    "all actions are whole numbers, once clipped: discrete actions are not": dict(
        actions=np.arange(LENGTH * COUNT) % 4, clip=True
    ),
    "constant action dimensions: 0": dict(actions=column(healthy().actions, 0, 1.0)),
    "every reward is 2": dict(rewards=np.full(LENGTH * COUNT, 2.0)),
    "240 next observations differ from the observation that follows in the same "
    "trajectory, first at row 0": None,
    "3 of 480 action values were outside the bounds and are clipped here": dict(
        actions=np.concatenate([np.full((3, 1), 1.5), np.zeros((477, 1))]).reshape(
            -1, 2
        ),
        clip=True,
    ),
    "the observation after the last step is not stored for 12 trajectories; learning "
    "values leaves out the last step of 12": dict(final_observations=None),
}


@pytest.mark.parametrize("remark", CASES)
def test_a_remark_for_each_problem(remark):
    if remark.startswith("240"):
        remark = remark.replace("240", str(LENGTH * COUNT - COUNT))
        data = healthy(next_observations=np.zeros((LENGTH * COUNT, 3)))
    else:
        data = healthy(**CASES[remark])
    assert any(found.startswith(remark) for found in remarks(data)), remarks(data)


def test_cut_off_and_early_time_outs():
    timeouts = ends()
    timeouts[-1] = False  # the last trajectory just stops
    timeouts[24] = True  # the second one is in two parts, of 5 and 15 steps
    data = healthy(timeouts=timeouts, final_observations=np.zeros((COUNT + 1, 3)))
    found = remarks(data)
    assert found[0].startswith("1 trajectory is cut off")
    assert found[0].count("first trajectory 12") == 1
    assert found[1].startswith(
        "2 time-outs come before the usual 20 steps, first trajectory 1 after 5"
    )


def test_duplicated_trajectories():
    data = healthy()
    twice = data[[*range(COUNT), 3, 5]]
    assert remarks(twice) == [
        "2 trajectories are copies of others, first trajectory 12 (of 3)"
    ]


def test_card_of_a_small_set_by_hand(small):
    result = card(small)
    assert json.loads(json.dumps(result)) == result
    assert (result["trajectories"], result["transitions"]) == (4, 10)
    assert result["returns"]["mean"] == (3 + 18 + 7 + 17) / 4
    assert result["lengths"]["max"] == 4
    assert result["ends"] == {"terminal": 2, "timeout": 1, "cut_off": 1}
    bob = result["sources"][1]
    assert (bob["name"], bob["trajectories"], bob["transitions"]) == ("bob", 2, 4)
    assert bob["return_mean"] == 5
    assert bob["log_prob"] == pytest.approx(small.log_probs[[0, 1, 2, 7]].mean())


def test_remarks_on_files_that_others_made(real_data):
    kitchen = remarks(load(real_data / "kitchen_complete_d4rl_v0.hdf5"))
    assert kitchen[0].startswith("no time-out is marked")
    assert any(r.startswith("constant observation columns: 30, 31") for r in kitchen)
    pendulum = remarks(load(real_data / "pendulum_rllib_sac.hdf5"))
    assert len(pendulum) == 1
    assert "not stored for 100 trajectories" in pendulum[0]
