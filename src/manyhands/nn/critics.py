"""Twin critics: networks of a state and an action, with a leading member axis."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.nn.networks import MLP, Dense, layer_norm
from manyhands.types import Batch, Key, Metrics, Pytree

MEMBERS = 2


class NormedMLP(eqx.Module):
    """Dense layers, each but the last followed by ReLU and then LayerNorm.

    Its values cannot grow without end along actions that nobody took.
    """

    layers: tuple[Dense, ...]
    scales: tuple[Float[Array, "*member hidden"], ...]
    biases: tuple[Float[Array, "*member hidden"], ...]

    @staticmethod
    def of(net: MLP) -> "NormedMLP":
        """With norms that start at scale 1 and bias 0."""
        hidden = [layer.b for layer in net.layers[:-1]]
        scales, biases = map(jnp.ones_like, hidden), map(jnp.zeros_like, hidden)
        return NormedMLP(net.layers, tuple(scales), tuple(biases))

    def __call__(self, x: Float[Array, "*lead inputs"]) -> Float[Array, "*lead out"]:
        for layer, scale, bias in zip(self.layers, self.scales, self.biases):
            x = layer_norm(layer.relu(x), scale, bias)
        return self.layers[-1](x)


Critic = MLP | NormedMLP


def init(
    key: Key,
    inputs: int,
    width: int,
    layers: int = 2,
    start: Callable[[Key, Sequence[int]], MLP] = MLP.init,
) -> MLP:
    sizes = [inputs, *[width] * layers, 1]
    return jax.vmap(lambda key: start(key, sizes))(jax.random.split(key, MEMBERS))


def values_of(
    critic: Critic,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
) -> Float[Array, "member batch"]:
    inputs = for_members(critic, jnp.concatenate([observations, actions], axis=-1))
    return jax.vmap(lambda member, x: member(x)[..., 0])(critic, inputs)


def for_members(
    critic: Pytree, inputs: Float[Array, "batch inputs"]
) -> Float[Array, "member batch inputs"]:
    """The same inputs for each member of a critic, as an array for each.

    From a single array the compiler would make the first layers of all members one
    wide product, and move the axes of its outputs, and of their gradients, each time.
    """
    members = len(jax.tree.leaves(critic)[0])
    several = jnp.broadcast_to(inputs, (members, *inputs.shape))
    return jax.lax.optimization_barrier(several)


def squared_error(
    q: Float[Array, "member batch"], y: Float[Array, " batch"]
) -> Float[Array, ""]:
    """Mean over the batch, summed over the members."""
    return jnp.mean((q - y) ** 2, axis=-1).sum()


def critic_loss(
    critic: Critic, batch: Batch, y: Float[Array, " batch"]
) -> tuple[Float[Array, ""], Metrics]:
    """L_Q = sum_j (Q_j(s, a) - y)^2."""
    q = values_of(critic, batch.observations, batch.actions)
    loss = squared_error(q, y)
    return loss, {"critic/loss": loss, "critic/q": q.mean()}
