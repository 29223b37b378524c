"""BCQ: the best of actions like those in the data, each perturbed a little.

Fujimoto et al., "Off-Policy Deep Reinforcement Learning without Exploration" (2019).
A conditional VAE (`vae_bc.py`) learns which actions d(s, z) the data has in a state; a
perturbation xi moves them by at most Phi half-widths of the box; twin critics choose.
With z, z_1, ... ~ N(0, 1) clipped to +-0.5, the VAE as it is, and bars for targets,

    xi(s, a) = a + Phi scale tanh(f(s, a)), clipped to the box
    V(s, a)  = lambda min_j Qbar_j(s, a) + (1 - lambda) max_j Qbar_j(s, a)
    L_Q      = sum_j (Q_j(s, a) - y)^2,
               y = r + gamma (1 - terminal) max_i V(s', xibar(s', d(s', z_i)))
    L_xi     = -Q_1(s, xi(s, d(s, z)))

and L_VAE as in `vae_bc.py`. All learn together: in every update the VAE, the critics
and xi, one after the other, then the targets. At test time: of `CANDIDATES` perturbed
actions the one with the highest Q_1.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import vae_bc
from manyhands.algos.algorithm import Algorithm, Common, Given
from manyhands.nn import critics
from manyhands.nn.actors import uniform_mlp
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import critic_loss, values_of
from manyhands.nn.networks import MLP
from manyhands.nn.optimizer import Trained, polyak
from manyhands.options import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    option,
    options,
    traced,
)
from manyhands.types import Batch, Box, Key, Keys, Metrics

CANDIDATES = 100  # at test time


@options
class Options(Common):
    vae_width: int = option(750, "Hidden units of the VAE.", COUNT)
    width: int = option(
        400,
        "Hidden units of the other networks' first layers; second ones have 3/4.",
        COUNT,
    )
    samples: int = option(10, "Actions that the target takes the best of.", COUNT)
    phi: float = traced(0.05, "Phi, the longest perturbation, in half-widths.", SHARE)
    minimum_weight: float = traced(
        0.75, "Weight lambda of the lower of the two target Q-functions.", SHARE
    )
    kl_weight: float = traced(
        0.5, "Weight w of the divergence in the VAE's loss.", NOT_NEGATIVE
    )
    vae_rate: float = traced(1e-3, "Learning rate of the VAE.", POSITIVE)
    policy_rate: float = traced(1e-3, "Learning rate of the perturbation.", POSITIVE)
    critic_rate: float = traced(1e-3, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast targets follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


PRESETS = {
    "default": Options(),
    "paper": Options(steps=1_000_000, batch_size=100, standardise=False),
}


class State(NamedTuple):
    vae: Trained  # of a vae_bc.Model
    critic: Trained  # of an MLP with a leading member axis
    critic_target: Bundle
    perturbation: Trained  # of an MLP
    perturbation_target: Bundle


class Fitted(NamedTuple):
    box: Box
    reach: Float[Array, " action"]  # Phi scale; here, as acting needs it too


# Start


def hidden(width: int) -> list[int]:
    """Two layers: 400 and 300 in the paper."""
    return [width, max(1, 3 * width // 4)]


def init_critics(key: Key, given: Given, width: int) -> MLP:
    sizes = [given.observations + given.actions, *hidden(width), 1]
    keys = jax.random.split(key, critics.MEMBERS)
    return jax.vmap(lambda key: uniform_mlp(key, sizes))(keys)


def init_perturbation(key: Key, given: Given, width: int) -> MLP:
    inputs = given.observations + given.actions
    return uniform_mlp(key, [inputs, *hidden(width), given.actions])


def start(key: Key, given: Given, options: Options) -> State:
    keys = jax.random.split(key, 3)
    vae = Trained.of(vae_bc.init(keys[0], given, options.vae_width))
    critic = Trained.of(init_critics(keys[1], given, options.width))
    xi = Trained.of(init_perturbation(keys[2], given, options.width))
    # Targets start as copies: XLA refuses to donate a buffer twice.
    critic_target, xi_target = jax.tree.map(jnp.copy, (critic.params, xi.params))
    return State(vae, critic, critic_target, xi, xi_target)


def fitted(given: Given, options: Options) -> Fitted:
    return Fitted(given.box, options.phi * given.box.scale)


# The model


def perturb(
    net: MLP,
    observations: Float[Array, "*lead state"],
    actions: Float[Array, "*lead action"],
    reach: Float[Array, " action"],
    box: Box,
) -> Float[Array, "*lead action"]:
    """xi."""
    joint = jnp.concatenate([observations, actions], axis=-1)
    return jnp.clip(actions + reach * jnp.tanh(net(joint)), box.low, box.high)


def soft_minimum(
    q: Float[Array, "member batch"], weight: Float[Array, ""] | float
) -> Float[Array, " batch"]:
    """V, of the values of both members."""
    return weight * q.min(axis=0) + (1 - weight) * q.max(axis=0)


# Losses; L_Q is in `nn/critics.py`


class Noise(NamedTuple):
    """Standard normal numbers: for the VAE's loss, for s', and for L_xi."""

    vae: Float[Array, "batch latent"]
    following: Float[Array, "sample batch latent"]
    now: Float[Array, "batch latent"]


def critic_target(
    decoder: MLP,
    perturbation_target: MLP,
    target: MLP,
    batch: Batch,
    noise: Float[Array, "sample batch latent"],
    config: Options,
    fitted: Fitted,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    states = batch.next_observations
    actions = vae_bc.decode_clipped(decoder, states, noise, fitted.box)

    def value(actions: Float[Array, "batch action"]) -> Float[Array, " batch"]:
        actions = perturb(
            perturbation_target, states, actions, fitted.reach, fitted.box
        )
        return soft_minimum(values_of(target, states, actions), config.minimum_weight)

    # The best of mixed values, not a mixture of the best ones.
    future = jax.vmap(value)(actions).max(axis=0)
    return batch.rewards + config.discount * (1 - batch.terminals) * future


def perturbation_loss(
    perturbation: MLP,
    decoder: MLP,
    critic: MLP,
    batch: Batch,
    noise: Float[Array, "batch latent"],
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_xi."""
    states, (box, reach) = batch.observations, fitted
    decoded = vae_bc.decode_clipped(decoder, states, noise, box)
    actions = perturb(perturbation, states, decoded, reach, box)
    q = values_of(critic, states, actions)[0].mean()
    shift = jnp.mean(jnp.abs(actions - decoded) / box.scale)
    return -q, {"actor/q": q, "actor/shift": shift}


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    rows, actions = batch.actions.shape
    noise = jax.random.normal(key, (2 + config.samples, rows, 2 * actions))
    return update_with(
        state, batch, Noise(noise[0], noise[2:], noise[1]), config, fitted
    )


def update_with(
    state: State, batch: Batch, noise: Noise, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    """`update` with its random numbers given."""
    of_loss = batch, noise.vae, config.kl_weight, fitted.box
    vae, metrics = state.vae.step(vae_bc.vae_loss, config.vae_rate, *of_loss)
    decoder = vae.tree().decoder
    y = critic_target(
        decoder,
        state.perturbation_target.tree(),
        state.critic_target.tree(),
        batch,
        noise.following,
        config,
        fitted,
    )
    critic, of_critic = state.critic.step(critic_loss, config.critic_rate, batch, y)
    of_loss = decoder, critic.tree(), batch, noise.now, fitted
    xi, of_xi = state.perturbation.step(perturbation_loss, config.policy_rate, *of_loss)
    state = State(
        vae,
        critic,
        polyak(state.critic_target, critic, config.target_rate),
        xi,
        polyak(state.perturbation_target, xi, config.target_rate),
    )
    return state, metrics | of_critic | of_xi


# Acting


class Model(eqx.Module):
    decoder: MLP
    perturbation: MLP
    critic: MLP  # Q_1
    reach: Float[Array, " action"]


def model(state: State, fitted: Fitted) -> Model:
    critic = jax.tree.map(lambda leaf: leaf[0], state.critic.tree())
    decoder = state.vae.tree().decoder
    return Model(decoder, state.perturbation.tree(), critic, fitted.reach)


def act(
    model: Model, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    shape = (CANDIDATES, 2 * len(box.low))

    def one(state: Float[Array, " state"], key: Key) -> Float[Array, " action"]:
        noise = jax.random.normal(key, shape)
        states = jnp.broadcast_to(state, (CANDIDATES, *state.shape))
        decoded = vae_bc.decode_clipped(model.decoder, states, noise, box)
        actions = perturb(model.perturbation, states, decoded, model.reach, box)
        q = model.critic(jnp.concatenate([states, actions], axis=-1))[:, 0]
        return actions[q.argmax()]

    return jax.vmap(one)(observations, keys)


def skeleton(options: Any) -> Model:
    del options
    net = MLP.init(jax.random.key(0), [1] * 4)
    return Model(vae_bc.skeleton(None), net, net, jnp.zeros(1))


BCQ = Algorithm(PRESETS, start, update, fitted, model, act, skeleton)
