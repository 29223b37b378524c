"""Networks against the same formulas in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands.nn.critics import for_members, init, values_of
from manyhands.nn.networks import (
    MLP,
    Dense,
    Head,
    Trunk,
    layer_norm,
    normalize,
    relu_layer,
    take_rows,
    with_idle_units,
)
from manyhands.nn.optimizer import Trained

INPUTS, HIDDEN, EMBEDDING, OUT = 3, 16, 4, 5


def randomized(module, seed: int = 0):
    """The module with every parameter drawn anew: zeros and ones would hide errors."""
    random = np.random.default_rng(seed)

    def draw(leaf):
        return jnp.asarray(random.normal(size=leaf.shape), jnp.float32)

    return jax.tree.map(draw, module)


def rows(*shape: int, seed: int = 1) -> jnp.ndarray:
    drawn = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(drawn, jnp.float32)


def double(x) -> np.ndarray:
    return np.asarray(x, np.float64)


def dense64(layer: Dense, x) -> np.ndarray:
    return double(x) @ double(layer.w) + double(layer.b)


def trunk64(trunk: Trunk, x) -> np.ndarray:
    h = np.maximum(dense64(trunk.first, x), 0)
    h = np.maximum(dense64(trunk.second, h), 0)
    return layer_norm64(h, trunk.scale, trunk.bias)


def layer_norm64(h, scale, bias) -> np.ndarray:
    h = double(h)
    normal = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-3)
    return normal * double(scale) + double(bias)


def head64(head: Head, features, embedding) -> np.ndarray:
    joint = np.concatenate([double(features), double(embedding)], axis=-1)
    kernel = np.concatenate([double(head.first.w), double(head.embed)])
    h = np.maximum(joint @ kernel + double(head.first.b), 0)
    return dense64(head.last, h)


@pytest.fixture(scope="module")
def trunk() -> Trunk:
    return randomized(Trunk.init(jax.random.key(0), INPUTS, HIDDEN))


@pytest.fixture(scope="module")
def head() -> Head:
    return randomized(Head.init(jax.random.key(0), HIDDEN, EMBEDDING, HIDDEN, OUT))


def test_dense_starts_as_glorot_uniform_with_zero_bias():
    layer = Dense.init(jax.random.key(3), 200, 100)
    limit = np.sqrt(6 / 300)
    assert layer.w.shape == (200, 100)
    assert np.abs(layer.w).max() <= limit
    # A uniform distribution on +-limit has deviation limit / sqrt(3).
    assert np.std(layer.w) == pytest.approx(limit / np.sqrt(3), rel=0.02)
    assert abs(np.mean(layer.w)) < 0.02 * limit
    assert not np.any(layer.b)


def plain_layer(x, w, b):
    return jax.nn.relu(x @ w + b)


@pytest.mark.parametrize("lead", [(), (7,), (2, 7)])
def test_relu_layer_has_the_bits_of_the_plain_one(lead):
    x, w, b = rows(*lead, INPUTS), rows(INPUTS, HIDDEN, seed=2), rows(HIDDEN, seed=3)
    found = np.asarray(relu_layer(x, w, b))
    assert (found == 0).any()
    assert (found > 0).any()
    np.testing.assert_array_equal(found, plain_layer(x, w, b))


@pytest.mark.parametrize("lead", [(), (7,), (2, 7)])
def test_gradient_of_relu_layer(lead):
    """By hand, in float64."""
    x, w, b = rows(*lead, INPUTS), rows(INPUTS, HIDDEN, seed=2), rows(HIDDEN, seed=3)
    weights = rows(*lead, HIDDEN, seed=4)

    def loss(x, w, b):
        return jnp.vdot(weights, relu_layer(x, w, b))

    of_x, of_w, of_b = jax.grad(loss, argnums=(0, 1, 2))(x, w, b)
    g = double(weights) * (double(x) @ double(w) + double(b) > 0)
    np.testing.assert_allclose(of_x, g @ double(w).T, rtol=1e-5, atol=1e-5)
    flat, inputs = g.reshape(-1, HIDDEN), double(x).reshape(-1, INPUTS)
    np.testing.assert_allclose(of_w, inputs.T @ flat, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_b, flat.sum(axis=0), rtol=1e-5, atol=1e-5)


def test_gradient_of_a_gradient_of_relu_layers():
    """As a penalty on the steepness of a network takes it."""
    x, w, b = rows(7, INPUTS), rows(INPUTS, HIDDEN, seed=2), rows(HIDDEN, seed=3)

    def penalty(layer, w):
        def total(x):
            return jnp.sum(layer(layer(x, w, b), w.T, b[:INPUTS]) ** 2)

        return jnp.sum(jax.grad(total)(x) ** 2)

    found, expected = (
        jax.grad(penalty, argnums=1)(layer, w) for layer in (relu_layer, plain_layer)
    )
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_members_of_a_critic_see_the_same_rows():
    critic = randomized(init(jax.random.key(0), INPUTS + 2, HIDDEN))
    states, actions = rows(7, INPUTS), rows(7, 2, seed=2)
    inputs = jnp.concatenate([states, actions], axis=-1)
    assert np.array_equal(for_members(critic, inputs), np.stack([inputs, inputs]))
    for member, found in enumerate(values_of(critic, states, actions)):
        alone = jax.tree.map(lambda leaf: leaf[member], critic)  # noqa: B023
        np.testing.assert_allclose(found, alone(inputs)[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lead", [(), (7,), (2, 3)])
def test_trunk(trunk, lead):
    x = rows(*lead, INPUTS)
    assert trunk(x).shape == (*lead, HIDDEN)
    np.testing.assert_allclose(trunk(x), trunk64(trunk, x), rtol=1e-4, atol=1e-5)


def test_layer_norm_of_a_trunk_where_its_epsilon_matters(trunk):
    """Hidden units about 1e-2 apart: their variance is smaller than the epsilon."""
    second = Dense(trunk.second.w * 1e-2, trunk.second.b * 1e-2)
    small = Trunk(trunk.first, second, trunk.scale, trunk.bias)
    x = rows(7, INPUTS)
    np.testing.assert_allclose(small(x), trunk64(small, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
@pytest.mark.parametrize("size", [1.0, 0.03])  # the second: where epsilon matters
def test_gradient_of_layer_norm_by_finite_differences(lead, size):
    parts = [size * rows(*lead, 6), rows(6, seed=2), rows(6, seed=3)]
    weights = rows(*lead, 6, seed=4)
    gradients = jax.grad(lambda parts: jnp.sum(weights * jnp.tanh(layer_norm(*parts))))(
        parts
    )
    for place, gradient in enumerate(gradients):
        for index in np.ndindex(gradient.shape):
            values = []
            for step in (1e-5, -1e-5):
                moved = [double(part).copy() for part in parts]
                moved[place][index] += step
                values.append(np.sum(double(weights) * np.tanh(layer_norm64(*moved))))
            slope = (values[0] - values[1]) / 2e-5
            assert float(gradient[index]) == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_gradient_of_layer_norm_under_vmap():
    """As for the members of an ensemble: each has a scale of its own."""
    h, scale, bias = rows(3, 5, 6), rows(3, 6, seed=2), rows(3, 6, seed=3)

    def loss(h, scale, bias):
        return jnp.sum(jnp.tanh(layer_norm(h, scale, bias)))

    gradient = jax.grad(loss, argnums=(0, 1, 2))
    together = jax.vmap(gradient)(h, scale, bias)
    for i in range(3):
        for all_, one in zip(together, gradient(h[i], scale[i], bias[i])):
            np.testing.assert_allclose(all_[i], one, rtol=1e-4, atol=1e-5)


def test_head_is_a_network_of_features_and_embedding_side_by_side(head):
    features, embedding = rows(7, HIDDEN), rows(7, EMBEDDING, seed=2)
    np.testing.assert_allclose(
        head(features, embedding),
        head64(head, features, embedding),
        rtol=1e-4,
        atol=1e-4,
    )


def test_head_with_one_embedding_for_all_rows(head):
    features, embedding = rows(6, HIDDEN), rows(EMBEDDING, seed=2)
    expected = head64(head, features, np.tile(embedding, (6, 1)))
    found = head(features, embedding)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_head_decodes_many_embeddings_of_each_row(head):
    features, embeddings = rows(7, HIDDEN), rows(3, EMBEDDING, seed=2)
    many = head(features[:, None], embeddings)
    assert many.shape == (7, 3, OUT)
    for i in range(7):
        for k in range(3):
            one = head64(head, features[i], embeddings[k])
            np.testing.assert_allclose(many[i, k], one, rtol=1e-4, atol=1e-4)


def test_head_without_an_embedding():
    head = randomized(Head.init(jax.random.key(0), HIDDEN, 0, HIDDEN, OUT))
    features = rows(7, HIDDEN)
    np.testing.assert_allclose(
        head(features, jnp.zeros((7, 0))),
        head64(head, features, np.zeros((7, 0))),
        rtol=1e-4,
        atol=1e-4,
    )


def test_normalize():
    x = rows(2, 5, 4)
    expected = double(x) / np.linalg.norm(double(x), axis=-1, keepdims=True)
    np.testing.assert_allclose(normalize(x), expected, rtol=1e-5)
    zero = jnp.zeros((1, 4))
    assert not np.any(normalize(zero))  # and not nan
    assert np.isfinite(jax.grad(lambda x: normalize(x).sum())(zero)).all()
    # Below a length of 1e-6 rows are only scaled: x / 1e-6.
    tiny = jnp.array([[3e-8, 4e-8]])
    np.testing.assert_allclose(normalize(tiny), [[0.03, 0.04]], rtol=1e-5)


INDEX = jnp.array([4, 0, 4, 2, 4, 0])  # row 4 thrice, rows 1 and 3 never


def weighted_sum(take, table, index, weights):
    """Its gradient differs between rows that were drawn twice."""
    return jnp.sum(weights * jnp.tanh(take(table, index)))


def plain(table, index):
    return table[index]


def test_take_rows_and_its_gradient_are_those_of_indexing():
    table, weights = rows(5, 4), rows(6, 4, seed=2)
    assert np.array_equal(take_rows(table, INDEX), np.asarray(table)[INDEX])
    gradient = jax.grad(weighted_sum, argnums=1)
    ours = gradient(take_rows, table, INDEX, weights)
    np.testing.assert_allclose(
        ours, gradient(plain, table, INDEX, weights), rtol=1e-5, atol=1e-6
    )
    assert not np.any(ours[jnp.array([1, 3])])


def test_take_rows_and_its_gradient_under_vmap():
    tables, weights = rows(3, 5, 4), rows(3, 6, 4, seed=2)
    index = jnp.stack([INDEX, INDEX[::-1], jnp.arange(6) % 5])

    def gradients(take):
        gradient = jax.grad(lambda t, i, w: weighted_sum(take, t, i, w))
        return jax.vmap(gradient)(tables, index, weights)

    np.testing.assert_allclose(
        gradients(take_rows), gradients(plain), rtol=1e-5, atol=1e-6
    )


def test_idle_units_change_nothing_and_stay_idle():
    net = randomized(MLP.init(jax.random.key(0), [INPUTS, 6, 7, OUT]))
    x, y = rows(32, INPUTS), rows(32, OUT, seed=2)

    def learned(net: MLP) -> MLP:
        def loss(net: MLP):
            return ((net(x) - y) ** 2).mean(), {}

        trained = Trained.of(net)
        for _ in range(20):
            trained, _ = trained.step(loss, 0.01)
        return trained.tree()

    wide, narrow = learned(with_idle_units(net)), learned(net)
    assert not np.allclose(narrow(x), net(x))
    assert np.allclose(wide(x), narrow(x), atol=1e-5)
    assert [layer.w.shape for layer in wide.layers] == [(INPUTS, 8), (8, 8), (8, OUT)]
    for layer, own in zip(wide.layers, [6, 7]):
        assert not layer.w[:, own:].any()
        assert not layer.b[own:].any()
    assert not wide.layers[1].w[6:].any()
    assert not wide.layers[2].w[7:].any()
