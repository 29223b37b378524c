"""From embeddings to codes, on small policies made by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands.behavior import quantise, vq
from manyhands.behavior.methods import METHODS
from manyhands.behavior.options import Options


def policy(W, codes: int, E=None) -> vq.Policy:
    """A policy with these embeddings (in the first of their eight dimensions)."""
    state = METHODS["vq"].init(
        jax.random.key(0), 3, 2, codes, len(W), Options(policy_width=8)
    )
    made = METHODS["vq"].model(state)
    made = eqx.tree_at(lambda p: p.W, made, eight(W))
    return made if E is None else eqx.tree_at(lambda p: p.E, made, eight(E))


def eight(rows) -> jax.Array:
    rows = np.asarray(rows, np.float32)
    return jnp.asarray(np.pad(rows, [(0, 0), (0, vq.EMBEDDING - rows.shape[1])]))


def says(p: vq.Policy, active) -> np.ndarray:
    """The codes that the embeddings say: argmax <e_k, w_m>, of the active ones."""
    W, E = (np.asarray(x, np.float64) for x in (p.W, p.E))
    W, E = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (W, E))
    return np.argmax(np.where(active, W @ E.T, -np.inf), axis=1)


def crowd(each: int, directions, noise: float = 0.05) -> np.ndarray:
    """Trajectories around some directions, at any length."""
    random = np.random.default_rng(0)
    rows = np.repeat(np.asarray(directions, float), each, axis=0)
    rows = rows + noise * random.normal(size=rows.shape)
    return rows * random.uniform(0.1, 10, size=(len(rows), 1))


THREE = [[1, 0, 0], [0, 1, 0], [0, -1, 1]]


def test_start_codes_finds_the_groups_of_embeddings():
    W = crowd(20, THREE)
    started, active = quantise.start_codes(policy(W, codes=5), 3, seed=0)
    assert active.tolist() == [True] * 3 + [False] * 2
    codes = says(started, active)
    groups = codes.reshape(3, 20)
    assert (groups == groups[:, :1]).all()
    assert len(set(groups[:, 0])) == 3
    # A code is the mean of its group's embeddings of length 1.
    E = np.asarray(started.E)
    for group, code in enumerate(groups[:, 0]):
        mine = W[20 * group : 20 * group + 20]
        mine = mine / np.linalg.norm(mine, axis=1, keepdims=True)
        np.testing.assert_allclose(E[code, :3], mine.mean(axis=0), atol=1e-5)
    # Nothing moved, as everyone is with its own; only lengths are 1 now.
    expected = W / np.linalg.norm(W, axis=1, keepdims=True)
    np.testing.assert_allclose(started.W[:, :3], expected, atol=1e-6)


def test_start_codes_leaves_networks_and_codes_to_spare_as_they_are():
    before = policy(crowd(20, THREE), codes=5)
    after, _ = quantise.start_codes(before, 3, seed=0)
    assert np.array_equal(after.E[3:], before.E[3:])
    for part in ("trunk", "head"):
        for a, b in zip(
            jax.tree.leaves(getattr(after, part)),
            jax.tree.leaves(getattr(before, part)),
        ):
            assert np.array_equal(a, b)


def test_start_codes_makes_no_more_codes_than_there_are_embeddings():
    """Rows of one direction are one embedding, whatever their lengths."""
    W = np.array([[1, 0], [2, 0], [0, 3], [0, 0.5], [0, 1]])
    started, active = quantise.start_codes(policy(W, codes=4), 4, seed=0)
    assert active.tolist() == [True, True, False, False]
    a, b, *rest = says(started, active)[[0, 2, 1, 3, 4]]
    assert a != b
    assert rest == [a, b, b]


def test_start_codes_of_one_trajectory():
    started, active = quantise.start_codes(policy([[1.0, 1.0]], codes=2), 2, seed=0)
    assert active.tolist() == [True, False]
    assert says(started, active).tolist() == [0]


def test_start_codes_is_the_same_given_the_seed():
    p = policy(crowd(10, THREE, noise=0.5), codes=6)
    one, same = (quantise.start_codes(p, 6, seed=3)[0] for _ in range(2))
    assert np.array_equal(one.E, same.E)
    assert np.array_equal(one.W, same.W)


def test_move_to_codes_moves_only_those_that_say_another_code():
    E = [[2, 0], [0, 1], [-1, 0]]
    W = [[3, 1], [1, 3], [-1, 0.1], [5, 0]]  # they say 0, 1, 2, 0
    moved = quantise.move_to_codes(
        policy(W, 3, E), np.array([0, 0, 2, 1]), np.ones(3, bool)
    )
    stay = np.array(W) / np.linalg.norm(W, axis=1, keepdims=True)
    expected = [stay[0], [1, 0], stay[2], [0, 1]]
    np.testing.assert_allclose(moved.W, eight(expected), atol=1e-6)
    assert np.array_equal(moved.E, eight(E))


def test_after_moving_the_embeddings_say_what_they_are_told():
    random = np.random.default_rng(0)
    p = policy(random.normal(size=(50, 8)), 6, random.normal(size=(6, 8)))
    active = np.array([True, False, True, True, False, True])
    codes = random.choice(np.flatnonzero(active), size=50)
    assert np.array_equal(says(quantise.move_to_codes(p, codes, active), active), codes)


def test_an_embedding_that_says_a_dropped_code_needs_no_move_if_its_next_is_right():
    E, W = [[1, 0], [0.9, 0.1], [0, 1]], [[0.9, 0.1]]
    active = np.array([True, False, True])
    moved = quantise.move_to_codes(policy(W, 3, E), np.array([0]), active)
    kept = np.array(W) / np.linalg.norm(W)
    np.testing.assert_allclose(moved.W, eight(kept), atol=1e-6)


@pytest.mark.parametrize(
    ("active", "expected"),
    [([1, 1, 1], [1, 0, 2]), ([1, 0, 1], [2, 0, 2]), ([0, 1, 0], [1, 1, 1])],
)
def test_by_likelihood(active, expected):
    table = np.array([[-9.0, -1, -3], [-2, -5, -3], [-4, -3, -1]])
    found = quantise.by_likelihood(table, np.array(active, bool))
    assert found.tolist() == expected


def test_merge_takes_codes_by_likelihood_and_drops_the_false_one():
    """Codes 0 and 2 are one behavior in the steps held out; 3 is none's best."""
    train = np.full((40, 4), -20.0)
    train[np.arange(40), np.repeat([0, 1, 2, 0], 10)] = -10
    held = np.full((40, 4), -30.0)
    held[:10, [0, 2]] = held[20:, [0, 2]] = -10
    held[10:20, 1] = -10
    codes, active, steps = quantise.merge(
        np.ones(4, bool), train, held, np.full(40, 10), np.zeros((40, 2)), at_most=4
    )
    assert len(steps) == 2
    assert active.sum() == 2
    assert active[1]
    assert not active[3]
    one = codes[0]
    assert codes.tolist() == [one] * 10 + [1] * 10 + [one] * 20


def test_a_code_that_nobody_uses_starts_again_at_what_is_explained_worst():
    p = policy([[1, 0], [1, 1], [0, 1], [-1, 0]], codes=4, E=[[1, 0], [0, 1]] * 2)
    active = np.array([True, True, True, False])
    codes = np.array([0, 0, 1, 1])
    log_probs = np.full((4, 4), -9.0)
    log_probs[[0, 1, 2, 3], codes] = [2.0, 1.0, 2.0, -5.0]
    revived, found = quantise.revive(p, codes, log_probs, active)
    assert found.tolist() == [0, 0, 1, 2]  # the fourth code is not there to be used
    assert codes.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(revived.E[2], p.W[3])
    np.testing.assert_array_equal(
        revived.E[jnp.array([0, 1, 3])], p.E[jnp.array([0, 1, 3])]
    )
    moved = quantise.move_to_codes(revived, found, active)
    assert says(moved, active).tolist() == found.tolist()


def test_reviving_never_empties_another_code():
    p = policy([[1, 0], [0, 1], [1, 1]], codes=5)
    log_probs = np.array([[-9.0, 0, 0, 0, 0]] + [[0.0] * 5] * 2)
    _, found = quantise.revive(p, np.array([0, 1, 1]), log_probs, np.ones(5, bool))
    assert sorted(found.tolist()) == [0, 1, 2]
