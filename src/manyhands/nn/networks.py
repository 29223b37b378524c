"""Networks of the paper: a trunk for the input, a head that also reads an embedding.

Modules are pytrees of arrays. They take inputs with any leading axes; an ensemble is a
module whose leaves have a leading member axis, and the caller vmaps over it.
"""

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
        h = jax.nn.relu(self.second(jax.nn.relu(self.first(x))))
        mean = h.mean(axis=-1, keepdims=True)
        variance = jnp.mean((h - mean) ** 2, axis=-1, keepdims=True)
        normal = (h - mean) * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)
        return normal * self.scale + self.bias


class Head(eqx.Module):
    """[features, embedding] -> a ReLU layer -> outputs: f_p and f_Q of the paper."""

    first: Dense
    last: Dense

    @staticmethod
    def init(key: Key, features: int, embedding: int, hidden: int, out: int) -> "Head":
        key_first, key_last = jax.random.split(key)
        return Head(
            Dense.init(key_first, features + embedding, hidden),
            Dense.init(key_last, hidden, out),
        )

    def __call__(
        self,
        features: Float[Array, "*lead features"],
        embedding: Float[Array, "*more embedding"],
    ) -> Float[Array, "*most out"]:
        """Leading axes broadcast: one encoded state, many embeddings to decode with.

        The product with the features is made once, however many embeddings there are.
        """
        width = features.shape[-1]
        h = features @ self.first.w[:width] + (
            embedding @ self.first.w[width:] + self.first.b
        )
        return self.last(jax.nn.relu(h))


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
