"""What computations in float64 share: small batches, networks as lists, slopes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyhands.types import Batch

Layers = list[list[np.ndarray]]  # of every layer: weights, bias


def batch_of(
    rows: int, states: int, low: np.ndarray, high: np.ndarray, seed: int = 0
) -> Batch:
    """Every fourth transition is the last one of its world."""
    random = np.random.default_rng(seed)
    columns = (
        random.normal(size=(rows, states)),
        random.uniform(low, high, (rows, len(low))),
        random.normal(size=rows),
        random.normal(size=(rows, states)),
        np.arange(rows) % 4 == 0,
    )
    arrays = (jnp.asarray(column, jnp.float32) for column in columns)
    return Batch(*arrays, jnp.zeros(rows, jnp.int32))


def doubles(batch: Batch) -> Batch:
    return Batch(*(np.array(x, np.float64) for x in batch if x is not None))


def layers(net: Any) -> Layers:
    """Copies, to be moved number by number."""
    return [[np.array(d.w, np.float64), np.array(d.b, np.float64)] for d in net.layers]


def members(critic: Any) -> list[Layers]:
    return [layers(jax.tree.map(lambda x, j=j: x[j], critic)) for j in range(2)]


def forward(net: Layers, *parts: np.ndarray) -> np.ndarray:
    x = np.concatenate(parts, axis=-1)
    for w, b in net[:-1]:
        x = np.maximum(x @ w + b, 0)
    return x @ net[-1][0] + net[-1][1]


def slope(loss: Callable[[], float], array: np.ndarray, index: tuple) -> float:
    """Of a loss that reads the array: a central difference."""
    before, ends = array[index], []
    for step in (1e-6, -1e-6):
        array[index] = before + step
        ends.append(loss())
    array[index] = before
    return (ends[0] - ends[1]) / 2e-6
