"""manyhands train: environments that cannot be made, or are not the data's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyhands import Trajectories, UserError, save, train
from manyhands.errors import UserNote

TINY: Any = dict(steps=4, width=8, batch_size=8)
WORDS = "--algo bc --steps 4 --width 8 --batch-size 8 --episodes 1".split()


def recorded(env_id: str | None, states: int, actions: int) -> Trajectories:
    random = np.random.default_rng(0)
    return Trajectories.from_arrays(
        observations=random.normal(size=(40, states)),
        actions=random.uniform(-0.5, 0.5, (40, actions)),
        rewards=random.normal(size=40),
        next_observations=random.normal(size=(40, states)),
        terminals=np.zeros(40, bool),
        timeouts=np.arange(40) % 10 == 9,
        env_id=env_id,
        name="recorded",
    )


def test_data_of_an_unknown_environment_is_learnt_from(cli):
    save(recorded("door-v0 (Adroit)", 3, 1), "door.npz")
    done = cli("train", "door.npz", "--out", "run", *WORDS)
    assert done.returncode == 0, done.stderr
    [line] = [x for x in done.stderr.splitlines() if x.startswith("note: ")]
    assert "door-v0 (Adroit)" in line
    assert "policies are not evaluated" in line
    assert "not evaluated" in done.stdout
    # It still says where the data comes from.
    assert json.loads(Path("run/policy.json").read_text())["env_id"] == (
        "door-v0 (Adroit)"
    )


def test_an_environment_that_does_not_fit_its_data_is_not_played_in(tmp_path):
    with pytest.warns(UserNote, match="Pendulum-v1 has 3 and 1; policies are not"):
        policy = train(recorded("Pendulum-v1", 5, 2), "bc", **TINY)
    assert policy.summary["policy"]["return_mean"] is None


def test_data_of_an_earlier_version_is_evaluated_in_todays():
    with pytest.warns(UserNote, match="Swimmer-v2 is no longer made: .* Swimmer-v5"):
        policy = train(recorded("Swimmer-v2", 8, 2), "bc", episodes=1, **TINY)
    assert policy.env_id == "Swimmer-v5"
    assert np.isfinite(policy.summary["policy"]["return_mean"])


def test_of_several_data_sets_all_must_be_playable():
    sets = [recorded(env, 3, 1) for env in ("Pendulum-v1", "NoSuch-v0")]
    with pytest.raises(UserError, match="NoSuch.*pass --env ID or --episodes 0"):
        train(sets, "bc", **TINY)


def test_a_wrong_environment_is_refused_before_anything_is_written(cli):
    save(recorded(None, 3, 1), "mine.npz")
    done = cli("train", "mine.npz", "--out", "run", "--env", "NoSuch-v0", *WORDS)
    assert done.returncode == 1
    assert done.stderr.startswith("error: NoSuch-v0: ")
    assert done.stderr.endswith("; pass --env ID or --episodes 0\n")
    assert not Path("run").exists()


def test_a_run_goes_on_elsewhere_until_policies_were_played(tmp_path):
    """Curves of one run are of one environment."""
    data, fork, leap = recorded(None, 4, 2), "manyhands/Fork-v0", "manyhands/Leap-v0"

    def go_on(env: str, evaluations: int) -> str | None:
        how: Any = dict(episodes=1, evaluations=evaluations, out=tmp_path, **TINY)
        policy = train(data, "bc", env=env, **how)
        (tmp_path / "summary.json").unlink()  # as if it had been interrupted
        return policy.env_id

    assert go_on(fork, 0) == fork
    assert go_on(leap, 1) == leap
    with pytest.raises(UserError, match=f"another run: env is {leap}, not {fork};"):
        go_on(fork, 1)


def test_what_is_to_be_known_is_said_once(cli):
    """However many replicas it is true of."""
    save(recorded("Pendulum-v1", 3, 1), "pendulum.npz")
    words = ["--seeds", 0, 1, "--episodes", 0, *WORDS[:-2]]
    done = cli("train", "pendulum.npz", "--out", "run", *words)
    assert done.returncode == 0, done.stderr
    assert "note: " not in done.stderr  # nothing is evaluated
    done = cli("evaluate", "run", "--episodes", 1, "--workers", 1)
    assert done.stderr.count("note: actions of the data are within -1 to 1") == 1
    done = cli("evaluate", "run", "--episodes", 1, "--workers", 1, "--scale-actions")
    assert "note: " not in done.stderr
