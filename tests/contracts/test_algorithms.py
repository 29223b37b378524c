"""What every algorithm must do."""

import json
from dataclasses import fields
from typing import Any

import jax
import numpy as np
import pytest

from manyhands import Policy, Trajectories, load_policy, make, train
from manyhands.algos.registry import ALGORITHMS
from manyhands.runs import Run

STEPS = 24


def small(algo: str) -> dict[str, int]:
    """Options that make a learner tiny, of those that it has, and few behaviors."""
    wanted = dict(steps=STEPS, behavior_steps=20, batch_size=32, warm_up=5, samples=2)
    wanted |= dict(model_steps=30, model_batch=16, members=3, elites=2, rollouts=8)
    wanted |= dict(trajectories=8, proposals=2, kept=20)
    options = fields(next(iter(ALGORITHMS[algo].presets.values())))
    names = {option.name for option in options}
    chosen = {name: value for name, value in wanted.items() if name in names}
    widths = {name: 16 for name in names if name.endswith("width")}
    chosen |= {"k": 2} if ALGORITHMS[algo].fits_behavior_set else {}
    return chosen | widths | ({"steps": 0} if algo == "clone" else {})


@pytest.fixture(scope="module")
def data() -> Trajectories:
    return make("fork-2", 1000)


@pytest.fixture(scope="module", params=ALGORITHMS)
def algo(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def run(data, algo, tmp_path_factory) -> tuple[Policy, Run]:
    folder = tmp_path_factory.mktemp(algo)
    policy = train(
        data, algo, out=folder, episodes=2, evaluations=2, workers=1, **small(algo)
    )
    assert isinstance(policy, Policy)
    return policy, Run(folder)


def learn(data, algo, **changes) -> Any:
    return train(data, algo, episodes=0, **small(algo) | changes)


def assert_same_bits(one: Policy, other: Policy) -> None:
    pairs = zip(jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True)
    for a, b in pairs:
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


def test_it_acts_inside_the_box(run, data):
    policy, _ = run
    actions = policy.act(data.observations[:50])
    assert actions.shape == (50, 2)
    assert (actions >= data.action_low).all()
    assert (actions <= data.action_high).all()
    one = policy.act(data.observations[0])
    assert one.shape == (2,)


def test_it_saves_and_loads(run, data, tmp_path):
    policy, folder = run
    policy.save(tmp_path)
    for place in (tmp_path, folder.path):
        again = load_policy(place)
        assert_same_bits(again, policy)
        assert (again.algo, again.options) == (policy.algo, policy.options)
        rows = data.observations[:20]
        assert np.array_equal(again.act(rows), policy.act(rows))


def test_the_run_has_what_other_programs_read(run, algo):
    _, folder = run
    summary = folder.read_json("summary.json")
    about = summary["policy"]
    assert about["algo"] == algo
    assert about["episodes"] == 2
    assert np.isfinite([about["return_mean"], about["return_std"]]).all()
    assert about["normalized"] is None  # nobody has fixed what 0 and 100 are here
    assert summary["timing"]["updates"] == (0 if algo == "clone" else STEPS)
    config = folder.read_json("config.json")
    assert config["algo"] == algo
    assert config["options"][0]["batch_size"] in (32, 256)
    assert "auto" not in config["options"][0].values()  # all is decided
    json.dumps(summary, allow_nan=False)
    assert not folder.checkpoint.exists()


def test_all_metrics_are_finite(run, algo):
    _, folder = run
    rows = folder.metrics()
    learnt = [row for row in rows if not any("evaluation" in name for name in row)]
    assert [row["step"] for row in learnt] == list(
        range(1, 1 + (0 if algo == "clone" else STEPS))
    )
    for row in learnt:
        assert np.isfinite(list(row.values())).all(), row
    evaluated = [row for row in rows if "evaluation/return_mean" in row]
    assert [row["step"] for row in evaluated] == ([0] if algo == "clone" else [0, 12])


def test_it_is_deterministic_given_the_seed(data, algo):
    one, same, other = (learn(data, algo, seed=seed) for seed in (3, 3, 4))
    assert_same_bits(one, same)
    rows = data.observations[:20]
    assert not np.array_equal(one.act(rows), other.act(rows))


def test_replicas_are_what_they_would_be_alone(data, algo):
    more = {"k": [1, 2]} if ALGORITHMS[algo].fits_behavior_set else {}
    together = learn(data, algo, seed=[3, 4], **more)
    alone = learn(data, algo, seed=4)
    assert isinstance(together, list)
    if more:
        about = [policy.summary["policy"] for policy in together]
        pairs = [(row["k"], row["seed"]) for row in about]
        assert pairs == [(1, 3), (1, 4), (2, 3), (2, 4)]
    rows = data.observations[:100]
    # Codes may be padded to the same number, which changes the order of sums.
    np.testing.assert_allclose(together[-1].act(rows), alone.act(rows), atol=2e-4)


def test_an_interrupted_run_goes_on_to_the_same_bits(run, data, algo, tmp_path):
    """Stopped by Ctrl-C in the middle; tests with real kills are elsewhere."""
    policy, _ = run
    if algo == "clone":
        pytest.skip("it learns nothing that could be interrupted")

    def stop(step: int, shown: dict[str, float]) -> None:
        # What is fitted first counts its own steps; ours come last.
        if step == STEPS // 2 and (tmp_path / "metrics.jsonl").exists():
            raise KeyboardInterrupt

    how = dict(out=tmp_path, evaluations=2, workers=1, checkpoint_seconds=0.0)
    how |= small(algo)
    with pytest.raises(KeyboardInterrupt):
        train(data, algo, progress=stop, episodes=2, **how)
    assert (tmp_path / "checkpoints").exists()
    again: Any = train(data, algo, episodes=2, **how)
    assert_same_bits(again, policy)
    assert again.summary["policy"] == policy.summary["policy"]
    rows = Run(tmp_path).metrics()
    steps = [row["step"] for row in rows if "evaluation/return_mean" not in row]
    assert steps == list(range(1, STEPS + 1))
