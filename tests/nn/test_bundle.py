"""Parameters in a bundle and out of it again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands.nn.bundle import LARGE, Bundle


def tree(large: bool = True) -> dict:
    random = np.random.default_rng(0)
    shapes = {"a": (3, 5), "b": (), "c": (0, 4), "d": (7,)}
    if large:
        shapes["big"] = (LARGE // 4, 4)
    return {k: jnp.asarray(random.normal(size=s), "float32") for k, s in shapes.items()}


def assert_equal(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.shape == b.shape
        assert np.array_equal(a, b)


@pytest.mark.parametrize("large", [True, False])
def test_what_goes_in_comes_out(large):
    bundle = Bundle.of(tree(large))
    assert len(bundle.large) == large
    assert_equal(bundle.tree(), tree(large))
    again = jax.jit(lambda b: b.tree())(bundle)
    assert_equal(again, tree(large))


def test_leading_axes_lead_every_array():
    def scaled(factor):
        return jax.tree.map(lambda x: factor * x, tree())

    factors = jnp.array([1.0, 2.0, -1.0])
    bundles = jax.vmap(lambda f: Bundle.of(scaled(f)))(factors)
    assert_equal(bundles.tree(), jax.vmap(scaled)(factors))
    assert_equal(jax.vmap(lambda b: b.tree())(bundles), jax.vmap(scaled)(factors))


def test_a_number_for_every_array():
    numbers = {"a": 1.0, "b": 2.0, "c": 3.0, "d": jnp.float32(4.0), "big": 5.0}
    bundle = Bundle.of(tree())
    product = jax.tree.map(lambda x, n: x * n, bundle, bundle.spread(numbers))
    assert_equal(product.tree(), {k: numbers[k] * x for k, x in tree().items()})
