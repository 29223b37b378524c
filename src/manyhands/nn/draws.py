"""Starts of networks from one draw of random numbers.

A draw of its own for every layer takes longer to compile than a small network to train.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array

from manyhands.nn.networks import MLP, Dense
from manyhands.types import Key


def uniform(key: Key, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Between -1 and 1."""
    many = sum(map(math.prod, shapes))
    return _cut(jax.random.uniform(key, (many,), minval=-1.0, maxval=1.0), shapes)


def truncated_normal(key: Key, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Standard normal numbers between -2 and 2."""
    many = sum(map(math.prod, shapes))
    return _cut(jax.random.truncated_normal(key, -2, 2, (many,)), shapes)


def _cut(numbers: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    parts, begin = [], 0
    for shape in shapes:
        end = begin + math.prod(shape)
        parts.append(numbers[begin:end].reshape(shape))
        begin = end
    return parts


def glorot(w: Array) -> Dense:
    """Keras' default start, of numbers between -1 and 1."""
    inputs, outputs = w.shape
    return Dense(w * (6 / (inputs + outputs)) ** 0.5, jnp.zeros(outputs))


def glorot_mlp(key: Key, sizes: Sequence[int]) -> MLP:
    return MLP(tuple(map(glorot, uniform(key, list(pairwise(sizes))))))
