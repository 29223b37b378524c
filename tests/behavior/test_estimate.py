"""What can be asked of a fitted behavior set, of one small fit to two sources."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from manyhands import Behavior, Trajectories, UserError, fit, make
from manyhands.behavior.estimate import evaluate
from manyhands.types import Box


@pytest.fixture(scope="module")
def data() -> Trajectories:
    return make("fork-2", 4000)


@pytest.fixture(scope="module")
def behavior(data) -> Behavior:
    found = fit(data, k=2, steps=800, policy_width=64, policy_rate=1e-3)
    assert isinstance(found, Behavior)
    return found


@pytest.fixture(scope="module")
def unseen() -> Trajectories:
    return make("fork-2", 1000, seed=5)


def with_actions(data: Trajectories, actions: np.ndarray) -> Trajectories:
    return replace(data, actions=actions.astype(np.float32))


def sums(data: Trajectories, by_code: np.ndarray) -> np.ndarray:
    """[M, K], trajectory by trajectory."""
    ends = zip(data.offsets[:-1], data.offsets[1:])
    return np.stack([by_code[a:b].astype(np.float64).sum(axis=0) for a, b in ends])


def best(behavior: Behavior, data: Trajectories) -> np.ndarray:
    return sums(data, behavior.code_log_probs(data)).argmax(axis=1)


def test_every_trajectory_has_a_code_and_the_codes_are_the_sources(behavior, data):
    assert behavior.codes.shape == (len(data),)
    assert behavior.k == 2
    share = np.mean(behavior.codes == data.sources)
    assert max(share, 1 - share) > 0.98
    # The largest comes first.
    assert np.bincount(behavior.codes)[0] >= len(data) / 2
    np.testing.assert_allclose(
        behavior.prior, np.bincount(behavior.codes) / len(data), atol=1e-6
    )
    assert behavior.probabilities.shape == (len(data), 2)
    np.testing.assert_allclose(behavior.probabilities.sum(axis=1), 1, atol=1e-5)
    assert repr(behavior) == f"Behavior('vq', 2 codes, {len(data)} trajectories)"


# Log-probabilities


def test_log_prob_is_that_of_the_codes_found_in_fitting(behavior, data):
    by_code = behavior.code_log_probs(data)
    assert by_code.shape == (data.transitions, 2)
    expected = by_code[np.arange(data.transitions), behavior.codes[data.trajectory]]
    assert np.array_equal(behavior.log_prob(data), expected)
    # Also of the same data under another name, and as a view of all of it.
    assert np.array_equal(behavior.log_prob(data.renumbered()), expected)


def test_log_prob_of_given_codes(behavior, data):
    by_code = behavior.code_log_probs(data)
    for code in (0, 1):
        found = behavior.log_prob(data, np.full(len(data), code))
        assert np.array_equal(found, by_code[:, code])
    mixed = np.arange(len(data)) % 2
    expected = np.where(mixed[data.trajectory] == 0, *by_code.T)
    assert np.array_equal(behavior.log_prob(data, mixed.tolist()), expected)


@pytest.mark.parametrize("which", ["unseen", "a view", "another order"])
def test_log_prob_of_other_data_uses_the_most_probable_codes(
    behavior, data, unseen, which
):
    view = {"unseen": unseen, "a view": data[10:30], "another order": data.shuffle()}
    other = view[which]
    by_code = behavior.code_log_probs(other)
    logits = sums(other, by_code) + np.log(behavior.prior)
    codes = logits.argmax(axis=1)[other.trajectory]
    expected = by_code[np.arange(other.transitions), codes]
    assert np.array_equal(behavior.log_prob(other), expected)


def test_log_probs_are_near_the_true_ones(behavior, unseen):
    """As near as a short fit comes; test_fork_sources.py has the longer ones."""
    error = behavior.log_prob(unseen) - unseen.log_probs
    assert np.median(np.abs(error)) < 0.6
    assert abs(error.mean()) < 0.8


def test_rows_are_the_same_whatever_stands_beside_them(behavior, data):
    alone = behavior.code_log_probs(data[3])
    rows = slice(data.offsets[3], data.offsets[4])
    np.testing.assert_allclose(
        alone, behavior.code_log_probs(data)[rows], rtol=1e-5, atol=1e-4
    )


def test_evaluation_in_blocks(monkeypatch):
    """A length that the block does not divide; the last block is padded. Few rows are
    padded to a power of two."""
    monkeypatch.setattr("manyhands.behavior.estimate.BLOCK", 4)
    seen = []

    def double(model, box, a, b):
        seen.append(len(a))
        return model * a[:, None] + b

    a, b = np.arange(10.0), np.ones((10, 2))
    box = Box(jnp.zeros(1), jnp.ones(1))
    found = evaluate(double, 2, box, a, b)
    assert np.array_equal(found, 2 * a[:, None] + b)
    assert seen == [4, 4, 4]
    monkeypatch.setattr("manyhands.behavior.estimate.BLOCK", 64)
    assert evaluate(double, 2, box, a, b).shape == (10, 2)
    assert evaluate(double, 2, box, a[:1], b[:1]).shape == (1, 2)
    assert seen[3:] == [16, 1]
    # On a CPU they are shorter.
    monkeypatch.setattr("manyhands.behavior.estimate.CPU_BLOCK", 8)
    cpu = jax.default_backend() == "cpu"
    assert np.array_equal(evaluate(double, 2, box, a, b), found)
    assert seen[5:] == ([8, 8] if cpu else [16])


# Who made a trajectory?


def test_responsibilities_find_the_source_of_unseen_trajectories(
    behavior, data, unseen
):
    found = behavior.responsibilities(unseen)
    assert found.shape == (len(unseen), 2)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-9)
    source_of = [
        np.bincount(data.sources[behavior.codes == code]).argmax() for code in (0, 1)
    ]
    right = np.array(source_of)[found.argmax(axis=1)] == unseen.sources
    assert right.mean() > 0.98


@pytest.mark.parametrize("prior", ["learned", "uniform"])
def test_the_formula_of_responsibilities(behavior, unseen, prior):
    skewed = replace(behavior, prior=np.array([0.999, 0.001]))
    some = unseen[:5]
    # Single steps, where a prior matters
    step = some._rows(some.offsets[:-1], np.arange(5), np.arange(6))
    logits = behavior.code_log_probs(step).astype(np.float64)
    if prior == "learned":
        logits = logits + np.log([0.999, 0.001])
    expected = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(
        skewed.responsibilities(step, prior), expected, rtol=1e-6
    )


def test_a_code_without_trajectories_explains_nothing(behavior, data, unseen):
    """As where fewer codes are used than there are; without a warning, too."""
    alone = replace(
        behavior,
        prior=np.array([0.0, 1.0]),
        usual=np.array([[-np.inf, 0], behavior.usual[1]]),
    )
    expected = np.broadcast_to([0, 1], (len(unseen), 2))
    for prior in ("learned", "uniform"):
        np.testing.assert_array_equal(alone.responsibilities(unseen, prior), expected)
    others = data[behavior.codes == 0]
    assert alone.unexplained(others).mean() > 0.9
    under = alone.code_log_probs(others)[:, 1]
    assert np.array_equal(alone.log_prob(others), under)
    assert np.isfinite(alone.second_half(others)).all()


def test_trajectories_of_random_actions_are_unexplained(behavior, data, unseen):
    assert behavior.unexplained(data).mean() < 0.02
    assert behavior.unexplained(unseen).mean() < 0.05
    random = np.random.default_rng(0).uniform(-1, 1, size=unseen.actions.shape)
    nobody = behavior.unexplained(with_actions(unseen, random))
    assert nobody.shape == (len(unseen),)
    assert nobody.all()


def test_the_second_half_is_judged_by_the_code_of_the_first(behavior, unseen):
    """Trajectories of one, two and three steps, and whole ones, one by one."""
    lengths = [1, 2, 3, *unseen.lengths[3:10]]
    starts = unseen.offsets[:10]
    rows = np.concatenate([np.arange(a, a + n) for a, n in zip(starts, lengths)])
    some = unseen._rows(rows, np.arange(10), np.concatenate([[0], np.cumsum(lengths)]))
    found = behavior.second_half(some)
    by_code = behavior.code_log_probs(some).astype(np.float64)
    assert np.isnan(found[0])
    for m in range(1, 10):
        mine = by_code[some.offsets[m] : some.offsets[m + 1]]
        half = lengths[m] // 2
        code = (mine[:half].sum(axis=0) + np.log(behavior.prior)).argmax()
        assert found[m] == pytest.approx(mine[half:, code].mean(), rel=1e-5)


# Acting


def test_samples_lie_in_the_box_and_are_as_probable_as_they_should_be(behavior, data):
    for code in (0, 1):
        mine = data[behavior.codes == code]
        actions = behavior.sample(mine.observations, code, seed=1)
        assert actions.shape == mine.actions.shape
        assert (np.abs(actions) <= 1).all()
        drawn = behavior.log_prob(with_actions(mine, actions), np.full(len(mine), code))
        given = behavior.log_prob(mine, np.full(len(mine), code))
        # A policy's own actions have its negative entropy on average, and data from
        # the policy it was fitted to about the same.
        assert drawn.mean() == pytest.approx(given.mean(), abs=0.3)
        assert drawn.mean() > given.mean() - 0.1


def test_a_code_for_every_row(behavior, data):
    rows = np.repeat(data.observations[:1], 400, axis=0)
    codes = np.arange(400) % 2
    mixed = behavior.sample(rows, codes)
    ones = [behavior.sample(rows, code) for code in (0, 1)]
    assert np.array_equal(mixed, np.where(codes[:, None] == 0, *ones))
    # At the start, the two go to different sides.
    assert abs(ones[0][:, 0].mean() - ones[1][:, 0].mean()) > 0.5


def test_samples_are_the_same_given_the_seed(behavior, data):
    one, same, other = (
        behavior.sample(data.observations[:50], 0, seed) for seed in (3, 3, 4)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    single = behavior.sample(data.observations[0], 0)
    assert single.shape == (1, 2)


# Files


def test_saved_and_loaded_it_says_the_same_to_the_bit(behavior, data, unseen, tmp_path):
    behavior.save(tmp_path / "b")
    again = Behavior.load(tmp_path / "b")
    assert again.options == behavior.options
    assert again.summary["behavior"]["ari"] == behavior.summary["behavior"]["ari"]
    for ours, theirs in zip(
        jax.tree.leaves(again.model), jax.tree.leaves(behavior.model), strict=True
    ):
        assert np.array_equal(ours, theirs)
    for other in (data, unseen):
        assert np.array_equal(again.log_prob(other), behavior.log_prob(other))
        assert np.array_equal(
            again.responsibilities(other), behavior.responsibilities(other)
        )
        assert np.array_equal(again.unexplained(other), behavior.unexplained(other))
    rows = data.observations[:50]
    assert np.array_equal(again.sample(rows, 1), behavior.sample(rows, 1))


def test_a_folder_without_a_behavior_is_refused(tmp_path, behavior):
    with pytest.raises(UserError, match="no such file; expected a run directory"):
        Behavior.load(tmp_path)
    behavior.save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="model.safetensors"):
        Behavior.load(tmp_path)
    (tmp_path / "behavior.json").write_text("{")
    with pytest.raises(UserError, match="behavior.json: expected JSON"):
        Behavior.load(tmp_path)


# What cannot be answered


def test_data_of_other_sizes_is_refused(behavior, small):
    message = r"small: expected observations and actions of sizes \(4, 2\)"
    for ask in (behavior.log_prob, behavior.responsibilities, behavior.unexplained):
        with pytest.raises(UserError, match=message):
            ask(small)


@pytest.mark.parametrize("codes", [[0], [2], [-1], "too many"])
def test_codes_that_do_not_fit_are_refused(behavior, unseen, codes):
    if codes == "too many":
        codes = [0] * (len(unseen) + 1)
    elif codes != [0]:
        codes = codes * len(unseen)
    with pytest.raises(UserError, match="codes: expected"):
        behavior.log_prob(unseen, codes)


def test_observations_or_codes_that_do_not_fit_are_refused_in_sampling(behavior, data):
    for wrong in (data.observations[:, :1], data.observations[:, :3]):
        with pytest.raises(UserError, match="observations: expected"):
            behavior.sample(wrong, 0)
    for code in (2, -1, [0, 1, 0]):
        with pytest.raises(UserError, match="code: expected"):
            behavior.sample(data.observations[:2], code)


def test_all_steps_tell_who_made_a_trajectory_those_held_out_too():
    """Trajectories of the leap are so short that one step more or less matters."""
    data = make("leap-2", 3000)
    found = fit(data, k=2, steps=600)
    assert found.k == 2
    judged = found.responsibilities(data, prior="uniform").argmax(axis=1)
    assert (found.codes == judged).all()
    # The held-out score is that of codes in which those steps had no say.
    held = data.split_within(found.options.holdout, seed=0)[1]
    with_a_say = found.log_prob(held, found.codes[held.ids]).mean()
    assert found.summary["behavior"]["heldout_log_prob"] < with_a_say - 0.01
