"""The conditional VAE of BCQ as a behavior estimate.

Encoder q(z|s, a) and decoder p(a|s, z), a latent of twice the action's size. BCQ trains
the decoder by squared error, which is a Gaussian of fixed width; here the width is
learned per state, and the Gaussian is squashed to the action box, so that the model has
a density to compare with others:

    L = -E_q[log p(a|s, z)] + KL(q(z|s, a) || N(0, 1))

Its log-probability has no closed form. We report the importance-weighted bound with
SAMPLES draws, which is never above the true value in expectation and approaches it.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from manyhands.behavior.gaussian import step
from manyhands.behavior.options import Options
from manyhands.behavior.vq import distribution
from manyhands.behavior.vq_learning import Config, Fitted
from manyhands.nn.distributions import TanhNormal, inside
from manyhands.nn.networks import MLP, Dense
from manyhands.nn.optimizer import Trained
from manyhands.types import Batch, Box, Key, Metrics

SAMPLES = 64
LOG_STD_RANGE = (-4.0, 15.0)  # of the encoder, as in BCQ


class Network(eqx.Module):
    """Two ReLU layers and a linear one."""

    first: Dense
    second: Dense
    last: Dense

    @staticmethod
    def init(key: Key, inputs: int, width: int, outputs: int) -> "Network":
        keys = jax.random.split(key, 3)
        return Network(
            Dense.init(keys[0], inputs, width),
            Dense.init(keys[1], width, width),
            Dense.init(keys[2], width, outputs),
        )

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        return self.last(self.second.relu(self.first.relu(x)))


def encode(
    encoder: Network | MLP, observations: Array, actions: Array
) -> tuple[Float[Array, "... latent"], Float[Array, "... latent"]]:
    """Mean and log-deviation of q(z|s, a)."""
    joint = jnp.concatenate([observations, actions], axis=-1)
    mean, log_std = jnp.split(encoder(joint), 2, axis=-1)
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


def divergence(mean: Array, log_std: Array) -> Float[Array, "... latent"]:
    """KL(N(mean, std) || N(0, 1)), of each number on its own."""
    return 0.5 * (mean**2 + jnp.exp(2 * log_std) - 1 - 2 * log_std)


class Model(eqx.Module):
    encoder: Network
    decoder: Network

    def encode(self, observations, actions) -> tuple[Array, Array]:
        """Mean and log-deviation of q(z|s, a)."""
        return encode(self.encoder, observations, actions)

    def decode(self, observations, latents, box: Box) -> TanhNormal:
        joint = jnp.concatenate([observations, latents], axis=-1)
        return distribution(self.decoder(joint), box)


class State(NamedTuple):
    model: Trained  # of a Model


def start(
    key: Key,
    observations: int,
    actions: int,
    codes: int,
    trajectories: int,
    options: Options,
) -> State:
    del codes, trajectories
    key_encoder, key_decoder = jax.random.split(key)
    latent, width = 2 * actions, options.policy_width
    model = Model(
        Network.init(key_encoder, observations + actions, width, 2 * latent),
        Network.init(key_decoder, observations + latent, width, 2 * actions),
    )
    return State(Trained.of(model))


def loss(
    model: Model, batch: Batch, noise: Float[Array, "batch latent"], box: Box
) -> tuple[Float[Array, ""], Metrics]:
    """The negative evidence lower bound with one draw."""
    mean, log_std = model.encode(batch.observations, batch.actions)
    latents = mean + jnp.exp(log_std) * noise
    fit = model.decode(batch.observations, latents, box).log_prob(batch.actions).mean()
    kl = divergence(mean, log_std).sum(axis=-1).mean()
    return kl - fit, {"behavior/log_prob": fit - kl, "behavior/kl": kl}


def update(
    state: State, batch: Batch, key: Key, config: Config, fitted: Fitted
) -> tuple[State, Metrics]:
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    rows, actions = batch.actions.shape
    noise = jax.random.normal(key, (rows, 2 * actions))
    gradient, metrics = jax.grad(loss, has_aux=True)(
        state.model.tree(), batch, noise, fitted.box
    )
    # Decaying kernels would make the decoder forget its latent on small data.
    config = config._replace(weight_decay=jnp.zeros(()))
    return step(state, gradient, config), metrics


def log_probs(
    model: Model,
    box: Box,
    observations: Float[Array, "row state"],
    actions: Float[Array, "row action"],
    key: Key | None = None,
) -> Float[Array, "row code"]:
    """log 1/L sum_l p(a|s, z_l) p(z_l) / q(z_l|s, a), z_l ~ q; draws are fixed."""
    actions = inside(actions, box)
    mean, log_std = model.encode(observations, actions)
    # The same draws for every row: its value does not depend on its place.
    key = jax.random.key(0) if key is None else key
    noise = jax.random.normal(key, (SAMPLES, 1, mean.shape[-1]))
    latents = mean + jnp.exp(log_std) * noise  # [draw, row, latent]
    many = jnp.broadcast_to(observations, (SAMPLES, *observations.shape))
    fit = model.decode(many, latents, box).log_prob(actions)
    # log p(z) - log q(z): the normalising constants cancel but for log_std
    weight = (0.5 * (noise**2 - latents**2) + log_std).sum(axis=-1)
    bound = jax.nn.logsumexp(fit + weight, axis=0) - jnp.log(SAMPLES)
    return bound[:, None]


def sample(
    model: Model,
    box: Box,
    observations: Float[Array, "row state"],
    codes: Int[Array, " row"],
    key: Key,
) -> Float[Array, "row action"]:
    del codes
    key_latent, key_action = jax.random.split(key)
    shape = (len(observations), 2 * len(box.low))
    latents = jax.random.normal(key_latent, shape)
    return inside(model.decode(observations, latents, box).sample(key_action)[0], box)
