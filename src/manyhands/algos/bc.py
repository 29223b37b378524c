"""Behavior cloning, as BRAC does it: maximum likelihood with a floor on the entropy.

Wu et al., "Behavior Regularized Offline Reinforcement Learning" (2019). With pi a
tanh-Gaussian and a~ ~ pi(.|s), per transition

    L_pi = alpha log pi(a~|s) - log pi(a|s)
    L_alpha = alpha (-log pi(a~|s) - H),  H = minus the number of actions

alpha is a plain number used as max(alpha, 0). At test time: the mode.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos.algorithm import Algorithm, Common, Given
from manyhands.nn.distributions import TanhNormal, inside
from manyhands.nn.networks import MLP
from manyhands.nn.optimizer import Trained
from manyhands.options import COUNT, POSITIVE, option, options, traced
from manyhands.types import Batch, Box, Key, Keys, Metrics

LAYERS = 2
LOWEST_LOG_STD = -5.0  # and the highest is 0


@options
class Options(Common):
    width: int = option(200, "Hidden units of the policy.", COUNT)
    policy_rate: float = traced(5e-4, "Learning rate of the policy.", POSITIVE)


PRESETS = {
    "default": Options(),
    "paper": Options(steps=500_000, standardise=False),
}


class Policy(eqx.Module):
    net: MLP  # observation -> means and log-deviations, before their squashing
    alpha: Float[Array, "*lead"]


class State(NamedTuple):
    policy: Trained  # of a Policy


# Start


def init_net(key: Key, given: Given, width: int) -> MLP:
    return MLP.init(key, [given.observations, *[width] * LAYERS, 2 * given.actions])


def start(key: Key, given: Given, options: Options) -> State:
    net = init_net(key, given, options.width)
    return State(Trained.of(Policy(net, jnp.ones(()))))


def fitted(given: Given, options: Options) -> Box:
    del options
    return given.box


# The model


def distribution(
    net: MLP, observations: Float[Array, "*lead state"], box: Box
) -> TanhNormal:
    mean, raw = jnp.split(net(observations), 2, axis=-1)
    log_std = LOWEST_LOG_STD * (1 - jnp.tanh(raw)) / 2
    return TanhNormal(mean, log_std, box.center, box.scale)


# Losses


def policy_loss(
    policy: Policy, batch: Batch, noise: Float[Array, "batch action"], box: Box
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi + L_alpha: neither has a gradient for the other's parameters."""
    pi = distribution(policy.net, batch.observations, box)
    likelihood = pi.log_prob(inside(batch.actions, box)).mean()
    negative_entropy = pi.sample_with(noise)[1].mean()
    # A gradient that would lower alpha stops at 0; one that raises it passes.
    alpha = jax.lax.stop_gradient(jnp.maximum(policy.alpha, 0))
    surplus = jax.lax.stop_gradient(-negative_entropy + noise.shape[-1])
    surplus = jnp.where(policy.alpha > 0, surplus, jnp.minimum(surplus, 0))
    loss = alpha * negative_entropy - likelihood + policy.alpha * surplus
    return loss, {"actor/log_prob": likelihood, "actor/alpha": alpha}


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, box: Box
) -> tuple[State, Metrics]:
    noise = jax.random.normal(key, batch.actions.shape)
    policy, metrics = state.policy.step(
        policy_loss, config.policy_rate, batch, noise, box
    )
    return State(policy), metrics


# Acting


def model(state: State, box: Box) -> MLP:
    del box
    return state.policy.tree().net


def act(
    net: MLP, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    del keys
    return distribution(net, observations, box).mode()


def skeleton(options: Any) -> MLP:
    del options
    return MLP.init(jax.random.key(0), [1] * (LAYERS + 2))


BC = Algorithm(PRESETS, start, update, fitted, model, act, skeleton)
