"""Adam against a float64 loop of the formulas, as Keras writes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands.nn.bundle import Bundle
from manyhands.nn.optimizer import Trained, for_all, for_kernels, polyak

STEPS = 7
# One leaf is large enough to stand alone in a bundle, two share a vector.
SHAPES = {"bias": (5,), "kernel": (64, 40), "table": (3, 4)}
RATES = {"bias": 3e-3, "kernel": 1e-2, "table": 1e-1}
DECAYS = {"bias": 0.0, "kernel": 0.5, "table": 0.1}
NONE = dict.fromkeys(SHAPES, 0.0)


def draw(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape) for name, shape in SHAPES.items()}


def gradient(step: int) -> dict[str, np.ndarray]:
    """Of very different sizes: where they are small, epsilon matters."""
    sizes = {name: np.logspace(-8, 1, shape[-1]) for name, shape in SHAPES.items()}
    return {name: g * sizes[name] for name, g in draw(100 + step).items()}


def adam64(rates, decays) -> dict[str, np.ndarray]:
    """m, v; alpha_t = alpha sqrt(1 - b2^t) / (1 - b1^t); p -= alpha_t m / (sqrt v + e).

    With the epsilon beside sqrt(v) (Kingma and Ba's "epsilon hat"), and decay as AdamW.
    """
    after = draw(0)
    m, v = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in "mv")
    for t in range(1, STEPS + 1):
        for name, g in gradient(t).items():
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g**2
            rate = rates[name] * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            step = rate * m[name] / (np.sqrt(v[name]) + 1e-7)
            after[name] = after[name] - step - rates[name] * decays[name] * after[name]
    return after


def single(tree):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


@pytest.mark.parametrize(
    ("rates", "decays"),
    [(RATES, DECAYS), (RATES, NONE), (dict.fromkeys(SHAPES, 1e-2), NONE)],
    ids=["rates and decays", "rates", "one rate"],
)
def test_several_steps_of_a_float64_loop(rates, decays):
    trained = Trained.of(single(draw(0)))
    for t in range(1, STEPS + 1):
        trained = trained.descend(single(gradient(t)), rates, decays)
    assert int(trained.steps) == STEPS
    expected = adam64(rates, decays)
    for name, start in draw(0).items():
        # The ways from the start agree, not only where they end.
        way = np.asarray(trained.tree()[name], np.float64) - start
        np.testing.assert_allclose(
            way, expected[name] - start, rtol=1e-4, atol=1e-6, err_msg=name
        )


def test_the_first_step_shows_where_the_epsilon_stands():
    """m = 0.1 g, v = 0.001 g^2: a step of rate |g| / (|g| + epsilon / sqrt(0.001))."""
    g, rate = 1e-6, 1e-2
    after = Trained.of(jnp.zeros(1)).descend(jnp.array([g]), rate)
    expected = -rate * g / (g + 1e-7 / np.sqrt(0.001))
    assert float(after.tree()[0]) == pytest.approx(expected, rel=1e-4)


def test_a_step_goes_down_the_gradient_of_a_loss():
    start, data = single(draw(0)), single(draw(1))

    def loss(tree, data, weight):
        squares = jax.tree.map(lambda x, y: ((x - y) ** 2).sum(), tree, data)
        return weight * sum(jax.tree.leaves(squares)), {"weight": weight}

    found, metrics = Trained.of(start).step(loss, 0.1, data, 3.0)
    assert metrics == {"weight": 3.0}
    gradient = jax.tree.map(lambda x, y: 6 * (x - y), start, data)
    expected = Trained.of(start).descend(gradient, for_all(0.1, start))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_state_starts_at_zero_in_arrays_of_its_own():
    state = Trained.of(single(draw(0)))
    for mean, square in zip(jax.tree.leaves(state.mean), jax.tree.leaves(state.square)):
        assert mean is not square
        assert not np.any(mean)
        assert not np.any(square)


def test_one_number_for_all_leaves_or_for_matrices():
    tree = single(draw(0))
    assert for_all(0.3, tree) == dict.fromkeys(SHAPES, 0.3)
    assert for_kernels(0.3, tree) == {"bias": 0.0, "kernel": 0.3, "table": 0.3}


def test_polyak_moves_a_share_of_the_way():
    target, online = draw(0), draw(1)
    rate = jnp.float32(0.25)
    moved = Bundle.of(single(target))
    for _ in range(10):
        moved = polyak(moved, Trained.of(single(online)), rate)
    for name, found in moved.tree().items():
        # After n moves to a resting place, (1 - rate)^n of the way is left.
        left = 0.75**10 * (online[name] - target[name])
        np.testing.assert_allclose(online[name] - found, left, rtol=1e-3, atol=1e-5)
