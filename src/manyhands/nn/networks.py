"""Networks of the paper: a trunk for the input, a head that also reads an embedding.

Modules are pytrees of arrays. They take inputs with any leading axes; an ensemble is a
module whose leaves have a leading member axis, and the caller vmaps over it.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from manyhands.types import Key

LAYER_NORM_EPSILON = 1e-3  # Keras' default, as in the paper's code


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
        self, x: Float[Array, "*lead inputs"]
    ) -> Float[Array, "*lead outputs"]:
        return x @ self.w + self.b

    def relu(self, x: Float[Array, "*lead inputs"]) -> Float[Array, "*lead outputs"]:
        return relu_layer(x, self.w, self.b)


@jax.custom_vjp
def relu_layer(
    x: Float[Array, "*lead inputs"],
    w: Float[Array, "inputs outputs"],
    b: Float[Array, " outputs"],
) -> Float[Array, "*lead outputs"]:
    """relu(x @ w + b), in few passes over the activations.

    The sum, written as such, is one product for XLA on a GPU, which adds a matrix: one
    that another kernel has to fill with b. This has the same bits. The outputs alone
    show which units were active; nothing else is kept for the gradient.
    """
    return jnp.maximum(x @ w, -b) + b


def _relu_layer_forward(x, w, b):
    y = relu_layer(x, w, b)
    return y, (x, w, y)


def _relu_layer_backward(saved, gradient):
    x, w, y = saved
    of_sum = jnp.where(y > 0, gradient, 0.0)
    rows = of_sum.reshape(-1, of_sum.shape[-1])
    return of_sum @ w.T, x.reshape(-1, x.shape[-1]).T @ rows, rows.sum(axis=0)


relu_layer.defvjp(_relu_layer_forward, _relu_layer_backward)


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

    def __call__(self, x: Float[Array, "*lead inputs"]) -> Float[Array, "*lead hidden"]:
        h = self.second.relu(self.first.relu(x))
        return layer_norm(h, self.scale, self.bias)


@jax.custom_vjp
def layer_norm(
    h: Float[Array, "*lead hidden"],
    scale: Float[Array, " hidden"],
    bias: Float[Array, " hidden"],
) -> Float[Array, "*lead hidden"]:
    """Its gradient is written out: derived automatically it takes three times as many
    passes over the activations."""
    return _normal(h)[0] * scale + bias


def _normal(h):
    mean = h.mean(axis=-1, keepdims=True)
    variance = jnp.mean((h - mean) ** 2, axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)
    return (h - mean) * inverse, inverse


def _layer_norm_forward(h, scale, bias):
    normal, inverse = _normal(h)
    return normal * scale + bias, (normal, inverse, scale)


def _layer_norm_backward(saved, gradient):
    normal, inverse, scale = saved
    g = gradient * scale
    mean = g.mean(axis=-1, keepdims=True)
    along = (g * normal).mean(axis=-1, keepdims=True)
    of_h = inverse * (g - mean - normal * along)
    lead = tuple(range(gradient.ndim - 1))
    return of_h, (gradient * normal).sum(axis=lead), gradient.sum(axis=lead)


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
    ) -> Float[Array, "*most out"]:
        """Leading axes broadcast: one encoded state, many embeddings."""
        shift = embedding @ self.embed
        if shift.ndim == 1:  # the same for all: another bias
            h = Dense(self.first.w, self.first.b + shift).relu(features)
        else:
            h = jax.nn.relu(self.first(features) + shift)
        return self.last(h)


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
