"""Fisher-BRC: a Q-function that is the behavior's log-density plus a flat offset.

Kostrikov et al., "Offline Reinforcement Learning with Fisher Divergence Critic
Regularization" (ICML 2021), with the settings of the released code. b is a mixture
(`behavior/mixture.py`) that is fitted first and stays; two networks O_j add what it
lacks, Q_j(s, a) = O_j(s, a) + log b(a|s). Per transition, with a', a^, a~ ~ pi in s',
s, s,

    L_O     = sum_j (Q_j(s, a) - y)^2 + lambda |grad_a O_j(s, a^)|^2,
              y = r + bonus + gamma (1 - terminal) min_j Qbar_j(s', a')
    L_pi    = alpha log pi(a~|s) - min_j Q_j(s, a~)
    L_alpha = alpha (-log pi(a~|s) - H),  H = minus the number of actions, in units of
              the box

With exp Q for a density, the penalty is the Fisher divergence between it and b: where
O is flat, Q falls off as b does. It is a gradient within a loss, so L_O is
differentiated twice. The gradient of L_pi runs through b's density. The critics step
first, then the targets follow, then the policy steps by the new critics. At test time:
the mode.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import skeletons, soft_actor
from manyhands.algos.algorithm import Algorithm, Common, Given, Need
from manyhands.algos.soft_actor import Actor, distribution
from manyhands.behavior import mixture
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import MEMBERS, squared_error, values_of
from manyhands.nn.distributions import inside
from manyhands.nn.networks import MLP, Dense
from manyhands.nn.optimizer import Trained, polyak
from manyhands.options import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Range,
    option,
    options,
    traced,
)
from manyhands.types import Batch, Box, Key, Metrics

LAYERS = 3
BEHAVIOR_RATE = 1e-3  # the first one; it falls to 0 over the second half of the fit


@options
class Options(Common):
    behavior_steps: int = option(
        0,
        "Updates of the behavior; 0: as many as `fit` takes by default.",
        NOT_NEGATIVE,
    )
    behavior_width: int = option(256, "Hidden units of the behavior.", COUNT)
    width: int = option(256, "Hidden units of the policy.", COUNT)
    critic_width: int = option(256, "Hidden units of the offsets O.", COUNT)
    penalty: float = traced(
        0.1, "Weight lambda of the offsets' squared gradient.", NOT_NEGATIVE
    )
    bonus: float = traced(5.0, "Added to every reward.", Range())
    policy_rate: float = traced(3e-4, "Learning rate of policy and alpha.", POSITIVE)
    critic_rate: float = traced(3e-4, "Learning rate of the offsets.", POSITIVE)
    target_rate: float = traced(0.005, "How fast target offsets follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


PAPER = Options(steps=1_000_000, standardise=False, behavior_steps=1_000_000, bonus=5.0)
PRESETS = {"default": Options(), "paper": PAPER}


class State(NamedTuple):
    actor: Trained  # of an Actor
    critic: Trained  # the offsets: of an MLP with a leading member axis
    target: Bundle


class Fitted(NamedTuple):
    box: Box
    behavior: mixture.Model


# Start


def start(key: Key, given: Given, options: Options) -> State:
    key_actor, key_critic = jax.random.split(key)
    hidden = [options.width] * LAYERS
    net = init_net(key_actor, [given.observations, *hidden, 2 * given.actions])
    actor = Trained.of(Actor(net, jnp.zeros(())))
    inputs = given.observations + given.actions
    sizes = [inputs, *[options.critic_width] * LAYERS, 1]
    keys = jax.random.split(key_critic, MEMBERS)
    critic = Trained.of(jax.vmap(lambda key: init_net(key, sizes))(keys))
    return State(actor, critic, jax.tree.map(jnp.copy, critic.params))


def init_net(key: Key, sizes: list[int]) -> MLP:
    """Orthogonal matrices, the last one small."""
    keys = jax.random.split(key, len(sizes) - 1)
    gains = [2**0.5] * (len(sizes) - 2) + [0.01]
    layers = [
        Dense(jax.nn.initializers.orthogonal(gain)(key, shape), jnp.zeros(shape[1]))
        for key, gain, shape in zip(keys, gains, pairwise(sizes))
    ]
    return MLP(tuple(layers))


def fitted(given: Given, options: Options) -> Fitted:
    del options
    return Fitted(given.box, given.behavior)


# The model


def log_b(
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
    fitted: Fitted,
) -> Float[Array, " batch"]:
    """log b(a|s), at actions as far off the bounds as those it was fitted to."""
    b = fitted.behavior(observations, fitted.box)
    return b.log_prob(inside(actions, fitted.box))


# Losses


class Noise(NamedTuple):
    """Standard normal numbers for one action each."""

    following: Float[Array, "batch action"]  # a'
    penalty: Float[Array, "batch action"]  # a^
    now: Float[Array, "batch action"]  # a~


def critic_target(
    actor: Actor,
    target: MLP,
    batch: Batch,
    noise: Float[Array, "batch action"],
    config: Options,
    fitted: Fitted,
) -> Float[Array, " batch"]:
    """y of L_O."""
    s = batch.next_observations
    action, _ = distribution(actor.net, s, fitted.box).sample_with(noise)
    q = values_of(target, s, action).min(axis=0) + log_b(s, action, fitted)
    rewards = batch.rewards + config.bonus
    return rewards + config.discount * (1 - batch.terminals) * q


def steepness(
    critic: MLP,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
    box: Box,
) -> Float[Array, "member batch"]:
    """|grad_a O_j|^2 with actions in units of the box."""

    def total(actions: Float[Array, "batch action"], member: MLP) -> Float[Array, ""]:
        # Rows do not meet: the gradient of the sum is that of each.
        return member(jnp.concatenate([observations, actions], axis=-1)).sum()

    gradients = jax.vmap(jax.grad(total), in_axes=(None, 0))(actions, critic)
    return jnp.sum((box.scale * gradients) ** 2, axis=-1)


def critic_loss(
    critic: MLP,
    batch: Batch,
    y: Float[Array, " batch"],
    actions: Float[Array, "batch action"],
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_O; `actions` are those whose offsets should be flat, a^."""
    behavior = log_b(batch.observations, batch.actions, fitted)
    q = values_of(critic, batch.observations, batch.actions) + behavior
    bellman = squared_error(q, y)
    steep = steepness(critic, batch.observations, actions, fitted.box)
    loss = bellman + config.penalty * steep.mean(axis=-1).sum()
    metrics = {
        "critic/loss": bellman,
        "critic/q": q.mean(),
        "critic/target": y.mean(),
        "critic/steepness": steep.mean(),
        "critic/log_b": behavior.mean(),
    }
    return loss, metrics


def actor_loss(
    actor: Actor,
    critic: MLP,
    batch: Batch,
    noise: Float[Array, "batch action"],
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi + L_alpha: neither has a gradient for the other's parameters."""
    box, s = fitted.box, batch.observations
    action, log_prob = distribution(actor.net, s, box).sample_with(noise)
    behavior = log_b(s, action, fitted)
    q = values_of(critic, s, action).min(axis=0) + behavior
    alpha = jnp.exp(actor.log_alpha)
    surplus = soft_actor.surplus(log_prob, box, -float(len(box.low)))
    loss = jnp.mean(jax.lax.stop_gradient(alpha) * log_prob - q + alpha * surplus)
    metrics = {
        "actor/q": q.mean(),
        "actor/log_b": behavior.mean(),
        "actor/log_prob": log_prob.mean(),
        "actor/alpha": alpha,
    }
    return loss, metrics


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    noise = jax.random.normal(key, (3, *batch.actions.shape))
    noise = Noise(noise[0], noise[1], noise[2])
    return update_with(state, batch, noise, config, fitted)


def update_with(
    state: State, batch: Batch, noise: Noise, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    """`update` with its random numbers given."""
    before = state.actor.tree()
    y = critic_target(
        before, state.target.tree(), batch, noise.following, config, fitted
    )
    pi = distribution(before.net, batch.observations, fitted.box)
    flat_at, _ = pi.sample_with(noise.penalty)
    critic, metrics = state.critic.step(
        critic_loss, config.critic_rate, batch, y, flat_at, config, fitted
    )
    target = polyak(state.target, critic, config.target_rate)
    actor, more = state.actor.step(
        actor_loss, config.policy_rate, critic.tree(), batch, noise.now, fitted
    )
    return State(actor, critic, target), metrics | more


# What is fitted first


def behavior_changes(options: Options) -> dict[str, Any]:
    """Of the mixture that is fitted first."""
    steps = {"steps": options.behavior_steps} if options.behavior_steps else {}
    return {
        "policy_width": options.behavior_width,
        "policy_rate": BEHAVIOR_RATE,
        "rate_decay": True,
        "standardise": options.standardise,
        **steps,
    }


FISHER_BRC = Algorithm(
    PRESETS,
    start,
    update,
    fitted,
    soft_actor.model,
    soft_actor.act,
    skeletons.mlp(LAYERS),
    needs=(Need("mixture", behavior_changes),),
)
