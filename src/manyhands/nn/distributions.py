"""Action distributions on a box."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from manyhands.types import Box

# Actions this close to the bounds (in units of the half-width) count as this far away:
# at the bound itself a tanh-Gaussian's density is 0 or infinite. Float32 resolves it.
MARGIN = 1e-6


# Further off, as the paper's code keeps logged and sampled actions.
ACTION_MARGIN = 1e-3


def inside(
    actions: Float[Array, "*lead action"], box: Box
) -> Float[Array, "*lead action"]:
    """Off the bounds, where a tanh-Gaussian's density is 0 or infinite."""
    margin = ACTION_MARGIN * box.scale
    return jnp.clip(actions, box.low + margin, box.high - margin)


class TanhNormal(eqx.Module):
    """a = center + scale * tanh(u), u ~ Normal(mean, exp(log_std)), per dimension.

    A density on the open box center -/+ scale; leading axes are many of them. With
    z = (a - center) / scale,
    log p(a) = sum_i log N(atanh z_i; mean_i, std_i) - log(1 - z_i^2) - log scale_i.
    """

    mean: Float[Array, "*lead action"]
    log_std: Float[Array, "*lead action"]
    center: Float[Array, " action"]
    scale: Float[Array, " action"]

    def mode(self) -> Float[Array, "*lead action"]:
        """The squashed mean: what "acting deterministically" means in this field.

        (The density's true mode differs where the noise is wide.)
        """
        return self.center + self.scale * jnp.tanh(self.mean)

    def sample(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, "*lead action"], Float[Array, "*lead"]]:
        """An action and its log-probability, differentiable in the parameters."""
        return self.sample_with(
            jax.random.normal(key, self.mean.shape, self.mean.dtype)
        )

    def sample_with(
        self, noise: Float[Array, "*lead action"]
    ) -> tuple[Float[Array, "*lead action"], Float[Array, "*lead"]]:
        """`sample` with standard normal numbers given."""
        u = self.mean + jnp.exp(self.log_std) * noise
        return self.center + self.scale * jnp.tanh(u), self.inner_terms(u).sum(axis=-1)

    def log_prob(
        self, action: Float[Array, "... action"], margin: float = MARGIN
    ) -> Float[Array, "..."]:
        z = (action - self.center) / self.scale
        u = jnp.arctanh(jnp.clip(z, -1 + margin, 1 - margin))
        return self.inner_terms(u).sum(axis=-1)

    def inner_terms(self, u: Float[Array, "... action"]) -> Float[Array, "... action"]:
        """The log-probability of a = center + scale * tanh(u), one dimension each."""
        standard = (u - self.mean) * jnp.exp(-self.log_std)
        normal = -0.5 * (standard**2 + jnp.log(2 * jnp.pi)) - self.log_std
        # log(1 - tanh(u)^2) without cancellation for large |u|
        squash = 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u))
        return normal - squash - jnp.log(self.scale)


def gaussian_kl(p: TanhNormal, q: TanhNormal) -> Float[Array, "*lead"]:
    """KL(p | q). The tanh is the same bijection in both: what is left is Gaussians'."""
    ratio = jnp.exp(2 * (p.log_std - q.log_std))
    shift = ((p.mean - q.mean) * jnp.exp(-q.log_std)) ** 2
    return jnp.sum(q.log_std - p.log_std + (ratio + shift - 1) / 2, axis=-1)
