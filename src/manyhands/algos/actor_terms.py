"""What policies' losses have in common."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.nn.distributions import TanhNormal


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


def value_within_reach(
    q_of: Callable[[Float[Array, "batch action"]], Float[Array, " batch"]],
    action: Float[Array, "batch action"],
    b: TanhNormal,
    weight: Float[Array, ""] | float,
    reach: Float[Array, ""] | float,
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    """The mean of Q in units of its size, times a weight that is smaller where Q is
    steep; and Q itself.

    In the policy's loss it stands against a divergence from b. With the deviation of b,
    a policy that climbs a linear Q moves by as many deviations as a step of one changes
    the weighted Q. At most that is `reach` (the root of the mean square over the
    batch), for a divergence of reach^2 / 2 nats. Else narrow behaviors would be left
    far behind, and any behavior where Q is near 0.
    """
    here = jax.lax.stop_gradient(action)
    q, pull = jax.vjp(q_of, here)
    (slope,) = pull(jnp.ones_like(q))
    z = (here - b.center) / b.scale
    deviation = jnp.exp(b.log_std) * b.scale * (1 - z**2)  # of actions, near this one
    change = jnp.sum((slope * deviation) ** 2, axis=-1).mean() ** 0.5
    factor = jnp.minimum(weight / jnp.abs(q).mean(), reach / change)
    # Q to the first order around `here`: its slope need not be computed again.
    q, slope, factor = jax.lax.stop_gradient((q, slope, factor))
    value = (q + jnp.sum(slope * (action - here), axis=-1)).mean()
    return factor * value, q
