"""Training agents in real environments, small and short."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import zoo
from manyhands import UserError
from manyhands.runs import Run
from zoo import sac
from zoo.explorer import Agent, Shape
from zoo.explorers import Explorers, Replay
from zoo.train import policies_at, train

PROGRAM = """
import json, sys
from zoo.train import train
train(out=sys.argv[1], checkpoint_seconds=0.0, **json.loads(sys.argv[2]))
"""


def metrics(run: Path) -> list[dict]:
    return Run(run).metrics()


def test_policies_are_kept_along_the_way(trained):
    kept = sorted(p.name for p in (trained / "policies").iterdir())
    assert kept == [policies_at(step).split("/")[1] for step in (0, 120, 240)]
    first, last = (load_file(trained / policies_at(step)) for step in (0, 240))
    assert first.keys() == last.keys()
    assert all(array.dtype == np.float16 for array in last.values())
    assert {array.shape[0] for array in last.values()} == {4}
    assert any(not np.array_equal(first[name], last[name]) for name in last)


def test_every_epoch_is_logged_for_every_agent(trained):
    rows = metrics(trained)
    assert [row["step"] for row in rows] == [
        s for s in (60, 120, 180, 240) for _ in "four"
    ]
    agents = {(row["replica"], row["task"], row["seed"]) for row in rows}
    assert sorted(agents) == [
        (0, "hopper", 1),
        (1, "hopper", 2),
        (2, "halfcheetah", 1),
        (3, "halfcheetah", 2),
    ]
    assert any(row["return"] for row in rows if row["task"] == "hopper")
    assert all(np.isfinite(row["critic/loss"]) for row in rows)


def test_an_agent_is_the_same_whoever_trains_beside_it(trained, sizes, tmp_path):
    train(["halfcheetah"], [2], tmp_path / "alone", workers=1, **sizes)
    alone = load_file(tmp_path / "alone" / policies_at(240))
    together = load_file(trained / policies_at(240))
    for name, array in alone.items():
        # As stored, in half precision.
        np.testing.assert_allclose(array[0], together[name][3], rtol=2e-3, atol=1e-4)
    returns = [row["critic/q"] for row in metrics(tmp_path / "alone")]
    beside = [row["critic/q"] for row in metrics(trained) if row["replica"] == 3]
    np.testing.assert_allclose(returns, beside, rtol=1e-3, atol=1e-4)


def test_killed_it_goes_on_to_the_same_bits(trained, request_of_all, tmp_path):
    out = tmp_path / "run"
    words = [sys.executable, "-c", PROGRAM, str(out), json.dumps(request_of_all)]
    paths = [zoo.__path__[0] + "/..", os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    program = subprocess.Popen(words, env=env)
    while not (out / "metrics.jsonl").exists() or len(metrics(out)) < 8:
        assert program.poll() is None
        time.sleep(0.005)
    program.kill()
    program.wait()
    assert not (out / "summary.json").exists()
    subprocess.run(words, check=True, timeout=300, env=env)
    for name in (policies_at(0), policies_at(120), policies_at(240), "metrics.jsonl"):
        assert (out / name).read_bytes() == (trained / name).read_bytes(), name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            dict(tasks=["hoper"]),
            "hoper: expected a task: hopper, halfcheetah, walker2d",
        ),
        (dict(tasks=[]), "tasks, seeds: expected at least one of each"),
        (dict(rate=-1.0), "rate: expected above 0, got -1.0"),
    ],
)
def test_bad_requests_write_nothing(tmp_path, arguments, words):
    given = dict(tasks=["hopper"], seeds=[1], out=tmp_path / "run") | arguments
    with pytest.raises(UserError) as error:
        train(**given)
    assert str(error.value).startswith(words)
    assert not (tmp_path / "run").exists()


def test_another_run_is_not_overwritten(trained, sizes):
    with pytest.raises(UserError, match="holds another run: agents is"):
        train(["hopper"], [1], trained, **sizes)


def test_steps_follow_each_other(tmp_path):
    shape = Shape(agents=2, capacity=150, observations=17, actions=6)
    replay = Replay(tmp_path / "replay", shape)
    agents = [Agent(0, "Hopper-v5", [1, 0]), Agent(1, "HalfCheetah-v5", [1, 1])]
    keys = jax.random.split(jax.random.key(0), 2)
    nets = jax.vmap(lambda key: sac.init(key, 17, 6, 16).actor.tree().net)(keys)
    with Explorers(agents, replay, 2) as explorers:
        explorers.begin(nets, start=30, steps=120, number=1)
        returns = explorers.finish()
    assert not replay.file[:, :30].any()
    replay.filled = 30
    replay.take(150)
    rows = np.asarray(replay.rows).reshape(2, 150, -1)
    np.testing.assert_array_equal(rows, replay.file)
    rows = rows[:, 30:]
    now, action, reward = rows[..., :17], rows[..., 17:23], rows[..., 23]
    following, terminal, trajectory = rows[..., 24:41], rows[..., 41], rows[..., 42]
    assert not trajectory.any()
    for agent in range(2):
        follows = np.all(following[agent, :-1] == now[agent, 1:], axis=1)
        np.testing.assert_array_equal(follows, terminal[agent, :-1] == 0)
    assert terminal[0].sum() == len(returns[0]) > 1  # falls
    assert not terminal[1].any()
    assert not now[0, :, 11:].any()
    assert not action[0, :, 3:].any()
    assert action[0, :, :3].all()
    assert action[1].all()
    first = int(np.argmax(terminal[0])) + 1
    assert returns[0][0] == pytest.approx(reward[0, :first].sum(), rel=1e-5)
