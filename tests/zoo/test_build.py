"""From trained agents to stored policies to data sets."""

import json
from itertools import islice
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from manyhands import UserError
from manyhands.envs.rollout import episode_seeds
from manyhands.envs.scores import normalized
from manyhands.nn.networks import MLP, Dense
from manyhands.zoo import acting, build, export, policies, sac
from manyhands.zoo.build import Roles, make
from manyhands.zoo.players import Players
from manyhands.zoo.policies import About
from manyhands.zoo.tasks import TASKS
from manyhands.zoo.train import policies_at


@pytest.fixture(scope="module")
def stored(trained, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "policies"
    export.export(trained, folder, command="zoo export", episodes=3, workers=2)
    return folder


def test_the_last_policies_and_the_stages_of_the_best_are_stored(stored):
    found = policies.manifest(stored)
    finals = {(a.task, a.seed) for a in found if a.step == 240}
    assert finals == {(t, s) for t in ("hopper", "halfcheetah") for s in (1, 2)}
    for name in ("hopper", "halfcheetah"):
        roles = Roles.of(name, stored)
        assert [a.seed for a in roles.finals] == [1, 2]
        assert roles.expert.return_mean == max(a.return_mean for a in roles.finals)
        stages = [a for a in found if a.task == name and a.step < 240]
        assert {(a.seed, a.step) for a in stages} == {
            (roles.expert.seed, 0),
            (roles.expert.seed, 120),
        }
        assert roles.to_medium[-1] == roles.medium
    made = json.loads((stored / "manifest.json").read_text())["made"]
    assert made["commands"] == [
        "manyhands zoo train hopper halfcheetah --seeds 1 2 --out run",
        "zoo export",
    ]
    assert made["run"]["options"]["steps"] == 240


def test_manifest_says_how_good_they_are(stored):
    for about in policies.manifest(stored):
        score = normalized(np.array([about.return_mean]), TASKS[about.task].env_id)
        assert about.normalized == pytest.approx(score[0])
        assert about.return_std >= 0
        assert np.isfinite(about.mode_return_mean)


def test_a_stored_policy_acts_as_the_agent_did(stored, trained):
    """Cut to its task's size and in half precision, but the same function."""
    arrays = load_file(trained / policies_at(240))
    for r, (name, seed) in enumerate(
        [("hopper", 1), ("hopper", 2), ("halfcheetah", 1)]
    ):
        task = TASKS[name]
        policy = policies.load(About(name, seed, 240), stored)
        assert policy.layers[0][0].shape[0] == task.observations
        observations = np.random.default_rng(r).normal(size=(5, 17)).astype(np.float32)
        observations[:, task.observations :] = 0
        wide = observations
        for layer in range(3):
            w, b = (
                arrays[f".layers[{layer}].{part}"][r].astype(np.float64)
                for part in "wb"
            )
            wide = wide @ w + b if layer == 2 else np.maximum(wide @ w + b, 0)
        mean, log_std = (wide[:, k : k + task.actions] for k in (0, 6))
        for row, seen in enumerate(observations[:, : task.observations]):
            found = acting.distribution(policy.layers, seen)
            np.testing.assert_allclose(found[0], mean[row], atol=1e-5)
            np.testing.assert_allclose(found[1], log_std[row], atol=1e-5)
            chosen = acting.mode(policy.layers, seen)
            np.testing.assert_allclose(chosen, np.tanh(mean[row]), atol=1e-5)


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
        policy = policies.load(About("hopper", number + 1, 240), stored)
        net = MLP(
            tuple(Dense(jnp.asarray(w), jnp.asarray(b)) for w, b in policy.layers)
        )
        pi = sac.distribution(net, jnp.asarray(data.observations[mine]))
        # By the formula, in float64, from the actions alone.
        mean, log_std = (
            np.asarray(pi.mean, np.float64),
            np.asarray(pi.log_std, np.float64),
        )
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
    monkeypatch.setattr(build, "Players", None)
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


def test_stages_are_evenly_spaced_and_hold_both_ends_and_medium():
    steps = list(range(0, 1_000_001, 5000))
    chosen = export.stages(steps, medium=60_000)
    assert len(chosen) == export.TO_MEDIUM + export.FROM_MEDIUM
    assert chosen[:7] == [0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]
    assert chosen[-1] == 1_000_000
    assert export.stages([0, 5], medium=0) == [0, 5]


def test_returns_seen_in_training_are_means_around_a_step():
    rows = [dict(replica=0, step=s, **{"return": float(s)}) for s in range(40)]
    rows += [dict(replica=1, step=10, **{"return": 999.0})]
    rows += [dict(replica=0, step=60, **{"return": None})]
    seen = export.returns_seen(rows, 0, [0, 10, 20, 60])
    assert seen[10] == pytest.approx(10)
    assert seen[60] == np.inf


def test_what_is_not_there_is_said(stored, trained, tmp_path):
    with pytest.raises(UserError, match="no policies of this task are stored"):
        make("walker2d-medium", 10, folder=stored)
    with pytest.raises(UserError, match="expected a folder of stored policies"):
        make("hopper-medium", 10, folder=tmp_path)
    with pytest.raises(UserError, match="no such file; expected a run directory"):
        export.export(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_samples_are_what_the_agents_network_gives_and_have_their_density():
    rng = np.random.default_rng(0)
    net = sac.init(jax.random.key(0), 5, 2, 16).actor.tree().net
    # Far from 0, where tanh is flat: 1 - tanh(u)^2 vanishes in float32.
    net = jax.tree.map(lambda x: 20 * x, net)
    layers = [(np.asarray(layer.w), np.asarray(layer.b)) for layer in net.layers]
    for _ in range(50):
        seen, noise = 3 * rng.normal(size=5), rng.normal(size=2)
        seen, noise = seen.astype(np.float32), noise.astype(np.float32)
        action, log_prob = acting.sample(layers, seen, noise)
        expected = sac.sample(net, jnp.asarray(seen), jnp.asarray(noise), jnp.ones(2))
        np.testing.assert_allclose(action, expected[0], atol=1e-6)
        np.testing.assert_allclose(log_prob, expected[1], rtol=1e-4, atol=1e-4)
        assert np.isfinite(log_prob)


def test_episodes_come_in_the_order_of_their_seeds_and_may_be_left():
    with Players("Hopper-v5", workers=2) as players:
        played = players.play(None, episode_seeds(0))
        some = [next(played) for _ in range(5)]
        played.close()  # the processes are still at work
        again = list(players.play(None, islice(episode_seeds(0), 9)))
    assert [e.seed for e in again] == list(islice(episode_seeds(0), 9))
    for one, two in zip(some, again):
        np.testing.assert_array_equal(one.observations, two.observations)
        np.testing.assert_array_equal(one.actions, two.actions)
        assert one.terminal
        assert len(one.observations) == len(one) + 1
    assert len(np.unique([e.actions[0] for e in again], axis=0)) == 9


def test_a_player_that_dies_is_said():
    with Players("Hopper-v5", workers=1) as players:
        players._processes.all[0].kill()
        with pytest.raises(UserError, match="an environment's process ended"):
            list(players.play(None, [1, 2]))
