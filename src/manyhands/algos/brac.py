"""BRAC-v and BRAC-p: stay close to one estimate of the behavior policy.

Wu et al., "Behavior Regularized Offline Reinforcement Learning" (2019), with the KL
divergence. b is cloned first (`bc.py`) and stays. Per transition, with a' ~ pi(.|s')
and a~ ~ pi(.|s),

    D(s) = mean over samples a ~ pi(.|s) of log pi(a|s) - log b(a|s)
    L_Q  = sum_j (Q_j(s, a) - y)^2,
           y = r + gamma (1 - terminal) (min_j Qbar_j(s', a') - v beta D(s'))
    L_pi = beta D(s) - min_j Q_j(s, a~)

v is 1 in BRAC-v (the value function is penalised too) and 0 in BRAC-p. For the first
`warm_up` updates L_pi has no Q. At test time: the mode.
"""

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import bc
from manyhands.algos.actor_terms import scaled_value
from manyhands.algos.algorithm import Algorithm, Common, Given, Need
from manyhands.nn import critics
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import critic_loss, values_of
from manyhands.nn.distributions import TanhNormal, gaussian_kl, inside
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
from manyhands.types import Batch, Box, Key, Metrics


@options
class Options(Common):
    behavior_steps: int = option(100_000, "Updates of the behavior's clone.", COUNT)
    behavior_width: int = option(200, "Hidden units of the behavior's clone.", COUNT)
    width: int = option(200, "Hidden units of the policy.", COUNT)
    critic_width: int = option(300, "Hidden units of the Q-functions.", COUNT)
    beta: float = traced(1.0, "Weight of the divergence.", NOT_NEGATIVE)
    value_penalty: float = traced(
        1.0, "Weight v of the divergence in the Q-functions' target.", NOT_NEGATIVE
    )
    divergence: Literal["exact", "sampled"] = option(
        "exact", "KL of the Gaussians before the tanh, or by samples as printed."
    )
    samples: int = option(4, "Samples for the divergence.", COUNT)
    value_scale: Literal["mean", "none"] = option(
        "mean", "What Q is divided by in the policy's loss: its mean size, or 1."
    )
    value_weight: float = traced(
        2.5, "Weight of Q in the policy's loss, where it is divided.", NOT_NEGATIVE
    )
    warm_up: int = option(
        20_000,
        "Updates of the policy by the divergence alone; by default at most a fifth of "
        "the steps given.",
        NOT_NEGATIVE,
    )
    policy_rate: float = traced(1e-4, "Learning rate of the policy.", POSITIVE)
    critic_rate: float = traced(3e-4, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast target Q-functions follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


V = Options()
# As in the code that made D4RL's table.
PAPER = Options(
    steps=500_000,
    standardise=False,
    behavior_steps=500_000,
    divergence="sampled",
    value_scale="none",
    policy_rate=3e-5,
    critic_rate=1e-3,
)
PRESETS_V = {"default": V, "paper": PAPER}
PRESETS_P = {name: replace(o, value_penalty=0.0) for name, o in PRESETS_V.items()}


class State(NamedTuple):
    policy: Trained  # of an MLP
    critic: Trained  # of an MLP with a leading member axis
    target: Bundle


class Fitted(NamedTuple):
    box: Box
    behavior: MLP


# Start


def start(key: Key, given: Given, options: Options) -> State:
    key_policy, key_critic, key_target = jax.random.split(key, 3)
    policy = bc.init_net(key_policy, given, options.width)
    inputs = given.observations + given.actions
    # Targets do not start as copies.
    critic, target = (
        critics.init(key, inputs, options.critic_width)
        for key in (key_critic, key_target)
    )
    return State(Trained.of(policy), Trained.of(critic), Bundle.of(target))


def fitted(given: Given, options: Options) -> Fitted:
    del options
    return Fitted(given.box, given.behavior)


# Losses; L_Q is in `nn/critics.py`


class Noise(NamedTuple):
    """Standard normal numbers: of one action, and of those for the divergence."""

    action: Float[Array, "batch action"]
    divergence: Float[Array, "sample batch action"]


def divergence(
    pi: TanhNormal,
    b: TanhNormal,
    noise: Float[Array, "sample batch action"],
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """D."""
    if config.divergence == "exact":
        return gaussian_kl(pi, b)
    action, log_pi = jax.vmap(pi.sample_with)(noise)
    return (log_pi - b.log_prob(inside(action, box))).mean(axis=0)


def critic_target(
    policy: MLP,
    target: MLP,
    batch: Batch,
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    pi, b = (
        bc.distribution(net, batch.next_observations, fitted.box)
        for net in (policy, fitted.behavior)
    )
    action, _ = pi.sample_with(noise.action)
    q = values_of(target, batch.next_observations, action).min(axis=0)
    d = divergence(pi, b, noise.divergence, config, fitted.box)
    future = q - config.value_penalty * config.beta * d
    return batch.rewards + config.discount * (1 - batch.terminals) * future


def policy_loss(
    policy: MLP,
    critic: MLP,
    batch: Batch,
    noise: Noise,
    learning: Float[Array, ""],
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi; `learning` is 0 while warming up, then 1."""
    pi, b = (
        bc.distribution(net, batch.observations, fitted.box)
        for net in (policy, fitted.behavior)
    )
    action, log_pi = pi.sample_with(noise.action)
    q = values_of(critic, batch.observations, action).min(axis=0)
    d = divergence(pi, b, noise.divergence, config, fitted.box).mean()
    value = scaled_value(q, config.value_scale, config.value_weight)
    loss = config.beta * d - learning * value
    metrics = {
        "actor/divergence": d,
        "actor/q": q.mean(),
        "actor/log_prob": log_pi.mean(),
    }
    return loss, metrics


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    samples = config.samples if config.divergence == "sampled" else 0
    noise = jax.random.normal(key, (2, 1 + samples, *batch.actions.shape))
    following, now = (Noise(rows[0], rows[1:]) for rows in noise)
    return update_with(state, batch, following, now, config, fitted)


def update_with(
    state: State,
    batch: Batch,
    following: Noise,
    now: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[State, Metrics]:
    """`update` with its random numbers given: for s' and for s."""
    target = polyak(state.target, state.critic, config.target_rate)
    y = critic_target(
        state.policy.tree(), target.tree(), batch, following, config, fitted
    )
    critic, metrics = state.critic.step(critic_loss, config.critic_rate, batch, y)
    learning = jnp.float32(state.policy.steps >= config.warm_up)
    of_loss = critic.tree(), batch, now, learning, config, fitted
    policy, more = state.policy.step(policy_loss, config.policy_rate, *of_loss)
    return State(policy, critic, target), metrics | more


# Acting


def model(state: State, fitted: Fitted) -> MLP:
    del fitted
    return state.policy.tree()


def clone_changes(options: Options) -> dict[str, Any]:
    return {
        "steps": options.behavior_steps,
        "width": options.behavior_width,
        "standardise": options.standardise,
    }


BRAC_V, BRAC_P = (
    Algorithm(
        presets,
        start,
        update,
        fitted,
        model,
        bc.act,
        bc.skeleton,
        needs=(Need("bc", clone_changes),),
    )
    for presets in (PRESETS_V, PRESETS_P)
)
