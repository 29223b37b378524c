"""PLAS: a policy in the latent space of a VAE, so that actions are like the data's.

Zhou et al., "PLAS: Latent Action Space for Offline Reinforcement Learning" (2020). The
VAE (`vae_bc.py`) is fitted first and stays; d is its decoder. The policy chooses the
latent, a deterministic one, and where `perturbed` adds a small move as BCQ does:

    z(s)  = Z tanh(g(s)),  a(s) = d(s, z(s))  or  xi(s, d(s, z(s)))
    L_Q   = sum_j (Q_j(s, a) - y)^2,
            y = r + gamma (1 - terminal) V(s', abar(s')),
            V = lambda min_j Qbar_j + (1 - lambda) max_j Qbar_j
    L_pi  = -Q_1(s, a(s))

with xi as in `bcq.py`; bars are targets. At test time: a(s).
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import bcq, vae_bc
from manyhands.algos.algorithm import Algorithm, Common, Given, Need
from manyhands.algos.bcq import soft_minimum
from manyhands.nn.actors import uniform_mlp
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import critic_loss, values_of
from manyhands.nn.networks import MLP
from manyhands.nn.optimizer import Trained, polyak
from manyhands.options import COUNT, POSITIVE, SHARE, option, options, traced
from manyhands.types import Batch, Box, Key, Keys, Metrics


@options
class Options(Common):
    behavior_steps: int = option(100_000, "Updates of the VAE.", COUNT)
    behavior_width: int = option(750, "Hidden units of the VAE.", COUNT)
    width: int = option(
        400,
        "Hidden units of the other networks' first layers; second ones have 3/4.",
        COUNT,
    )
    perturbed: bool = option(
        False, "Move the decoded action a little further (PLAS+P)."
    )
    phi: float = traced(
        0.05, "Phi, the longest such move, in half-widths of the box.", SHARE
    )
    latent_bound: float = traced(2.0, "Z, the farthest latent.", POSITIVE)
    minimum_weight: float = traced(
        1.0, "Weight lambda of the lower of the two target Q-functions.", SHARE
    )
    policy_rate: float = traced(1e-4, "Learning rate of the policy.", POSITIVE)
    critic_rate: float = traced(1e-3, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast targets follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


PAPER = Options(
    steps=500_000, batch_size=100, standardise=False, behavior_steps=500_000
)
# Of data that a replay buffer held the VAE is narrower.
REPLAY = replace(PAPER, behavior_width=128)
# Phi of PLAS+P.
MOVES = {
    "halfcheetah-random": 0.01,
    "halfcheetah-medium": 0.1,
    "halfcheetah-medium-replay": 0.05,
    "halfcheetah-medium-expert": 0.01,
    "hopper-random": 0.5,
    "hopper-medium": 0.01,
    "hopper-medium-replay": 0.2,
    "hopper-medium-expert": 0.01,
    "walker2d-random": 0.05,
    "walker2d-medium": 0.1,
    "walker2d-medium-replay": 0.05,
    "walker2d-medium-expert": 0.01,
}
PRESETS = {"default": Options(), "paper": PAPER, "medium-replay": REPLAY} | {
    f"{name}-perturbed": replace(
        REPLAY if name.endswith("replay") else PAPER, perturbed=True, phi=phi
    )
    for name, phi in MOVES.items()
}


class Policy(eqx.Module):
    latent: MLP  # g
    perturbation: MLP | None


class State(NamedTuple):
    policy: Trained  # of a Policy
    policy_target: Bundle
    critic: Trained  # of an MLP with a leading member axis
    critic_target: Bundle


class Decoder(eqx.Module):
    """What turns a policy's outputs into actions, and does not learn."""

    network: MLP
    bound: Float[Array, " latent"]  # Z, of every latent
    reach: Float[Array, " action"]  # Phi scale


class Fitted(NamedTuple):
    box: Box
    decoder: Decoder


# Start


def init_policy(key: Key, given: Given, options: Options) -> Policy:
    key_latent, key_perturbation = jax.random.split(key)
    sizes = [given.observations, *bcq.hidden(options.width), 2 * given.actions]
    perturbation = None
    if options.perturbed:
        perturbation = bcq.init_perturbation(key_perturbation, given, options.width)
    return Policy(uniform_mlp(key_latent, sizes), perturbation)


def start(key: Key, given: Given, options: Options) -> State:
    key_policy, key_critic = jax.random.split(key)
    policy = Trained.of(init_policy(key_policy, given, options))
    critic = Trained.of(bcq.init_critics(key_critic, given, options.width))
    # Targets start as copies: XLA refuses to donate a buffer twice.
    targets = jax.tree.map(jnp.copy, (policy.params, critic.params))
    return State(policy, targets[0], critic, targets[1])


def fitted(given: Given, options: Options) -> Fitted:
    bound = jnp.full(2 * given.actions, options.latent_bound, jnp.float32)
    reach = options.phi * given.box.scale
    return Fitted(given.box, Decoder(given.behavior, bound, reach))


# The model


def action_of(
    policy: Policy,
    decoder: Decoder,
    observations: Float[Array, "batch state"],
    box: Box,
) -> tuple[Float[Array, "batch action"], Float[Array, "batch latent"]]:
    """a, and z."""
    latents = decoder.bound * jnp.tanh(policy.latent(observations))
    actions = vae_bc.decode(decoder.network, observations, latents, box)
    if policy.perturbation is None:
        return actions, latents
    return (
        bcq.perturb(policy.perturbation, observations, actions, decoder.reach, box),
        latents,
    )


# Losses; L_Q is in `nn/critics.py`


def critic_target(
    policy_target: Policy,
    target: MLP,
    batch: Batch,
    config: Options,
    fitted: Fitted,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    states = batch.next_observations
    actions, _ = action_of(policy_target, fitted.decoder, states, fitted.box)
    future = soft_minimum(values_of(target, states, actions), config.minimum_weight)
    return batch.rewards + config.discount * (1 - batch.terminals) * future


def policy_loss(
    policy: Policy, critic: MLP, batch: Batch, fitted: Fitted
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi: its gradient passes through the decoder."""
    actions, latents = action_of(policy, fitted.decoder, batch.observations, fitted.box)
    q = values_of(critic, batch.observations, actions)[0].mean()
    size = jnp.mean(jnp.abs(latents) / fitted.decoder.bound)
    return -q, {"actor/q": q, "actor/latent_size": size}


# Update: nothing in it is random


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    del key
    y = critic_target(
        state.policy_target.tree(), state.critic_target.tree(), batch, config, fitted
    )
    critic, metrics = state.critic.step(critic_loss, config.critic_rate, batch, y)
    policy, more = state.policy.step(
        policy_loss, config.policy_rate, critic.tree(), batch, fitted
    )
    state = State(
        policy,
        polyak(state.policy_target, policy, config.target_rate),
        critic,
        polyak(state.critic_target, critic, config.target_rate),
    )
    return state, metrics | more


# Acting


class Model(eqx.Module):
    policy: Policy
    decoder: Decoder


def model(state: State, fitted: Fitted) -> Model:
    return Model(state.policy.tree(), fitted.decoder)


def act(
    model: Model, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    del keys
    return action_of(model.policy, model.decoder, observations, box)[0]


def skeleton(options: Any) -> Model:
    net = MLP.init(jax.random.key(0), [1] * 4)
    policy = Policy(net, net if options.perturbed else None)
    one = jnp.ones(1)
    return Model(policy, Decoder(vae_bc.skeleton(None), one, one))


def vae_changes(options: Options) -> dict[str, Any]:
    return {
        "steps": options.behavior_steps,
        "width": options.behavior_width,
        "standardise": options.standardise,
    }


PLAS = Algorithm(
    PRESETS,
    start,
    update,
    fitted,
    model,
    act,
    skeleton,
    needs=(Need("vae_bc", vae_changes),),
)
