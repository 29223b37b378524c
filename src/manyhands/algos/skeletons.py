"""Models with the right leaves, of whatever shapes: to be filled from a file."""

from collections.abc import Callable
from typing import Any

import jax

from manyhands.nn.networks import MLP


def mlp(layers: int) -> Callable[[Any], MLP]:
    """For any options: a network with so many hidden layers."""
    return lambda options: MLP.init(jax.random.key(0), [1] * (layers + 2))
