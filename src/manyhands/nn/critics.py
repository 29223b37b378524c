"""Twin critics: networks of a state and an action, with a leading member axis."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.nn.networks import MLP
from manyhands.types import Key

MEMBERS = 2


def init(key: Key, inputs: int, width: int, layers: int = 2) -> MLP:
    sizes = [inputs, *[width] * layers, 1]
    return jax.vmap(lambda key: MLP.init(key, sizes))(jax.random.split(key, MEMBERS))


def values_of(
    critic: MLP,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
) -> Float[Array, "member batch"]:
    inputs = jnp.concatenate([observations, actions], axis=-1)
    return jax.vmap(lambda member: member(inputs)[..., 0])(critic)


def squared_error(
    q: Float[Array, "member batch"], y: Float[Array, " batch"]
) -> Float[Array, ""]:
    """Mean over the batch, summed over the members."""
    return jnp.mean((q - y) ** 2, axis=-1).sum()
