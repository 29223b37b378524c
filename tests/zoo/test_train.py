"""Training agents in real environments, small and short."""

import json
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from manyhands import UserError
from manyhands.envs.pool import Pool
from manyhands.envs.rollout import episode_seeds
from manyhands.runs import Run
from manyhands.zoo import sac
from manyhands.zoo.collect import collect
from manyhands.zoo.train import Explorers, policies_at, train

PROGRAM = """
import json, sys
from manyhands.zoo.train import train
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
    program = subprocess.Popen(words)
    while not (out / "metrics.jsonl").exists() or len(metrics(out)) < 8:
        assert program.poll() is None
        time.sleep(0.005)
    program.kill()
    program.wait()
    assert not (out / "summary.json").exists()
    subprocess.run(words, check=True, timeout=300)
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


def test_collected_steps_follow_each_other():
    def act(observations, seeds, times):
        actions = np.tanh(observations[:, :6] + times[:, None] / 100)
        return actions, np.zeros(len(actions))

    with Pool(["Hopper-v5", "HalfCheetah-v5"], workers=1) as pool:
        seeds = [episode_seeds(0), episode_seeds(1)]
        steps = collect(pool, act, seeds, 120)
    for slot in range(2):
        ends = steps.terminals[slot, :-1] > 0
        follows = np.all(
            steps.next_observations[slot, :-1] == steps.observations[slot, 1:], axis=1
        )
        np.testing.assert_array_equal(follows, ~ends)
    assert steps.terminals[0].sum() == len(steps.returns[0]) > 1  # falls
    assert not steps.terminals[1].any()
    assert not steps.observations[0, :, 11:].any()
    first = int(np.argmax(steps.terminals[0])) + 1
    assert steps.returns[0][0] == pytest.approx(
        steps.rewards[0, :first].sum(), rel=1e-5
    )
    rows = steps.rows()
    assert rows.shape == (2, 120, 2 * 17 + 6 + 3)
    np.testing.assert_array_equal(rows[..., 17:23], steps.actions)


def test_explorers_sample_the_agents_policies():
    keys = jax.random.split(jax.random.key(0), 3)
    nets = jax.vmap(lambda key: sac.init(key, 5, 2, 16).actor.tree().net)(keys)
    nets = jax.tree.map(lambda x: 5 * x, nets)
    mask = jnp.array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    act = Explorers(nets, mask)
    observations = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    seeds, times = np.array([4, 5, 6]), np.array([0, 127, 128])
    noise = np.array([act._noise(s, t) for s, t in ((4, 0), (5, 127), (6, 128))])
    expected, _ = jax.vmap(sac.sample)(nets, jnp.asarray(observations), noise, mask)
    actions, _ = act(observations, seeds, times)
    np.testing.assert_allclose(actions, expected, atol=1e-6)
    # Every moment of every episode has noise of its own, and the same one again.
    many = np.array([act._noise(s, t) for s in range(40) for t in range(300)])
    assert len(np.unique(many, axis=0)) == len(many)
    assert abs(many.mean()) < 0.03
    assert many.std() == pytest.approx(1, abs=0.02)
    again = Explorers(nets, mask)(observations, seeds, times)[0]
    np.testing.assert_array_equal(actions, again)
