"""Adam against a float64 loop of the formulas, as Keras writes them."""

import jax.numpy as jnp
import numpy as np
import pytest

from manyhands.nn import adam

STEPS, SIZE = 7, 6
START = np.random.default_rng(0).normal(size=SIZE)
# Of very different sizes: where gradients are small, epsilon matters.
SCALES = np.array([1.0, 1e-7, 30.0, 1e-6, 1e-3, 1e-8])
RATES = np.array([1e-2, 1e-2, 3e-3, 3e-3, 3e-3, 1e-1])
DECAYS = np.array([0.5, 0.5, 0.0, 0.0, 0.1, 0.1])


def gradient(step: int) -> np.ndarray:
    return SCALES * np.random.default_rng(100 + step).normal(size=SIZE)


def adam64(rates, decays) -> np.ndarray:
    """m, v; alpha_t = alpha sqrt(1 - b2^t) / (1 - b1^t); p -= alpha_t m / (sqrt v + e).

    With the epsilon beside sqrt(v) (Kingma and Ba's "epsilon hat"), and decay as AdamW.
    """
    p, m, v = START.copy(), np.zeros(SIZE), np.zeros(SIZE)
    for t in range(1, STEPS + 1):
        g = gradient(t)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        alpha = rates * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        p = p - alpha * m / (np.sqrt(v) + 1e-7) - rates * decays * p
    return p


def single(x) -> jnp.ndarray:
    return jnp.asarray(x, jnp.float32)


@pytest.mark.parametrize(
    ("rates", "decays"),
    [(RATES, DECAYS), (RATES, 0.0), (1e-2, DECAYS), (1e-2, 0.3)],
    ids=["rates and decays", "rates", "decays", "one of each"],
)
def test_several_steps_of_a_float64_loop(rates, decays):
    p = single(START)
    state = adam.init(p)
    for t in range(1, STEPS + 1):
        p, state = adam.update(
            p, single(gradient(t)), state, single(rates), single(decays)
        )
    assert int(state.steps) == STEPS
    # The ways from the start agree, not only where they end.
    way = np.asarray(p, np.float64) - START
    np.testing.assert_allclose(way, adam64(rates, decays) - START, rtol=1e-4, atol=5e-7)


def test_the_first_step_shows_where_the_epsilon_stands():
    """m = 0.1 g, v = 0.001 g^2: a step of rate |g| / (|g| + epsilon / sqrt(0.001))."""
    g, rate = 1e-6, 1e-2
    zero = jnp.zeros(1)
    after, _ = adam.update(zero, jnp.array([g]), adam.init(zero), jnp.float32(rate))
    expected = -rate * g / (g + 1e-7 / np.sqrt(0.001))
    assert float(after[0]) == pytest.approx(expected, rel=1e-4)


def test_the_state_starts_at_zero_in_two_arrays():
    state = adam.init(single(START))
    assert not np.any(state.mean)
    assert not np.any(state.square)
    assert state.mean is not state.square


def test_polyak_moves_a_share_of_the_way():
    target, online = jnp.array([1.0, -2.0]), jnp.array([3.0, 2.0])
    moved = adam.polyak(target, online, 0.25)
    np.testing.assert_allclose(moved, [1.5, -1.0])
    assert np.array_equal(adam.polyak(target, online, 0.0), target)
    # After n moves to a resting place, (1 - rate)^n of the way is left.
    for _ in range(9):
        moved = adam.polyak(moved, online, 0.25)
    left = np.asarray(online - moved)
    np.testing.assert_allclose(left, np.array([2, 4]) * 0.75**10, rtol=1e-5)
