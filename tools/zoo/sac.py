"""Soft actor-critic with rlkit's settings: the agents that made the paper's data.

Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (2018). With pi a
tanh-Gaussian, twin critics Q_j and their slow copies Qbar_j, per transition

    L_Q     = sum_j (Q_j(s, a) - y)^2,
              y = r + gamma (1 - terminal) (min_j Qbar_j(s', a') - alpha log pi(a'|s'))
    L_pi    = alpha log pi(a~|s) - min_j Q_j(s, a~)
    L_alpha = -log alpha (log pi(a~|s) + H),  H = minus the number of actions

with a' ~ pi(.|s') and a~ ~ pi(.|s). All losses are taken at the same parameters, then
everything steps, then the targets follow.

Tasks of different sizes train together: observations and actions are padded with zeros
and a mask says which actions there are.
"""

from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.agents.acting import LOG_STD
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import MEMBERS, critic_loss, values_of
from manyhands.nn.distributions import TanhNormal
from manyhands.nn.networks import MLP, Dense
from manyhands.nn.optimizer import Trained, polyak
from manyhands.types import Batch, Key, Metrics

HIDDEN_LAYERS = 2
LAST_OF_CRITIC, LAST_OF_ACTOR = 3e-3, 1e-3  # the last layers start nearly at zero


class Config(NamedTuple):
    """Traced hyper-parameters: they may differ between replicas trained together."""

    rate: Float[Array, ""]
    discount: Float[Array, ""]
    target_rate: Float[Array, ""]


class Fitted(NamedTuple):
    """What is given: 1 where there is an action, 0 where there is padding."""

    mask: Float[Array, " action"]


class Actor(eqx.Module):
    net: MLP  # observation -> means and log-deviations of the actions
    log_alpha: Float[Array, "*lead"]


class State(NamedTuple):
    actor: Trained  # of an Actor
    critic: Trained  # of an MLP with a leading member axis
    target: Bundle


# Start


def init(key: Key, observations: int, actions: int, width: int) -> State:
    key_actor, key_critic, key_target = jax.random.split(key, 3)
    hidden = [width] * HIDDEN_LAYERS
    net = _mlp(key_actor, [observations, *hidden, 2 * actions], LAST_OF_ACTOR)

    def critics(key: Key) -> MLP:
        sizes = [observations + actions, *hidden, 1]
        keys = jax.random.split(key, MEMBERS)
        return jax.vmap(lambda k: _mlp(k, sizes, LAST_OF_CRITIC))(keys)

    # rlkit's targets do not start as copies.
    critic, target = critics(key_critic), critics(key_target)
    actor = Trained.of(Actor(net, jnp.zeros(())))
    return State(actor, Trained.of(critic), Bundle.of(target))


def _mlp(key: Key, sizes: list[int], last: float) -> MLP:
    """rlkit's start: the bound of a hidden layer is by its width, not its inputs."""
    layers = []
    for number, (inputs, outputs) in enumerate(pairwise(sizes)):
        final = number == len(sizes) - 2
        limit = last if final else outputs**-0.5
        key_w, key_b = jax.random.split(jax.random.fold_in(key, number))
        w = jax.random.uniform(key_w, (inputs, outputs), minval=-limit, maxval=limit)
        b = jax.random.uniform(key_b, (outputs,), minval=-last, maxval=last)
        layers.append(Dense(w, b if final else jnp.zeros(outputs)))
    return MLP(tuple(layers))


# The model


def distribution(net: MLP, observations: Float[Array, "*lead state"]) -> TanhNormal:
    mean, log_std = jnp.split(net(observations), 2, axis=-1)
    size = mean.shape[-1]
    return TanhNormal(
        mean, jnp.clip(log_std, *LOG_STD), center=jnp.zeros(size), scale=jnp.ones(size)
    )


def sample(
    net: MLP,
    observations: Float[Array, "*lead state"],
    noise: Float[Array, "*lead action"],
    mask: Float[Array, " action"],
) -> tuple[Float[Array, "*lead action"], Float[Array, "*lead"]]:
    """Actions and their log-probabilities; padding is 0 and counts nothing."""
    pi = distribution(net, observations)
    u = pi.mean + jnp.exp(pi.log_std) * noise
    return jnp.tanh(u) * mask, jnp.sum(pi.inner_terms(u) * mask, axis=-1)


# Losses; L_Q is in `nn/critics.py`


def critic_target(
    actor: Actor,
    target: MLP,
    batch: Batch,
    noise: Float[Array, "batch action"],
    config: Config,
    fitted: Fitted,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    action, log_prob = sample(actor.net, batch.next_observations, noise, fitted.mask)
    q = values_of(target, batch.next_observations, action).min(axis=0)
    soft = q - jnp.exp(actor.log_alpha) * log_prob
    return batch.rewards + config.discount * (1 - batch.terminals) * soft


def actor_loss(
    actor: Actor,
    critic: MLP,
    batch: Batch,
    noise: Float[Array, "batch action"],
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi + L_alpha: neither has a gradient for the other's parameters."""
    action, log_prob = sample(actor.net, batch.observations, noise, fitted.mask)
    q = values_of(critic, batch.observations, action).min(axis=0)
    alpha = jax.lax.stop_gradient(jnp.exp(actor.log_alpha))
    surplus = jax.lax.stop_gradient(log_prob) - fitted.mask.sum()
    loss = jnp.mean(alpha * log_prob - q) - jnp.mean(actor.log_alpha * surplus)
    metrics = {"actor/log_prob": log_prob.mean(), "actor/alpha": alpha}
    return loss, metrics


# Update


def update(
    state: State, batch: Batch, key: Key, config: Config, fitted: Fitted
) -> tuple[State, Metrics]:
    noise = jax.random.normal(key, (2, *batch.actions.shape))
    return update_with(state, batch, noise, config, fitted)


def update_with(
    state: State,
    batch: Batch,
    noise: Float[Array, "2 batch action"],
    config: Config,
    fitted: Fitted,
) -> tuple[State, Metrics]:
    """`update` with its random numbers given: for s' and for s."""
    y = critic_target(
        state.actor.tree(), state.target.tree(), batch, noise[0], config, fitted
    )
    critic, metrics = state.critic.step(critic_loss, config.rate, batch, y)
    actor, more = state.actor.step(
        actor_loss, config.rate, state.critic.tree(), batch, noise[1], fitted
    )
    target = polyak(state.target, critic, config.target_rate)
    return State(actor, critic, target), metrics | more
