"""Returns of policies, and what they are worth."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from manyhands import Trajectories, UserError, evaluate, make, train
from manyhands.algos.evaluate import behaviors_score, worth


@pytest.fixture(scope="module")
def policies():
    return train(make("fork-2", 600), "bc", seed=[0, 1], steps=5, width=16, episodes=0)


def test_the_same_returns_from_any_number_of_workers(policies):
    found = [evaluate(policies[0], episodes=5, workers=n).returns for n in (1, 3)]
    assert np.array_equal(*found)
    other = evaluate(policies[0], episodes=5, seed=1, workers=1).returns
    assert not np.array_equal(other, found[0])
    assert not np.array_equal(
        evaluate(policies[1], episodes=5, workers=1).returns, found[0]
    )


# BCQ draws actions when it acts, and so needs what names the noise.
PLAY_ON_THE_SECOND = """
import jax, manyhands as mh
from manyhands.algos import evaluate
policy = mh.train(mh.make("fork-2", 200), "bcq", steps=1, episodes=0,
                  vae_width=16, width=16)
learns, plays = jax.devices()
evaluate._cpu = lambda: plays
with jax.transfer_guard_device_to_device("disallow"):
    print(len(mh.evaluate(policy, episodes=2, workers=1).returns))
"""


def test_the_device_that_learns_is_left_alone():
    """Two devices of which one learns: nothing goes through it on its way to the other.

    On a busy GPU each step of an evaluation would wait for its turn.
    """
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu"}
    flags = os.environ.get("XLA_FLAGS", "")
    two = {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=2"}
    played = subprocess.run(
        [sys.executable, "-c", PLAY_ON_THE_SECOND],
        env=os.environ | two | quick,
        capture_output=True,
        text=True,
    )
    assert played.returncode == 0, played.stderr
    assert played.stdout.split() == ["2"]


def test_relative_returns(small):
    """Hopper's 0 and 100 are returns of -20.272305 and 3234.3."""
    returns = np.array([-20.272305, 3234.3])
    found = worth(returns, "Hopper-v5", behaviors=80.0)
    assert found.normalized == pytest.approx(50.0)
    assert found.relative == pytest.approx(50 / 80)
    assert worth(returns, "Hopper-v5", None).relative is None
    assert worth(returns, "Pendulum-v1", 80.0).normalized is None


def test_every_source_counts_the_same_and_cut_trajectories_do_not(small):
    # Trajectories 0 and 2 are of bob's colleague, 1 of ann, 3 (cut off) of cy.
    data = replace(small, env_id="Hopper-v5")
    scores = 100 * (data.returns + 20.272305) / (3234.3 + 20.272305)
    expected = np.mean([scores[[0, 2]].mean(), scores[1]])
    assert behaviors_score(data) == pytest.approx(expected, rel=1e-5)
    unknown = replace(data, sources=None, source_names=())
    assert behaviors_score(unknown) == pytest.approx(scores[:3].mean(), rel=1e-5)
    assert behaviors_score(small) is None  # Pendulum has no reference


def test_what_cannot_be_evaluated_is_refused(policies, small):
    with pytest.raises(UserError, match="episodes: expected at least 1, got 0"):
        evaluate(policies[0], episodes=0)
    homeless = replace(policies[0], env_id=None)
    with pytest.raises(UserError, match="env: expected an environment's id"):
        evaluate(homeless)
    with pytest.raises(UserError, match="observation: expected 4 numbers"):
        policies[0].act(np.zeros(3))
    assert isinstance(small, Trajectories)
