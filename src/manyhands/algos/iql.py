"""IQL: values of the better actions in the data, and a policy that clones those.

Kostrikov, Nair and Levine, "Offline Reinforcement Learning with Implicit Q-Learning"
(2021). No loss asks for the value of an action that is not in the data. Per transition,
with slow copies Qbar_j, tau the expectile and advantage A = min_j Qbar_j(s, a) - V(s),

    L_V  = |tau - 1(A < 0)| A^2
    L_pi = -min(exp(beta A), 100) log pi(a|s)
    L_Q  = sum_j (Q_j(s, a) - y)^2,  y = r + gamma (1 - terminal) V(s')

V steps first; the others use it as it is then. pi is a Gaussian around a tanh of the
state, with deviations that are the same in all states, in units of half the action box.
The policy's learning rate falls to 0 along half a cosine. At test time: the mean.
"""

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from manyhands.algos.algorithm import Algorithm, Common, Given, Setting
from manyhands.nn import critics
from manyhands.nn.actors import action_of
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import critic_loss, values_of
from manyhands.nn.networks import MLP, Dense
from manyhands.nn.optimizer import Trained, polyak
from manyhands.options import (
    COUNT,
    NOT_NEGATIVE,
    PART,
    POSITIVE,
    SHARE,
    option,
    options,
    traced,
)
from manyhands.types import Batch, Box, Key, Keys, Metrics

LAYERS = 2
LOG_STD = -5.0, 2.0
RANGE_OF_RETURNS = 1000.0  # after scaling rewards by the data
SMALLEST = 1e-8  # size of advantages: what to divide by is never 0


@options
class Options(Common):
    width: int = option(256, "Hidden units of the policy.", COUNT)
    critic_width: int = option(256, "Hidden units of V and the Q-functions.", COUNT)
    expectile: float = traced(
        0.7, "Expectile of Q that V is; towards 1: the best action in the data.", PART
    )
    beta: float = traced(1.0, "How much more good actions count.", NOT_NEGATIVE)
    advantage_scale: Literal["mean", "none"] = option(
        "mean", "What advantages are divided by in the weights: their mean size, or 1."
    )
    most_weight: float = traced(100.0, "What an action counts at most.", POSITIVE)
    reward_scale: float = traced(
        1.0,
        "What rewards are multiplied by; 0: 1000 over the range of the data's returns.",
        NOT_NEGATIVE,
    )
    policy_rate: float = traced(3e-4, "Learning rate of the policy at first.", POSITIVE)
    value_rate: float = traced(3e-4, "Learning rate of V.", POSITIVE)
    critic_rate: float = traced(3e-4, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast target Q-functions follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


PRESETS = {
    "default": Options(),
    "paper": Options(
        steps=1_000_000,
        standardise=False,
        beta=3.0,
        advantage_scale="none",
        reward_scale=0.0,
    ),
}


class Policy(eqx.Module):
    net: MLP  # observation -> means, before their tanh
    log_std: Float[Array, " action"]


class State(NamedTuple):
    policy: Trained  # of a Policy
    value: Trained  # of an MLP
    critic: Trained  # of an MLP with a leading member axis
    target: Bundle


def settle(options: Options, setting: Setting) -> Options:
    if options.reward_scale > 0:
        return options
    returns = setting.data.returns
    span = float(returns.max() - returns.min())
    return replace(options, reward_scale=RANGE_OF_RETURNS / span if span > 0 else 1.0)


# Start


def orthogonal(key: Key, sizes: Any) -> MLP:
    """Orthogonal weights, longer by the square root of 2; zero biases."""
    draw = jax.nn.initializers.orthogonal(2**0.5)
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [
        Dense(draw(k, (inputs, outputs)), jnp.zeros(outputs))
        for k, inputs, outputs in zip(keys, sizes[:-1], sizes[1:])
    ]
    return MLP(tuple(layers))


def start(key: Key, given: Given, options: Options) -> State:
    key_policy, key_value, key_critic = jax.random.split(key, 3)
    hidden, more = [options.width] * LAYERS, [options.critic_width] * LAYERS
    net = orthogonal(key_policy, [given.observations, *hidden, given.actions])
    policy = Trained.of(Policy(net, jnp.zeros(given.actions)))
    value = Trained.of(orthogonal(key_value, [given.observations, *more, 1]))
    inputs = given.observations + given.actions
    critic = Trained.of(
        critics.init(key_critic, inputs, options.critic_width, LAYERS, orthogonal)
    )
    # Copy: a fleet donates these buffers, and XLA refuses to donate one twice.
    return State(policy, value, critic, jax.tree.map(jnp.copy, critic.params))


def fitted(given: Given, options: Options) -> Box:
    del options
    return given.box


# The model


def value_of(
    net: MLP, observations: Float[Array, "batch state"]
) -> Float[Array, " batch"]:
    """V(s)."""
    return net(observations)[..., 0]


def log_prob(
    policy: Policy,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
    box: Box,
) -> Float[Array, " batch"]:
    """log pi(a|s), of the action in units of half the box."""
    mean = jnp.tanh(policy.net(observations))
    log_std = jnp.clip(policy.log_std, *LOG_STD)
    standard = ((actions - box.center) / box.scale - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * (standard**2 + jnp.log(2 * jnp.pi)) - log_std, axis=-1)


# Losses; L_Q is in `nn/critics.py`


def value_loss(
    value: MLP, batch: Batch, q: Float[Array, " batch"], config: Options
) -> tuple[Float[Array, ""], Metrics]:
    """L_V; `q` is min_j Qbar_j(s, a)."""
    v = value_of(value, batch.observations)
    advantage = q - v
    weight = jnp.where(advantage < 0, 1 - config.expectile, config.expectile)
    loss = jnp.mean(weight * advantage**2)
    return loss, {"value/loss": loss, "value/v": v.mean()}


def weights(
    advantage: Float[Array, " batch"], config: Options
) -> Float[Array, " batch"]:
    """What each logged action counts in L_pi.

    In their own units advantages are as large as rewards happen to be; divided by their
    mean size, one beta is as sharp everywhere.
    """
    if config.advantage_scale == "mean":
        advantage = advantage / jnp.maximum(jnp.abs(advantage).mean(), SMALLEST)
    return jnp.minimum(jnp.exp(config.beta * advantage), config.most_weight)


def policy_loss(
    policy: Policy, batch: Batch, weight: Float[Array, " batch"], box: Box
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi."""
    likelihood = log_prob(policy, batch.observations, batch.actions, box)
    loss = -jnp.mean(weight * likelihood)
    return loss, {"actor/log_prob": likelihood.mean(), "actor/weight": weight.mean()}


def critic_target(value: MLP, batch: Batch, config: Options) -> Float[Array, " batch"]:
    """y of L_Q."""
    v = value_of(value, batch.next_observations)
    return batch.rewards + config.discount * (1 - batch.terminals) * v


# Update


def cosine(
    rate: Float[Array, ""] | float, step: Int[Array, ""], steps: int
) -> Float[Array, ""]:
    """A learning rate that falls to 0 at the last step."""
    share = jnp.minimum(step / max(1, steps), 1.0)
    return rate * (1 + jnp.cos(jnp.pi * share)) / 2


def update(
    state: State, batch: Batch, key: Key, config: Options, box: Box
) -> tuple[State, Metrics]:
    """V, policy, Q-functions, targets; nothing in it is random."""
    del key
    batch = batch._replace(rewards=config.reward_scale * batch.rewards)
    target = state.target.tree()
    q = values_of(target, batch.observations, batch.actions).min(axis=0)
    value, of_value = state.value.step(value_loss, config.value_rate, batch, q, config)
    advantage = q - value_of(value.tree(), batch.observations)
    rate = cosine(config.policy_rate, state.policy.steps, config.steps)
    policy, of_policy = state.policy.step(
        policy_loss, rate, batch, weights(advantage, config), box
    )
    y = critic_target(value.tree(), batch, config)
    critic, of_critic = state.critic.step(critic_loss, config.critic_rate, batch, y)
    target = polyak(state.target, critic, config.target_rate)
    more = {"actor/advantage": advantage.mean()}
    metrics = of_value | of_policy | more | of_critic
    return State(policy, value, critic, target), metrics


# Acting


def model(state: State, box: Box) -> Policy:
    del box
    return state.policy.tree()


def act(
    policy: Policy, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    del keys
    return action_of(policy.net, observations, box)


def skeleton(options: Any) -> Policy:
    del options
    return Policy(MLP.init(jax.random.key(0), [1] * (LAYERS + 2)), jnp.zeros(1))


IQL = Algorithm(PRESETS, start, update, fitted, model, act, skeleton, settle=settle)
