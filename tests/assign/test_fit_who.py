"""Who made which trajectory, on small problems with known answers."""

import numpy as np
import pytest
from hands import crossed_hands, linear_hands
from sklearn.metrics import adjusted_rand_score

import manyhands as mh
from manyhands.assign import Assignment, fit_who, prepare
from manyhands.assign.assigner import PARTS
from manyhands.assign.inputs import Inputs
from manyhands.errors import UserError


def linear(**options) -> tuple[Inputs, np.ndarray]:
    o, a, offsets, source = linear_hands(**options)
    return prepare(o, a, offsets), source


@pytest.fixture(scope="module")
def fitted() -> tuple[Inputs, np.ndarray, Assignment]:
    inputs, source = linear()
    return inputs, source, fit_who(inputs, 3)


@pytest.fixture(scope="module")
def crossed():
    o, a, offsets, source, context = crossed_hands()
    return o, a, offsets, source, context


@pytest.fixture(scope="module")
def linked(crossed) -> Assignment:
    o, a, offsets, _, context = crossed
    return fit_who(prepare(o, a, offsets, context=context), 3)


def test_hands_with_different_gains_are_told_apart(fitted):
    _, source, found = fitted
    assert adjusted_rand_score(source, found.codes) == 1
    assert found.embedding.shape[0] == len(source)
    assert found.centers.shape == (3, found.embedding.shape[1])
    assert np.allclose(found.responsibilities.sum(1), 1)
    assert (found.responsibilities.argmax(1) == found.codes).all()
    assert found.how in found.rule.kind
    assert found.why.endswith(".")


def test_fork_agents_are_told_apart():
    data = mh.make("fork-3")
    inputs = prepare(data.observations, data.actions, data.offsets)
    found = fit_who(inputs, 3)
    assert adjusted_rand_score(data.sources, found.codes) > 0.9


@pytest.mark.parametrize("without", [[], ["graph"]])
def test_new_trajectories_go_by_the_stored_rule(without):
    inputs, source = linear()
    found = fit_who(inputs, 3, without=without)
    o, a, offsets, truth = linear_hands(first=1)
    new = prepare(o, a, offsets, scaling=found.scaling)
    codes, resp = found.assign(new)
    of_code = [np.bincount(source[found.codes == k]).argmax() for k in range(3)]
    assert (np.array(of_code)[codes] == truth).mean() > 0.95
    assert np.allclose(resp.sum(1), 1)
    assert resp.max(1).mean() > 0.8
    assert found.embed(new).shape == (len(truth), found.embedding.shape[1])


def test_an_order_of_trajectories_is_no_evidence(fitted):
    inputs, _, found = fitted
    order = np.random.default_rng(3).permutation(len(inputs))
    again = fit_who(inputs.take(order), 3)
    assert adjusted_rand_score(found.codes[order], again.codes) == 1


def test_a_seed_determines_everything(fitted):
    inputs, _, found = fitted
    again = fit_who(inputs, 3)
    assert np.array_equal(found.codes, again.codes)
    assert np.array_equal(found.responsibilities, again.responsibilities)
    assert np.array_equal(found.embedding, again.embedding)


@pytest.mark.parametrize("without", [[], ["graph"]])
def test_saved_and_loaded_is_equal(tmp_path, without):
    inputs, _ = linear(each=8)
    found = fit_who(inputs, 3, without=without)
    found.save(tmp_path / "who.npz")
    loaded = Assignment.load(tmp_path / "who.npz")
    assert np.array_equal(found.codes, loaded.codes)
    assert (loaded.how, loaded.why, loaded.k) == (found.how, found.why, 3)
    o, a, offsets, _ = linear_hands(each=8, first=2)
    new = prepare(o, a, offsets, scaling=loaded.scaling)
    for before, after in zip(found.assign(new), loaded.assign(new)):
        assert np.array_equal(before, after)


def test_linked_contexts_are_saved_too(tmp_path, crossed, linked):
    o, a, offsets, _, context = crossed
    linked.save(tmp_path / "who.npz")
    loaded = Assignment.load(tmp_path / "who.npz")
    new = prepare(o, a, offsets, context=context, scaling=loaded.scaling)
    assert np.array_equal(linked.assign(new)[0], loaded.assign(new)[0])
    with pytest.raises(UserError, match="expected a saved assignment"):
        Assignment.load(tmp_path / "none.npz")


def test_hands_are_linked_across_declared_contexts(crossed, linked):
    o, a, offsets, source, context = crossed
    assert linked.how == "linked contexts"
    assert adjusted_rand_score(source, linked.codes) > 0.9
    # Contexts of nearly twelve trajectories a hand are enough for new ones too.
    new = prepare(o, a, offsets, context=context, scaling=linked.scaling)
    assert (linked.assign(new)[0] == linked.codes).mean() > 0.95
    # An unknown context is no error.
    other = prepare(o, a, offsets, context=context + 99, scaling=linked.scaling)
    assert len(linked.assign(other)[0]) == len(source)


def test_context_columns_say_the_same_as_labels(crossed, linked):
    o, a, offsets, _, context = crossed
    columns = np.repeat(np.eye(4)[context], np.diff(offsets), axis=0)
    inputs = prepare(np.c_[o, columns], a, offsets, context_columns=[3, 4, 5, 6])
    assert inputs.observations.shape[1] == 3
    found = fit_who(inputs, 3)
    assert adjusted_rand_score(linked.codes, found.codes) == 1


def test_contexts_that_change_inside_a_trajectory_are_refused(crossed):
    o, a, offsets, *_ = crossed
    with pytest.raises(UserError, match="stay the same within a trajectory"):
        prepare(o, a, offsets, context_columns=[0])


def test_a_group_has_one_code():
    o, a, offsets, source = linear_hands(noise=1.0, each=24)
    order = np.argsort(source, kind="stable")
    group = np.empty(len(source), int)
    group[order] = np.arange(len(source)) // 6
    inputs = prepare(o, a, offsets, group=group)
    for without in ([], ["graph"]):
        found = fit_who(inputs, 3, without=without)
        for g in np.unique(group):
            assert len(set(found.codes[group == g])) == 1
        assert adjusted_rand_score(source, found.codes) == 1


def test_discrete_actions_are_one_hot():
    rng = np.random.default_rng(0)
    source = np.repeat([0, 1], 20)
    o = rng.normal(size=(40, 30, 1))
    # The first hand chooses by the sign of the observation, the other against it.
    against = (o[..., 0] > 0) ^ (source[:, None] == 1)
    a = np.where(rng.random((40, 30)) < 0.1, 2, against).reshape(-1, 1)
    offsets = np.arange(41) * 30
    inputs = prepare(o.reshape(-1, 1), a, offsets, choices=[3])
    assert inputs.actions.shape[1] == 3
    assert inputs.discrete
    found = fit_who(inputs, 2)
    assert adjusted_rand_score(source, found.codes) == 1
    with pytest.raises(UserError, match="whole numbers from 0"):
        prepare(o.reshape(-1, 1), a, offsets, choices=[2])


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_trajectories_are_no_error(steps):
    inputs, source = linear(steps=steps, each=30)
    for without in ([], ["graph"]):
        found = fit_who(inputs, 3, without=without)
        assert len(found.codes) == len(source)
        assert np.isfinite(found.responsibilities).all()
        assert set(found.codes) == {0, 1, 2}


def test_one_hand_is_the_trivial_answer(tmp_path):
    inputs, source = linear(each=4)
    found = fit_who(inputs, 1)
    assert not found.codes.any()
    assert found.responsibilities.shape == (len(source), 1)
    found.save(tmp_path / "who.npz")
    assert not Assignment.load(tmp_path / "who.npz").assign(inputs)[0].any()


def test_one_trajectory_has_one_hand():
    o, a, _, _ = linear_hands(hands=1, each=1)
    inputs = prepare(o, a, [0, len(o)])
    assert fit_who(inputs, 1).codes.tolist() == [0]
    with pytest.raises(UserError, match="number of trajectories, 1; got 2"):
        fit_who(inputs, 2)


def test_as_many_hands_as_trajectories():
    inputs, _ = linear(each=2)
    assert sorted(fit_who(inputs, 6).codes) == list(range(6))
    with pytest.raises(UserError, match="between 1 and the number of trajectories, 6"):
        fit_who(inputs, 7)
    grouped = prepare(*linear_hands(each=2)[:3], group=[0, 0, 0, 1, 1, 1])
    with pytest.raises(UserError, match="number of groups, 2"):
        fit_who(grouped, 3)


def test_bad_inputs_are_refused_in_a_sentence():
    o, a, offsets, _ = linear_hands(each=4)
    with pytest.raises(UserError, match="expected some that differ"):
        prepare(o, np.ones_like(a), offsets)
    with pytest.raises(UserError, match="finite"):
        prepare(np.where(o > 2, np.nan, o), a, offsets)
    with pytest.raises(UserError, match="one row per step"):
        prepare(o[:-1], a, offsets)
    with pytest.raises(UserError, match="one label per trajectory"):
        prepare(o, a, offsets, group=[1, 2])
    inputs = prepare(o, a, offsets)
    with pytest.raises(UserError, match="without: expected some of"):
        fit_who(inputs, 2, without=["luck"])
    with pytest.raises(UserError, match="seed"):
        fit_who(inputs, 2, seed=-1)


def test_identical_trajectories_are_no_error():
    o, a, _, _ = linear_hands(hands=1, each=1)
    inputs = prepare(np.tile(o, (6, 1)), np.tile(a, (6, 1)), np.arange(7) * len(o))
    for without in ([], ["graph"]):
        assert set(fit_who(inputs, 2, without=without).codes) == {0, 1}


def test_constant_observations_are_no_error():
    _, a, offsets, source = linear_hands()
    found = fit_who(prepare(np.zeros((len(a), 2)), a, offsets), 3)
    assert len(found.codes) == len(source)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_can_be_left_out(part):
    inputs, source = linear(each=10)
    found = fit_who(inputs, 3, without=[part])
    assert adjusted_rand_score(source, found.codes) > 0.8


def test_more_trajectories_than_are_fitted(monkeypatch):
    monkeypatch.setattr("manyhands.assign.assigner.MOST_FITTED", 40)
    inputs, source = linear()
    found = fit_who(inputs, 3)
    assert adjusted_rand_score(source, found.codes) > 0.9
    assert "40 trajectories, drawn at random, were fitted" in found.why
    assert found.responsibilities.shape == (60, 3)
