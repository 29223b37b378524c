"""Networks of the paper: a trunk for the input, a head that also reads an embedding.

Modules are pytrees of arrays. They take inputs with any leading axes; an ensemble is a
module whose leaves have a leading member axis, and the caller vmaps over it.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from manyhands.types import Key

LAYER_NORM_EPSILON = 1e-3  # Keras' default, as in the paper's code


class Learning(NamedTuple):
    """Which rows gradients come from, where one pass serves several ends."""

    weights: int  # for weights: the first ones, so many
    inputs: int | None = None  # for what a layer reads: no fewer; None: all


class Dense(eqx.Module):
    """x @ w + b, with Keras' default start: Glorot-uniform w, zero b."""

    w: Float[Array, "*member inputs outputs"]
    b: Float[Array, "*member outputs"]

    @staticmethod
    def init(key: Key, inputs: int, outputs: int) -> "Dense":
        limit = (6 / (inputs + outputs)) ** 0.5
        w = jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)
        return Dense(w, jnp.zeros(outputs))

    def __call__(
        self, x: Float[Array, "*lead inputs"], learning: Learning | None = None
    ) -> Float[Array, "*lead outputs"]:
        if learning is None:
            return x @ self.w + self.b
        return linear_layer(x, self.w, self.b, learning)

    def relu(
        self, x: Float[Array, "*lead inputs"], learning: Learning | None = None
    ) -> Float[Array, "*lead outputs"]:
        return relu_layer(x, self.w, self.b, learning)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def relu_layer(
    x: Float[Array, "*lead inputs"],
    w: Float[Array, "inputs outputs"],
    b: Float[Array, " outputs"],
    learning: Learning | None = None,
) -> Float[Array, "*lead outputs"]:
    """relu(x @ w + b), in few passes over the activations.

    The sum, written as such, is one product for XLA on a GPU, which adds a matrix: one
    that another kernel has to fill with b. This has the same bits. Of what comes out
    alone the gradient tells which units were active; nothing else is kept for it.
    """
    del learning
    return jnp.maximum(x @ w, -b) + b


def _relu_layer_forward(x, w, b, learning):
    y = relu_layer(x, w, b, learning)
    return y, (x, w, y)


def _relu_layer_backward(learning, saved, gradient):
    x, w, y = saved
    return _layer_gradients(x, w, jnp.where(y > 0, gradient, 0.0), learning)


relu_layer.defvjp(_relu_layer_forward, _relu_layer_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def linear_layer(
    x: Float[Array, "row inputs"],
    w: Float[Array, "inputs outputs"],
    b: Float[Array, " outputs"],
    learning: Learning,
) -> Float[Array, "row outputs"]:
    """x @ w + b, of which some rows learn."""
    del learning
    return x @ w + b


def _linear_layer_forward(x, w, b, learning):
    return linear_layer(x, w, b, learning), (x, w)


def _linear_layer_backward(learning, saved, gradient):
    x, w = saved
    return _layer_gradients(x, w, gradient, learning)


linear_layer.defvjp(_linear_layer_forward, _linear_layer_backward)


def _layer_gradients(x, w, g, learning):
    """Of x, w and b, from that of x @ w + b."""
    passed, rows = g, g.reshape(-1, g.shape[-1])
    x_rows = x.reshape(-1, x.shape[-1])
    if learning is not None:
        passed = g[: learning.inputs]
        x_rows, rows = x_rows[: learning.weights], rows[: learning.weights]
    return (
        _with_rest(passed @ w.T, x, learning),
        x_rows.T @ rows,
        rows.sum(axis=0),
    )


def _with_rest(gradient, x, learning):
    """Zeros for the rows that none comes from."""
    if learning is None or learning.inputs is None:
        return gradient
    return jnp.zeros_like(x).at[: learning.inputs].set(gradient)


class MLP(eqx.Module):
    """Dense layers with ReLU between them."""

    layers: tuple[Dense, ...]

    @staticmethod
    def init(key: Key, sizes: Sequence[int]) -> "MLP":
        keys = jax.random.split(key, len(sizes) - 1)
        return MLP(tuple(map(Dense.init, keys, sizes[:-1], sizes[1:])))

    def __call__(self, x: Float[Array, "*lead inputs"]) -> Float[Array, "*lead out"]:
        for layer in self.layers[:-1]:
            x = layer.relu(x)
        return self.layers[-1](x)


def with_idle_units(net: MLP, multiple: int = 4) -> MLP:
    """The same function, with hidden layers of a multiple of 4 units.

    Tensor cores take such rows at once: of 752 units they are faster than of 750. What
    is added is 0 and has no gradient, so it stays 0.
    """
    layers = list(net.layers)
    for number in range(len(layers) - 1):
        here, after = layers[number], layers[number + 1]
        more = -here.b.shape[-1] % multiple
        layers[number] = Dense(
            jnp.pad(here.w, ((0, 0), (0, more))), jnp.pad(here.b, (0, more))
        )
        layers[number + 1] = Dense(jnp.pad(after.w, ((0, more), (0, 0))), after.b)
    return MLP(tuple(layers))


class Trunk(eqx.Module):
    """Two ReLU layers and a LayerNorm: f_s and f_sa of the paper."""

    first: Dense
    second: Dense
    scale: Float[Array, "*member hidden"]
    bias: Float[Array, "*member hidden"]

    @staticmethod
    def init(key: Key, inputs: int, hidden: int) -> "Trunk":
        key_first, key_second = jax.random.split(key)
        return Trunk(
            Dense.init(key_first, inputs, hidden),
            Dense.init(key_second, hidden, hidden),
            jnp.ones(hidden),
            jnp.zeros(hidden),
        )

    def __call__(
        self, x: Float[Array, "*lead inputs"], learning: Learning | None = None
    ) -> Float[Array, "*lead hidden"]:
        h = self.second.relu(self.first.relu(x, learning), learning)
        return layer_norm(h, self.scale, self.bias, learning)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(
    h: Float[Array, "*lead hidden"],
    scale: Float[Array, " hidden"],
    bias: Float[Array, " hidden"],
    learning: Learning | None = None,
) -> Float[Array, "*lead hidden"]:
    """Its gradient is written out: derived automatically it takes three times as many
    passes over the activations."""
    del learning
    return _normal(h)[0] * scale + bias


def _normal(h):
    mean = h.mean(axis=-1, keepdims=True)
    variance = jnp.mean((h - mean) ** 2, axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)
    return (h - mean) * inverse, inverse


def _layer_norm_forward(h, scale, bias, learning):
    del learning
    normal, inverse = _normal(h)
    return normal * scale + bias, (normal, inverse, scale)


def _layer_norm_backward(learning, saved, gradient):
    normal, inverse, scale = saved
    passing = learning.inputs if learning else None
    g, along_with = gradient[:passing] * scale, normal[:passing]
    mean = g.mean(axis=-1, keepdims=True)
    along = (g * along_with).mean(axis=-1, keepdims=True)
    of_h = inverse[:passing] * (g - mean - along_with * along)
    if learning is not None:
        gradient, normal = gradient[: learning.weights], normal[: learning.weights]
    lead = tuple(range(gradient.ndim - 1))
    return (
        _with_rest(of_h, saved[0], learning),
        (gradient * normal).sum(axis=lead),
        gradient.sum(axis=lead),
    )


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


class Head(eqx.Module):
    """[features, embedding] -> a ReLU layer -> outputs: f_p and f_Q of the paper.

    The first layer is kept in two parts, so that the product with the features is made
    once, however many embeddings they are decoded with.
    """

    first: Dense  # of the features
    embed: Float[Array, "*member embedding hidden"]
    last: Dense

    @staticmethod
    def init(key: Key, features: int, embedding: int, hidden: int, out: int) -> "Head":
        key_first, key_last = jax.random.split(key)
        first = Dense.init(key_first, features + embedding, hidden)
        return Head(
            Dense(first.w[:features], first.b),
            first.w[features:],
            Dense.init(key_last, hidden, out),
        )

    def __call__(
        self,
        features: Float[Array, "*lead features"],
        embedding: Float[Array, "*more embedding"],
        learning: Learning | None = None,
    ) -> Float[Array, "*most out"]:
        """Leading axes broadcast: one encoded state, many embeddings.

        Args:
            learning: of one embedding for all states only.
        """
        shift = embedding @ self.embed
        if shift.ndim == 1:  # the same for all: another bias
            h = Dense(self.first.w, self.first.b + shift).relu(features, learning)
        else:
            assert learning is None
            h = jax.nn.relu(self.first(features) + shift)
        return self.last(h, learning)


def normalize(rows: Float[Array, "*lead size"]) -> Float[Array, "*lead size"]:
    """Rows of length 1, as every embedding is used. The floor is TensorFlow's."""
    square = jnp.sum(rows**2, axis=-1, keepdims=True)
    return rows * jax.lax.rsqrt(jnp.maximum(square, 1e-12))


@jax.custom_vjp
def take_rows(
    table: Float[Array, "rows size"], index: Int[Array, " batch"]
) -> Float[Array, "batch size"]:
    """table[index], with a gradient that is the same bits every time.

    The gradient of a plain gather is a scatter-add, which GPUs do with atomics in an
    order that differs between runs. Here rows drawn twice get their sum by a small
    matrix product, and each then writes the same value.
    """
    return table[index]


def _take_rows_forward(table, index):
    return table[index], (table, index)


def _take_rows_backward(saved, gradient):
    table, index = saved
    same = (index[:, None] == index[None, :]).astype(gradient.dtype)
    total = jnp.matmul(same, gradient, precision=jax.lax.Precision.HIGHEST)
    return jnp.zeros_like(table).at[index].set(total), None


take_rows.defvjp(_take_rows_forward, _take_rows_backward)
