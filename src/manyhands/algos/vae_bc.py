"""VAE-BC: cloning by the conditional VAE of BCQ, which BCQ and PLAS choose within.

Fujimoto et al., "Off-Policy Deep Reinforcement Learning without Exploration" (2019).
Encoder q(z|s, a) = N(mu, sigma) and decoder d(s, z), a latent of twice the action's
size A. Per transition, with z ~ q(.|s, a) and actions in units of the box's half-width,

    L_VAE = |d(s, z) - a|^2 / A + w K,  K = KL(q(.|s, a) || N(0, 1)) / 2A

Times A that is a decoder of fixed width: for w = 1/2 a deviation of 0.35, and what is
finer than that is no business of the latent's. (`behavior/vae.py` learns the width
instead, to have a density.) At test time: d(s, z), z ~ N(0, 1) clipped to +-0.5.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import skeletons
from manyhands.algos.algorithm import Algorithm, Common, Given
from manyhands.behavior import vae
from manyhands.nn.actors import action_of, uniform_mlp
from manyhands.nn.networks import MLP, with_idle_units
from manyhands.nn.optimizer import Trained
from manyhands.options import COUNT, NOT_NEGATIVE, POSITIVE, option, options, traced
from manyhands.types import Batch, Box, Key, Keys, Metrics

LAYERS = 2
LATENT_CLIP = 0.5  # latents further out than this decode to rarer actions


@options
class Options(Common):
    width: int = option(750, "Hidden units of encoder and decoder.", COUNT)
    kl_weight: float = traced(0.5, "Weight w of the divergence.", NOT_NEGATIVE)
    vae_rate: float = traced(1e-3, "Learning rate of the VAE.", POSITIVE)


PRESETS = {
    "default": Options(),
    # As PLAS fits it.
    "paper": Options(steps=500_000, batch_size=100, standardise=False, vae_rate=1e-4),
}


class Model(eqx.Module):
    encoder: MLP
    decoder: MLP


class State(NamedTuple):
    vae: Trained  # of a Model


# Start


def init(key: Key, given: Given, width: int) -> Model:
    key_encoder, key_decoder = jax.random.split(key)
    states, actions, latents = given.observations, given.actions, 2 * given.actions
    hidden = [width] * LAYERS
    return Model(
        with_idle_units(
            uniform_mlp(key_encoder, [states + actions, *hidden, 2 * latents])
        ),
        with_idle_units(uniform_mlp(key_decoder, [states + latents, *hidden, actions])),
    )


def start(key: Key, given: Given, options: Options) -> State:
    return State(Trained.of(init(key, given, options.width)))


def fitted(given: Given, options: Options) -> Box:
    del options
    return given.box


# The model


def decode(
    decoder: MLP,
    observations: Float[Array, "*lead state"],
    latents: Float[Array, "*lead latent"],
    box: Box,
) -> Float[Array, "*lead action"]:
    """d."""
    joint = jnp.concatenate([observations, latents], axis=-1)
    return action_of(decoder, joint, box)


def decode_clipped(
    decoder: MLP,
    observations: Float[Array, "batch state"],
    noise: Float[Array, "*sample batch latent"],
    box: Box,
) -> Float[Array, "*sample batch action"]:
    """Actions like those in the data, of standard normal numbers."""
    latents = jnp.clip(noise, -LATENT_CLIP, LATENT_CLIP)
    many = jnp.broadcast_to(observations, (*noise.shape[:-1], observations.shape[-1]))
    return decode(decoder, many, latents, box)


# Losses


def vae_loss(
    model: Model,
    batch: Batch,
    noise: Float[Array, "batch latent"],
    kl_weight: Float[Array, ""] | float,
    box: Box,
) -> tuple[Float[Array, ""], Metrics]:
    """L_VAE."""
    mean, log_std = vae.encode(model.encoder, batch.observations, batch.actions)
    latents = mean + jnp.exp(log_std) * noise
    actions = decode(model.decoder, batch.observations, latents, box)
    error = jnp.mean(((actions - batch.actions) / box.scale) ** 2)
    kl = vae.divergence(mean, log_std).mean()
    return error + kl_weight * kl, {"behavior/error": error, "behavior/kl": kl}


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, box: Box
) -> tuple[State, Metrics]:
    rows, actions = batch.actions.shape
    noise = jax.random.normal(key, (rows, 2 * actions))
    model, metrics = state.vae.step(
        vae_loss, config.vae_rate, batch, noise, config.kl_weight, box
    )
    return State(model), metrics


# Acting


def model(state: State, box: Box) -> MLP:
    del box
    return state.vae.tree().decoder


def act(
    decoder: MLP, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    shape = (2 * len(box.low),)
    noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
    return decode_clipped(decoder, observations, noise, box)


skeleton = skeletons.mlp(LAYERS)
VAE_BC = Algorithm(PRESETS, start, update, fitted, model, act, skeleton)
