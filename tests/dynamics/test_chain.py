"""Heads in turn: their gradient is written out, and must be that of what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands.dynamics.chain import Chain, in_turn

ROWS, LATENT, VARIABLES, HEAD = 5, 3, 4, 6


def plain(link, z, heads):
    """The same, one head after the other, for JAX to differentiate."""
    seen, means, raws = z, [], []
    for i in range(VARIABLES):
        h = seen
        for number, layer in enumerate(heads):
            w = layer.w[i][: seen.shape[1]] if number == 0 else layer.w[i]
            h = h @ w + layer.b[i]
            h = h if number == 2 else jax.nn.relu(h)
        means.append(h[:, 0])
        raws.append(h[:, 1])
        seen = jnp.concatenate([seen, link(h[:, :1])], axis=1)
    return jnp.stack(means, 1), jnp.stack(raws, 1)


def several(many: int):
    """Latent vectors and heads, `many` of them; nothing is 0, not even what no head
    may read."""
    random = np.random.default_rng(0)
    chain = Chain.init(jax.random.key(0), 2, VARIABLES, LATENT, 4, HEAD)

    def like(leaf):
        return jnp.asarray(random.normal(size=(many, *leaf.shape)), jnp.float32)

    z = jnp.asarray(random.normal(size=(many, ROWS, LATENT)), jnp.float32)
    return z, jax.tree.map(like, chain.heads)


@pytest.mark.parametrize("link", [jnp.tanh, lambda mean: mean])
def test_the_gradient_is_that_of_the_plain_form(link):
    weights = jnp.asarray(
        np.random.default_rng(1).normal(size=(2, ROWS, VARIABLES)), jnp.float32
    )

    def total(form, z, heads):
        mean, raw = form(link, z, heads)
        return jnp.sum(weights[0] * mean + weights[1] * jnp.tanh(raw))

    def of(form):
        one = jax.value_and_grad(lambda z, heads: total(form, z, heads), (0, 1))
        return jax.jit(jax.vmap(one))(*several(3))

    (value, gradient), (expected, by_jax) = of(in_turn), of(plain)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for found, right in zip(jax.tree.leaves(gradient), jax.tree.leaves(by_jax)):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


def test_what_a_head_must_not_read_has_no_gradient():
    z, heads = jax.tree.map(lambda leaf: leaf[0], several(1))

    def total(heads):
        return sum(map(jnp.sum, in_turn(jnp.tanh, z, heads)))

    first = jax.grad(total)(heads)[0].w
    for place in range(VARIABLES):
        read = LATENT + place
        assert (first[place, read:] == 0).all()
        assert (first[place, :read] != 0).any(axis=1).all()
