"""Data sets made by small policies."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from manyhands import UserError
from manyhands.agents import data_sets, policies
from manyhands.agents.acting import LOG_STD
from manyhands.agents.data_sets import Roles, make
from manyhands.agents.policies import About, Policy
from manyhands.agents.tasks import TASKS

WIDTH = 16
LAST = 240  # updates of the last policies


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """Two hoppers that know nothing, with stages of the second one's training."""
    known = [(1, LAST, 30.0), (2, LAST, 60.0), (2, 0, 5.0), (2, 120, 19.0)]
    made = [
        Policy(About("hopper", seed, step, return_mean=value), layers(seed + step))
        for seed, step, value in known
    ]
    folder = tmp_path_factory.mktemp("stored")
    policies.write(folder, made, {"commands": []})
    return folder


def layers(seed: int) -> policies.Layers:
    task, random = TASKS["hopper"], np.random.default_rng(seed)
    sizes = [task.observations, WIDTH, WIDTH, 2 * task.actions]
    return [
        (random.normal(0, 0.1, (inputs, outputs)), random.normal(0, 0.1, outputs))
        for inputs, outputs in pairwise(sizes)
    ]


def test_roles_are_found_in_the_manifest(stored):
    roles = Roles.of("hopper", stored)
    assert [about.seed for about in roles.finals] == [1, 2]
    assert roles.expert.seed == 2
    assert roles.medium.step == 120  # 19 is nearest to a third of 60
    assert [about.step for about in roles.to_medium] == [0, 120]


def test_data_has_equal_shares_labels_and_exact_log_probs(stored):
    data = make("hopper-heterogeneous-2", 400, seed=3, folder=stored, workers=2)
    assert data.source_names == ("agent-1", "agent-2")
    assert data.env_id == "Hopper-v5"
    steps = np.bincount(data.sources, weights=data.lengths)
    assert (steps >= 200).all()
    ends = data.offsets[1:] - 1
    assert (data.terminals | data.timeouts)[ends].all()
    assert data.final_known.all()
    for number in (0, 1):
        mine = data.sources[data.trajectory] == number
        policy = policies.load(About("hopper", number + 1, LAST), stored)
        # By the formula, in float64, from the actions alone.
        x = data.observations[mine].astype(np.float64)
        for w, b in policy.layers[:-1]:
            x = np.maximum(x @ w + b, 0)
        w, b = policy.layers[-1]
        mean, log_std = np.split(x @ w + b, 2, axis=1)
        log_std = np.clip(log_std, *LOG_STD)
        action = data.actions[mine].astype(np.float64)
        u = np.arctanh(action)
        normal = -0.5 * ((u - mean) / np.exp(log_std)) ** 2 - log_std
        terms = normal - 0.5 * np.log(2 * np.pi) - np.log1p(-(action**2))
        error = np.abs(terms.sum(axis=1) - data.log_probs[mine])
        assert np.quantile(error, 0.99) < 0.01


def test_data_is_the_same_whatever_the_number_of_processes(stored):
    one, two = (make("hopper-medium", 300, 1, folder=stored, workers=w) for w in (1, 2))
    assert one.fingerprint == two.fingerprint
    other = make("hopper-medium", 300, 2, folder=stored, workers=1)
    assert other.fingerprint != one.fingerprint


def test_what_sets_of_one_task_have_in_common_is_played_once(stored, monkeypatch):
    def of(k, takes=None, transitions=400, **more):
        name = f"hopper-heterogeneous-{k}"
        return make(name, transitions, folder=stored, takes=takes, **more).fingerprint

    alone = [of(k, workers=1) for k in (1, 2)]
    takes = {}
    assert of(1, takes, workers=1) == alone[0]
    (first,) = [list(episodes) for episodes in takes.values()]
    assert of(2, takes, workers=1) == alone[1]
    same, second = takes.values()
    assert same == first  # 400 transitions, of which 200 were needed
    assert 200 <= sum(len(episode) for episode in second) < 400
    longer = of(2, takes, 600, workers=1)  # it goes on where it stopped
    assert longer == of(2, None, 600, workers=1)
    monkeypatch.setattr(data_sets, "Players", None)
    assert [of(k, takes) for k in (1, 2)] == alone


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("random", {"random"}),
        ("medium-expert", {"medium", "expert"}),
        ("heterogeneous-1", {"agent-1"}),
    ],
)
def test_every_kind_has_its_sources(stored, kind, names):
    data = make(f"hopper-{kind}", 60, folder=stored, workers=1)
    assert set(data.source_names) == names
    if kind == "random":
        np.testing.assert_allclose(data.log_probs, -3 * np.log(2), rtol=1e-6)
        assert 0.45 < np.abs(data.actions).mean() < 0.55


def test_replay_has_the_stages_up_to_medium(stored):
    data = make("hopper-medium-replay", 60, folder=stored, workers=1)
    steps = [f"step-{a.step}" for a in Roles.of("hopper", stored).to_medium]
    assert list(data.source_names) == steps


def test_policies_that_are_not_stored_are_an_error(stored, tmp_path):
    with pytest.raises(UserError, match="no policies of this task are stored"):
        make("walker2d-medium", 10, folder=stored)
    with pytest.raises(UserError, match="expected a folder of stored policies"):
        make("hopper-medium", 10, folder=tmp_path)
    with pytest.raises(UserError, match="hopper-9-0000240: not among the stored"):
        policies.load(About("hopper", 9, LAST), stored)
