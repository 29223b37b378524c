"""What policies' losses have in common."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def scaled_value(
    q: Float[Array, " batch"], scale: str, weight: Float[Array, ""] | float
) -> Float[Array, ""]:
    """The mean of Q, as it is or in units of its size.

    In its own units Q is as large as the rewards happen to be, and drowns a penalty in
    nats. Divided by its mean size (as TD3+BC does) the balance is the same everywhere.
    """
    if scale == "none":
        return q.mean()
    return weight * q.mean() / jax.lax.stop_gradient(jnp.abs(q).mean())
