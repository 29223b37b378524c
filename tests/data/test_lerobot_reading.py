"""LeRobot data sets: what a robot recorded is read or refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_files import LENGTHS, TASKS, frames, lists, write_v2, write_v3

from manyhands import Trajectories, UserError, load


@pytest.fixture(params=[write_v2, write_v3])
def write(request):
    return request.param


def sources(data: Trajectories) -> list[str]:
    return [data.source_names[code] for code in data.sources]


def test_what_a_robot_recorded(root, write):
    data = load(write(root))
    assert data.lengths.tolist() == [3, 2, 4]
    assert data.observations[4].tolist() == [1, 1, 4]
    assert data.actions[4].tolist() == [40, 5]
    assert not data.rewards.any()
    assert not data.terminals.any()
    assert np.flatnonzero(data.timeouts).tolist() == [2, 4, 8]
    assert data.next_observations[3].tolist() == [1, 1, 4]
    assert data.next_observations[4].tolist() == [1, 1, 4]  # not known: repeated
    assert not data.final_known.any()
    assert data.sources is None
    assert data.log_probs is None
    assert data.env_id is None
    assert data.name == "robot"


def test_v2_0_is_read_like_v2_1(root):
    assert load(write_v2(root, version="v2.0")).transitions == 9


def test_bounds_of_actions_are_those_of_the_data(root):
    data = load(write_v3(root))
    assert data.action_low.tolist() == [0, 4]  # the second never changes from 5
    assert data.action_high.tolist() == [80, 6]


def test_bounds_of_actions_that_are_too_low(root):
    action = lists(np.linspace(-1.5, -1, 18).reshape(9, 2))
    data = load(write_v3(root, frames(action=action)))
    assert data.action_low[0] == -1.5
    assert data.action_high[1] == -1


def test_bounds_of_actions_are_one_where_that_is_enough(root):
    action = lists(np.linspace(-0.5, 1, 18).reshape(9, 2))
    data = load(write_v3(root, frames(action=action)))
    assert (data.action_low.tolist(), data.action_high.tolist()) == ([-1, -1], [1, 1])


def test_given_bounds_come_first(root):
    write_v3(root)
    assert load(root, action_bounds=(-90, 90)).action_high.tolist() == [90, 90]
    assert load(root, action_bounds=(-10, 10), clip=True).clipped == 7
    with pytest.raises(UserError, match=r"actions: row 2, column 0: .*\[-10, 10\]"):
        load(root, action_bounds=(-10, 10))


def test_the_state_of_the_environment_is_joined(root):
    table = frames(**{"observation.environment_state": np.arange(9.0)})
    data = load(write_v3(root, table))
    assert data.observations[4].tolist() == [1, 1, 4, 4]
    alone = load(root, keys=("observation.environment_state",))
    assert alone.observations.tolist() == [[float(row)] for row in range(9)]


def test_keys_come_in_their_own_order(root):
    data = load(write_v3(root), keys=("timestamp", "observation.state"))
    assert data.observations[1].tolist() == pytest.approx([1 / 30, 1, 0, 1])


def test_a_key_may_serve_as_something_else_too(root):
    columns = {"next.reward": np.arange(9.0), "next.done": flags(2)}
    keys = ("next.reward", "next.done", "task_index")
    write_v3(root, frames(**columns))
    data = load(root, keys=keys, source_from="task_index")
    assert data.observations[2:4].tolist() == [[2, 1, 0], [3, 0, 1]]
    assert data.rewards.sum() == 36
    assert np.flatnonzero(data.terminals).tolist() == [2]
    assert sources(data) == [TASKS[0], TASKS[1], TASKS[0]]


def test_a_key_that_is_missing(root, write):
    with pytest.raises(UserError, match=r"data/chunk-000/.*'tool', found \['obs.*'act"):
        load(write(root), keys=("observation.state", "tool"))
    with pytest.raises(UserError, match="expected 'observation.state', found"):
        load(write(root, frames(**{"observation.state": None})))


def test_rewards_under_both_names(root):
    rewards = np.arange(9.0)
    assert load(write_v3(root, frames(reward=rewards))).rewards.sum() == 36
    table = frames(reward=rewards, **{"next.reward": lists(rewards[:, None] * 2)})
    assert load(write_v3(root, table)).rewards.sum() == 72


def flags(*rows: int) -> np.ndarray:
    return np.isin(np.arange(9), rows)


@pytest.mark.parametrize(
    ("columns", "terminals", "timeouts"),
    [
        # Only the last rows count: 2, 4 and 8.
        ({"done": flags(1, 2, 8)}, [2, 8], [4]),
        ({"done": flags(2, 4), "truncated": flags(4)}, [2], [4]),
        ({"terminated": flags(0, 4)}, [4], [2, 8]),
        ({"terminated": flags(2), "truncated": flags(2, 4)}, [2], [4]),
        ({"terminated": flags(2), "done": flags(2, 4, 8)}, [2], [4, 8]),
        ({"truncated": flags(3, 4)}, [], [4]),
        ({"done": flags(2, 4, 8).astype(np.int64)}, [2, 4, 8], []),
    ],
)
def test_how_episodes_end(root, columns, terminals, timeouts):
    table = frames(**{f"next.{name}": values for name, values in columns.items()})
    data = load(write_v3(root, table))
    assert np.flatnonzero(data.terminals).tolist() == terminals
    assert np.flatnonzero(data.timeouts).tolist() == timeouts


def test_next_observations_of_ours(root):
    following = lists(np.full((9, 3), 7.0))
    known = ~flags(4)
    columns = {"next.observation.state": following, "next.observation.known": known}
    data = load(write_v3(root, frames(**columns)))
    assert (data.next_observations == 7).all()
    assert data.final_known.tolist() == [True, False, True]
    # Not for all that is chosen: then for none.
    data = load(root, keys=("observation.state", "timestamp"))
    assert not data.final_known.any()


def test_tasks_as_sources_have_their_texts(root, write):
    data = load(write(root), source_from="task_index")
    assert sources(data) == [TASKS[0], TASKS[1], TASKS[0]]


def test_a_task_without_a_text_is_a_number(root):
    write_v2(root)
    (root / "meta" / "tasks.jsonl").unlink()
    assert sources(load(root, source_from="task_index")) == ["0", "1", "0"]


def test_any_constant_column_as_source(root):
    who = np.repeat(["bob", "ann", "bob"], LENGTHS)
    table = frames(operator=who, arm=np.repeat([10, 9, 10], LENGTHS))
    write_v2(root, table)
    assert sources(load(root, source_from="operator")) == ["bob", "ann", "bob"]
    assert load(root, source_from="arm").source_names == ("9", "10")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("frame_index", "frame_index: episode 0: expected one value, got 0 and 1"),
        ("action", "action: expected one value a row, got lists"),
        ("operator", "expected 'operator', found"),
    ],
)
def test_columns_that_cannot_be_sources(root, column, message):
    with pytest.raises(UserError, match=message):
        load(write_v3(root), source_from=column)


def test_the_column_source_is_used_without_being_asked_for(root):
    table = frames(source=np.repeat([1, 0, 1], LENGTHS))
    data = load(write_v3(root, table))
    assert sources(data) == ["1", "0", "1"]
    features = {"source": {"info": {"names": ["ann", "bob"]}}}
    data = load(write_v3(root, table, features=features))
    assert sources(data) == ["bob", "ann", "bob"]


def test_an_episode_may_go_on_in_the_next_file(root):
    data = load(write_v3(root, cut=7))
    assert data.lengths.tolist() == [3, 2, 4]


def test_rows_in_any_order(root):
    shuffled = frames().take(np.array([7, 0, 4, 2, 8, 1, 5, 3, 6]))
    assert load(write_v3(root, shuffled)).observations[:, 2].tolist() == [*range(9)]


def test_an_empty_file_does_no_harm(root):
    assert load(write_v3(root, cut=9)).transitions == 9


def test_missing_frames_and_files(root):
    write_v3(root, frames().take(np.array([0, 1, 2, 3, 4, 5, 7, 8])))
    message = "frame_index: episode 2: expected 1 after 0, got 2"
    with pytest.raises(UserError, match=message):
        load(root)
    write_v2(root)
    (root / "data" / "chunk-000" / "episode_000001.parquet").unlink()
    with pytest.raises(UserError, match="expected 3 episodes .*got 2.* missing is 1"):
        load(root)


def ragged() -> pa.Array:
    return pa.array([[1.0, 2.0]] * 4 + [[1.0]] + [[1.0, 2.0]] * 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": ragged()}, "action: episode 1: expected 2 values a row, got "),
        (
            {"action": pa.array([[1.0, 2.0]] * 6 + [None] * 3)},
            "action: episode 2: expected 1 values a row, got None",
        ),
        (
            {"next.reward": pa.array([1.0] * 8 + [None])},
            "next.reward: episode 2: expected 1 values a row, got None",
        ),
        ({"action": ["left"] * 9}, "action: expected numbers, got string"),
        ({"action": None}, "expected 'action', found"),
        ({"frame_index": None}, "expected 'frame_index', found"),
        (
            {"episode_index": np.repeat([0.0, 1.0, 2.0], LENGTHS)},
            "episode_index: expected whole numbers, got double",
        ),
        ({"next.done": lists(np.ones((9, 2)))}, "next.done: expected one value a row"),
        (
            {"observation.state": pa.array([[np.nan, 1.0]] * 9)},
            "observations: row 0, column 0: expected a finite number",
        ),
    ],
)
def test_bad_columns_are_named(root, change, message):
    write_v3(root, frames(**change))
    with pytest.raises(UserError, match=f"robot: .*{message}"):
        load(root)


def test_files_that_do_not_agree(root):
    write_v3(root)
    second = root / "data" / "chunk-001" / "file-000.parquet"
    table = frames(action=lists(np.ones((9, 3))))
    pq.write_table(table[5:], second)
    message = "chunk-001/file-000.parquet: action: expected 2 numbers, .*got 3"
    with pytest.raises(UserError, match=message):
        load(root)
    second.write_bytes(b"PAR1 and no more")
    message = "data/chunk-001/file-000.parquet: expected a Parquet file"
    with pytest.raises(UserError, match=message):
        load(root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codebase_version": "v1.6"}, "expected one of v2.0, v2.1, v3.0, got v1.6"),
        ({"codebase_version": "v4.0"}, "expected one of v2.0, v2.1, v3.0, got v4.0"),
        ({"codebase_version": None}, "expected one of v2.0, v2.1, v3.0, got None"),
        ({"features": None}, "meta/info.json: expected an object with features"),
        ({"data_path": "d/{episode_index}.parquet"}, "data_path: expected files d/"),
        (
            {"data_path": None},
            "data_path: expected a path inside this folder, got None",
        ),
    ],
)
def test_bad_info(root, change, message):
    write_v3(root, **change)
    with pytest.raises(UserError, match=message):
        load(root)


def test_bad_meta_files(root):
    write_v2(root)
    (root / "meta" / "tasks.jsonl").write_text('{"task_index": 0}\n')
    with pytest.raises(UserError, match=r"meta/tasks.jsonl: .*KeyError\('task'\)"):
        load(root, source_from="task_index")
    pq.write_table(pa.table({"task_index": [0]}), root / "meta" / "tasks.parquet")
    with pytest.raises(UserError, match=r"meta/tasks.parquet: .*got \['task_index'\]"):
        load(root, source_from="task_index")
    (root / "meta" / "info.json").write_text("{")
    with pytest.raises(UserError, match="meta/info.json: expected a JSON file"):
        load(root)
    (root / "empty").mkdir()
    with pytest.raises(UserError, match="meta/info.json: expected a JSON file"):
        load(f"lerobot:{root / 'empty'}")
    with pytest.raises(UserError, match="elsewhere: no such file or directory"):
        load(f"lerobot:{root / 'elsewhere'}")


def test_no_frames(root):
    write_v3(root, frames()[:0])
    with pytest.raises(UserError, match="expected at least one frame, found none"):
        load(root)
