import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands import Trajectories, UserError, make


def plain(lengths: list[int], **changes) -> Trajectories:
    """Rows are numbered: observation and reward t is t, in trajectory order."""
    rows = sum(lengths)
    arrays = {
        "observations": np.arange(rows, dtype=np.float64)[:, None],
        "actions": np.zeros((rows, 1)),
        "rewards": np.arange(rows),
        "terminals": np.zeros(rows, bool),
        "trajectory": np.repeat(np.arange(len(lengths)), lengths),
        "final_observations": -np.arange(1, len(lengths) + 1)[:, None],
    }
    return Trajectories.from_arrays(**(arrays | changes))


def test_next_observations_come_from_the_next_row_and_the_final_observations():
    data = plain([2, 3])
    assert data.next_observations[:, 0].tolist() == [1, -1, 3, 4, -2]
    assert data.final_known.all()


def test_a_trajectory_column_makes_time_outs_of_ends_that_are_not_terminal():
    terminals = np.array([0, 1, 0, 0, 0], bool)
    data = plain([2, 3], terminals=terminals)
    assert data.terminals.tolist() == terminals.tolist()
    assert data.timeouts.tolist() == [False, False, False, False, True]


def test_time_outs_divide_and_the_last_rows_may_be_cut_off():
    data = plain(
        [6],
        trajectory=None,
        timeouts=[0, 1, 0, 0, 0, 0],
        terminals=[0, 0, 0, 1, 0, 0],
        final_observations=None,
    )
    assert data.offsets.tolist() == [0, 2, 4, 6]
    assert data.timeouts.tolist() == [False, True, False, False, False, False]
    assert not data.final_known.any()
    # The made-up next observation is the observation itself, never the next episode's.
    assert data.next_observations[:, 0].tolist() == [1, 1, 3, 3, 5, 5]


def test_a_row_that_is_both_is_a_terminal():
    data = plain([2], trajectory=None, timeouts=[False, True], terminals=[False, True])
    assert data.terminals.tolist() == [False, True]
    assert not data.timeouts.any()


def test_max_steps_divides_where_no_time_outs_are_marked():
    terminals = np.zeros(8, bool)
    terminals[4] = True
    data = plain(
        [8],
        trajectory=None,
        max_steps=3,
        terminals=terminals,
        final_observations=None,
    )
    assert data.lengths.tolist() == [3, 2, 3]
    assert np.flatnonzero(data.timeouts).tolist() == [2, 7]
    assert not data.timeouts_marked
    shorter = plain(
        [7],
        trajectory=None,
        max_steps=3,
        terminals=terminals[:7],
        final_observations=None,
    )
    assert np.flatnonzero(shorter.timeouts).tolist() == [2]  # the last two: cut off


def test_columns_of_one_are_accepted_and_arrays_are_copied_and_read_only():
    rewards = np.ones((4, 1))
    data = plain([4], rewards=rewards, terminals=np.zeros((4, 1)))
    rewards[0] = 9
    assert data.rewards.tolist() == [1, 1, 1, 1]
    assert data.observations.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        data.rewards[0] = 5
    with pytest.raises(AttributeError):
        data.rewards = rewards  # pyright: ignore


def test_sources_from_rows_or_trajectories_numbers_or_names():
    by_row = plain([2, 3], source=[5, 5, 2, 2, 2])
    assert by_row.sources is not None
    assert [by_row.source_names[s] for s in by_row.sources] == ["5", "2"]
    by_trajectory = plain([2, 3], source=np.array([b"zoe", b"al"]))
    assert by_trajectory.sources is not None
    names = [by_trajectory.source_names[s] for s in by_trajectory.sources]
    assert names == ["zoe", "al"]


NAN = np.array([0, 1, np.nan, 3, 4.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": np.arange(4)}, "rewards: expected length 5, got 4"),
        ({"actions": np.zeros((6, 1))}, "actions: expected length 5, got 6"),
        ({"observations": NAN}, "observations: row 2, column 0: expected a finite"),
        ({"rewards": NAN}, "rewards: row 2: expected a finite number, got nan"),
        ({"log_probs": [0, -np.inf, 0, 0, 0]}, "log_probs: row 1: expected .* -inf"),
        (
            {"actions": [[0], [0], [0], [1.5], [2]]},
            r"actions: row 3, column 0: expected a value in \[-1, 1\], got 1.5 \(2",
        ),
        (
            {"trajectory": [0, 0, 1, 1, 0]},
            "trajectory: row 4: expected a new id .* got 0 again",
        ),
        (
            {"terminals": [0, 1, 0, 1, 0]},
            "terminals: row 3: expected true only at the end .* ends at row 4",
        ),
        ({"terminals": NAN}, "terminals: row 2: expected 0 or 1, got nan"),
        ({"timeouts": [0, 0.5, 0, 0, 1]}, "timeouts: row 1: expected 0 or 1, got 0.5"),
        (
            {"timeouts": [1, 0, 0, 0, 1]},
            "timeouts: row 0: expected true only at the end .* ends at row 1",
        ),
        (
            {"source": [0, 0, 1, 2, 1]},
            "source: row 3: expected one source per trajectory, got 2 after 1 .* "
            "trajectory 1",
        ),
        ({"source": [0, 1, 2]}, r"source: expected .* \(5\) or .* \(2\), got 3"),
        (
            {"source": [0, 2], "source_names": ["a", "b"]},
            "source: trajectory 1: expected a number below the 2",
        ),
        (
            {"source": [0, 1], "source_names": ["a", "a"]},
            "source_names: expected different names",
        ),
        ({"action_bounds": (1, 1)}, "action_bounds: dimension 0: expected finite low"),
        ({"action_bounds": ([-1, -1], 1)}, "action_bounds: expected numbers or 1 of"),
        ({"action_bounds": (-np.inf, 1)}, "action_bounds: dimension 0"),
        ({"observations": np.zeros((5, 2, 2))}, r"observations: expected \(N, size\)"),
        ({"rewards": np.zeros((5, 2))}, r"rewards: expected \(N,\) or \(N, 1\)"),
        ({"rewards": ["a"] * 5}, "rewards: expected an array of numbers"),
        ({"final_observations": [[1]]}, "final_observations: expected length 2, got 1"),
        (
            {"next_observations": np.zeros((5, 3))},
            r"next_observations: expected shape \(5, 1\), got \(5, 3\)",
        ),
    ],
)
def test_bad_data_is_refused_with_field_index_expected_and_found(changes, message):
    with pytest.raises(UserError, match=message):
        plain([2, 3], **changes)


def test_no_rows_and_empty_trajectories_are_refused(small):
    with pytest.raises(UserError, match="at least one transition, got none"):
        Trajectories.from_arrays(np.zeros((0, 1)), np.zeros((0, 1)), [], [])
    fields = {f: getattr(small, f) for f in small.__dataclass_fields__}
    fields["offsets"] = np.array([0, 3, 3, 7, 10])
    with pytest.raises(UserError, match="trajectory 1: expected at least one"):
        Trajectories(**fields)


def test_clip_moves_actions_onto_the_bounds_and_counts_them():
    data = plain([4], actions=[[0.5], [1.5], [-3], [1]], clip=True)
    assert data.actions[:, 0].tolist() == [0.5, 1, -1, 1]
    assert data.clipped == 2
    with pytest.raises(UserError, match="finite"):
        plain([4], actions=[[0.5], [np.nan], [-3], [1]], clip=True)


def test_fingerprint_is_of_the_content(small):
    again = small[:]
    assert again.fingerprint == small.fingerprint
    assert small[1:].fingerprint != small.fingerprint
    one_less = plain([2, 3], rewards=[0, 1, 2, 3, 5])
    assert one_less.fingerprint != plain([2, 3]).fingerprint
    assert plain([2, 3], name="x").fingerprint == plain([2, 3]).fingerprint
    assert plain([3, 2]).fingerprint != plain([2, 3]).fingerprint


def test_slices_share_memory_and_other_selections_keep_order(small):
    view = small[1:3]
    assert np.shares_memory(view.observations, small.observations)
    assert view.offsets.tolist() == [0, 4, 5]
    assert view.rewards.tolist() == [3, 4, 5, 6, 7]
    picked = small[[3, 0]]
    assert picked.rewards.tolist() == [8, 9, 0, 1, 2]
    assert picked.ids.tolist() == [3, 0]
    assert picked.sources.tolist() == [2, 1]
    masked = small[np.array([False, True, False, True])]
    assert masked.ids.tolist() == [1, 3]
    assert masked[1].ids.tolist() == [3]
    assert [t.returns[0] for t in small] == small.returns.tolist() == [3, 18, 7, 17]
    with pytest.raises(IndexError):
        small[4]
    with pytest.raises(UserError, match="at least one trajectory"):
        small[2:2]


def test_renumbered_ids_are_positions(small):
    view = small.shuffle(1).renumbered()
    assert view.ids.tolist() == [0, 1, 2, 3]
    assert make("fork-2", 500).ids.tolist() == list(range(len(make("fork-2", 500))))


def test_split_parts_are_disjoint_and_complete(small):
    kept, held = small.split(0.5, seed=3)
    assert sorted([*kept.ids, *held.ids]) == [0, 1, 2, 3]
    assert len(held) == 2
    assert small.split(0.5, seed=3)[1].fingerprint == held.fingerprint
    with pytest.raises(UserError, match="share"):
        small.split(1.0)
    with pytest.raises(UserError, match="at least 2"):
        small[0].split(0.5)


lengths = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@given(lengths, st.floats(0.05, 0.95), st.integers(0, 5))
def test_split_within_gives_a_share_of_every_trajectory(lengths, share, seed):
    data = plain(lengths)
    give = [min(max(1, round(share * n)), n - 1) for n in lengths]
    if not any(give):
        with pytest.raises(UserError, match="at least 2 steps"):
            data.split_within(share, seed)
        return
    kept, held = data.split_within(share, seed)
    assert kept.lengths.tolist() == [n - g for n, g in zip(lengths, give)]
    assert held.lengths.tolist() == [g for g in give if g]
    assert held.ids.tolist() == [m for m, g in enumerate(give) if g]
    rows = np.concatenate([kept.rewards, held.rewards])
    assert sorted(rows) == list(range(data.transitions))
    for part in (kept, held):
        assert np.array_equal(part.observations[:, 0], part.rewards)
        row = part.rewards.astype(int)
        assert np.array_equal(part.next_observations, data.next_observations[row])
        assert np.array_equal(data.trajectory[row], part.ids[part.trajectory])


@given(lengths, st.integers(0, 5))
def test_shuffle_moves_whole_trajectories(lengths, seed):
    data = plain(lengths)
    shuffled = data.shuffle(seed)
    assert sorted(shuffled.ids) == list(range(len(lengths)))
    for trajectory in shuffled:
        original = data[int(trajectory.ids[0])]
        assert trajectory.fingerprint == original.fingerprint


def test_bootstrappable_leaves_out_rows_whose_next_observation_is_needed_but_unknown():
    data = plain(
        [6],
        trajectory=None,
        timeouts=[0, 1, 0, 0, 0, 1],
        terminals=[0, 0, 0, 1, 0, 0],
        final_observations=None,
    )
    usable = data.bootstrappable()
    assert usable.rewards.tolist() == [0, 2, 3, 4]
    assert usable.next_observations[:, 0].tolist() == [1, 3, 3, 5]
    assert usable.final_known.tolist() == [True, False, True]
    assert plain([2, 3]).bootstrappable().transitions == 5
    # A trajectory of one such row goes entirely.
    single = plain([1, 2], final_observations=None).bootstrappable()
    assert single.ids.tolist() == [1]
