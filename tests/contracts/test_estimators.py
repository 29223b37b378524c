"""What every estimator of behaviors must do."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from manyhands import Behavior, Trajectories, fit, make
from manyhands.behavior.methods import METHODS

SMALL = dict(steps=80, policy_width=16, batch_size=64, policy_rate=1e-3)

TWO = {method: 2 if method == "vq" else None for method in METHODS}  # behaviors


@pytest.fixture(scope="module")
def data() -> Trajectories:
    """Two sources; some actions lie exactly on the bounds of a box that is not +-1."""
    made = make("fork-2", 1000)
    random = np.random.default_rng(0)
    actions = 2 * made.actions + 1
    for bound in (-1, 3):
        actions[random.choice(len(actions), 50), random.integers(2, size=50)] = bound
    return replace(
        made,
        actions=actions,
        action_low=np.full(2, -1, np.float32),
        action_high=np.full(2, 3, np.float32),
    )


@pytest.fixture(scope="module", params=METHODS)
def method(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def fitted(data, method) -> Behavior:
    found = fit(data, method, k=TWO[method], compare=True, **SMALL)
    assert isinstance(found, Behavior)
    return found


def assert_same_bits(one: Behavior, other: Behavior) -> None:
    for a, b in zip(
        jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True
    ):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    for name in ("codes", "probabilities", "prior", "usual"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_it_fits(fitted, data, method):
    assert fitted.method == method
    assert fitted.codes.shape == (len(data),)
    assert fitted.probabilities.shape == (len(data), fitted.k)
    assert fitted.log_prob(data).shape == (data.transitions,)
    assert fitted.code_log_probs(data).shape == (data.transitions, fitted.k)
    np.testing.assert_allclose(fitted.responsibilities(data).sum(axis=1), 1, rtol=1e-6)
    assert fitted.unexplained(data).shape == (len(data),)


def test_it_learns(fitted, data, method):
    """Better than it began, and about as good as the uniform density on the box."""
    short = fit(data, method, k=TWO[method], **SMALL | dict(steps=1))
    assert isinstance(short, Behavior)
    score, before = (b.summary["behavior"]["heldout_log_prob"] for b in (fitted, short))
    assert score > before + 0.1
    assert score > -np.log(16) - 0.1


def test_it_is_deterministic_given_the_seed(fitted, data, method):
    again = fit(data, method, k=TWO[method], **SMALL)
    assert isinstance(again, Behavior)
    assert_same_bits(again, fitted)
    other = fit(data, method, k=TWO[method], seed=1, **SMALL)
    assert isinstance(other, Behavior)
    assert not np.array_equal(other.log_prob(data), fitted.log_prob(data))


def test_it_saves_and_loads(fitted, data, tmp_path):
    fitted.save(tmp_path)
    again = Behavior.load(tmp_path)
    assert_same_bits(again, fitted)
    assert again.summary == fitted.summary
    assert (again.method, again.options) == (fitted.method, fitted.options)
    assert np.array_equal(again.log_prob(data), fitted.log_prob(data))
    rows = data.observations[:20]
    assert np.array_equal(again.sample(rows, 0), fitted.sample(rows, 0))


def test_log_probs_are_finite_at_the_bounds(fitted, data):
    assert np.isfinite(fitted.log_prob(data)).all()
    for bound in (data.action_low, data.action_high):
        actions = np.broadcast_to(bound, data.actions.shape)
        assert np.isfinite(fitted.code_log_probs(replace(data, actions=actions))).all()


def test_samples_lie_in_the_box_and_vary(fitted, data):
    for code in range(fitted.k):
        actions = fitted.sample(data.observations, code)
        assert actions.shape == data.actions.shape
        assert (actions >= data.action_low).all()
        assert (actions <= data.action_high).all()
        assert (actions.std(axis=0) > 0.05).all()
        assert np.isfinite(fitted.log_prob(replace(data, actions=actions))).all()


def test_the_summary_has_what_other_programs_read(fitted, data, method):
    summary = fitted.summary
    assert summary["data"] | {"name": ""} == {
        "name": "",
        "transitions": data.transitions,
        "trajectories": len(data),
        "sources": 2,
    }
    about = summary["behavior"]
    assert about["method"] == method
    assert about["k"] == (2 if method == "vq" else 1)
    assert about["codes_used"] == len(set(fitted.codes)) == fitted.k
    assert -10 < about["heldout_log_prob"] < 5
    single = about["single_gaussian_heldout_log_prob"]
    assert -10 < single < 5
    assert (single == about["heldout_log_prob"]) == (method == "gaussian")
    for score in ("ari", "nmi", "purity"):
        assert -1 <= about[score] <= 1
    timing = summary["timing"]
    assert timing["updates"] == SMALL["steps"]
    assert timing["updates_per_second"] == pytest.approx(80 / timing["seconds"])
    assert 0 < timing["compile_seconds"] <= timing["seconds"]
    assert timing["device"].startswith("cpu")
    json.dumps(summary, allow_nan=False)


def test_data_without_sources_or_log_probs(data, method):
    bare = replace(data, sources=None, source_names=(), log_probs=None)
    found = fit(bare, method, k=TWO[method], **SMALL)
    assert isinstance(found, Behavior)
    assert found.summary["data"]["sources"] is None
    about = found.summary["behavior"]
    assert not {"ari", "nmi", "purity", "calibration"} & set(about)
    assert about["single_gaussian_heldout_log_prob"] is None or method == "gaussian"


def test_replicas_are_what_they_would_be_alone(fitted, data, method):
    zero, one = fit(data, method, k=TWO[method], seed=[0, 1], **SMALL)
    alone = fit(data, method, k=TWO[method], seed=1, **SMALL)
    assert isinstance(alone, Behavior)
    for found, expected in ((zero, fitted), (one, alone)):
        assert np.array_equal(found.codes, expected.codes)
        assert np.allclose(found.log_prob(data), expected.log_prob(data), atol=1e-4)


def test_a_smaller_k_is_not_changed_by_a_larger_one_beside_it(data):
    """Its codes are padded to the larger number; it must not feel that."""
    printed = SMALL | dict(init="random", merge=False)
    two, five = fit(data, k=[2, 5], **printed)
    alone = fit(data, k=2, **printed)
    assert isinstance(alone, Behavior)
    assert np.array_equal(two.codes, alone.codes)
    assert np.allclose(two.log_prob(data), alone.log_prob(data), atol=1e-4)
    for prior in ("learned", "uniform"):
        padded = two.responsibilities(data, prior)
        assert np.allclose(
            padded[:, :2], alone.responsibilities(data, prior), atol=1e-4
        )
        assert not padded[:, 2:].any()
    assert np.array_equal(two.unexplained(data), alone.unexplained(data))
    assert five.codes.max() > 1
