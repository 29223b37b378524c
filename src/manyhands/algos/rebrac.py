"""ReBRAC: TD3+BC with a penalty in the values too, and deeper, normed Q-functions.

Tarasov et al., "Revisiting the Minimalist Approach to Offline Reinforcement Learning"
(2023). pi is deterministic; pibar and Qbar_j are slow copies; a' is pibar(s') with
bounded noise; a'_D is what the data has next. Per transition,

    L_Q  = sum_j (Q_j(s, a) - y)^2,
           y = r + gamma (1 - terminal) (min_j Qbar_j(s', a') - beta_2 |a' - a'_D|^2)
    L_pi = beta_1 |pi(s) - a|^2 - lambda min_j Q_j(s, pi(s)),
           lambda = 1 / mean over the batch of |min_j Q_j(s, pi(s))|

with distances in units of half the action box. The policy and all slow copies move at
every second update only. At test time: pi(s).
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import delayed, skeletons
from manyhands.algos.actor_terms import scaled_value
from manyhands.algos.algorithm import Algorithm, Common, Given
from manyhands.algos.delayed import State
from manyhands.nn import critics
from manyhands.nn.actors import action_of, blurred, distance, uniform_mlp
from manyhands.nn.critics import NormedMLP, values_of
from manyhands.nn.networks import MLP
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

LAYERS = 3
HIDDEN_BIAS = 0.1
LAST_OF_CRITIC, LAST_OF_POLICY = 3e-3, 1e-3  # the last layers start nearly at zero


@options
class Options(Common):
    batch_size: int = option(1024, "Transitions per update.", COUNT)
    width: int = option(256, "Hidden units of the policy.", COUNT)
    critic_width: int = option(256, "Hidden units of the Q-functions.", COUNT)
    policy_penalty: float = traced(
        0.01, "Weight beta_1 of the distance in the policy's loss.", NOT_NEGATIVE
    )
    value_penalty: float = traced(
        0.01, "Weight beta_2 of the distance in the Q-functions' target.", NOT_NEGATIVE
    )
    policy_every: int = option(
        2, "Updates of the Q-functions for one of the policy and the targets.", COUNT
    )
    target_noise: float = traced(
        0.2, "Deviation of the noise on the target's actions.", NOT_NEGATIVE
    )
    target_noise_bound: float = traced(0.5, "Its largest size.", NOT_NEGATIVE)
    policy_rate: float = traced(1e-3, "Learning rate of the policy.", POSITIVE)
    critic_rate: float = traced(1e-3, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast all targets follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


PAPER = Options(steps=1_000_000, standardise=False)
# beta_1 and beta_2, chosen by the returns of policies that were tried out.
PENALTIES = {
    "halfcheetah-random": (0.001, 0.1),
    "halfcheetah-medium": (0.001, 0.01),
    "halfcheetah-medium-replay": (0.01, 0.001),
    "halfcheetah-medium-expert": (0.01, 0.1),
    "halfcheetah-expert": (0.01, 0.01),
    "halfcheetah-full-replay": (0.001, 0.1),
    "hopper-random": (0.001, 0.01),
    "hopper-medium": (0.01, 0.01),
    "hopper-medium-replay": (0.05, 0.5),
    "hopper-medium-expert": (0.1, 0.01),
    "hopper-expert": (0.1, 0.1),
    "hopper-full-replay": (0.01, 0.01),
    "walker2d-random": (0.01, 0.0),
    "walker2d-medium": (0.05, 0.1),
    "walker2d-medium-replay": (0.05, 0.01),
    "walker2d-medium-expert": (0.01, 0.01),
    "walker2d-expert": (0.01, 0.5),
    "walker2d-full-replay": (0.01, 0.01),
}
PRESETS = {"default": Options(), "paper": PAPER} | {
    name: replace(PAPER, policy_penalty=of_policy, value_penalty=of_value)
    for name, (of_policy, of_value) in PENALTIES.items()
}


# Start


def start(key: Key, given: Given, options: Options) -> State:
    key_policy, key_critic = jax.random.split(key)
    policy = uniform_mlp(
        key_policy,
        [given.observations, *[options.width] * LAYERS, given.actions],
        HIDDEN_BIAS,
        LAST_OF_POLICY,
    )
    critic = critics.init(
        key_critic,
        given.observations + given.actions,
        options.critic_width,
        LAYERS,
        partial(uniform_mlp, hidden_bias=HIDDEN_BIAS, last_bound=LAST_OF_CRITIC),
    )
    names = ("actor/q", "actor/distance")
    return delayed.started(policy, NormedMLP.of(critic), names)


def fitted(given: Given, options: Options) -> Box:
    del options
    return given.box


# Losses; L_Q is in `nn/critics.py`


def critic_target(
    policy: MLP,
    target: NormedMLP,
    batch: Batch,
    noise: Float[Array, "batch action"],
    config: Options,
    box: Box,
) -> tuple[Float[Array, " batch"], Metrics]:
    """y of L_Q, by the slow copies."""
    assert batch.next_actions is not None
    sure = action_of(policy, batch.next_observations, box)
    action = blurred(sure, noise, config.target_noise, config.target_noise_bound, box)
    q = values_of(target, batch.next_observations, action).min(axis=0)
    # Where a trajectory was cut off nobody knows what came next: nothing to pay then.
    known = ~jnp.isnan(batch.next_actions).any(axis=-1)
    far = jnp.where(known, distance(action, batch.next_actions, box), 0)
    future = q - config.value_penalty * far
    y = batch.rewards + config.discount * (1 - batch.terminals) * future
    return y, {"critic/distance": far.mean()}


def policy_loss(
    policy: MLP, critic: NormedMLP, batch: Batch, config: Options, box: Box
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi."""
    action = action_of(policy, batch.observations, box)
    q = values_of(critic, batch.observations, action).min(axis=0)
    far = distance(action, batch.actions, box).mean()
    loss = config.policy_penalty * far - scaled_value(q, "mean", 1.0)
    return loss, {"actor/q": q.mean(), "actor/distance": far}


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, box: Box
) -> tuple[State, Metrics]:
    noise = jax.random.normal(key, batch.actions.shape)
    return update_with(state, batch, noise, config, box)


def update_with(
    state: State,
    batch: Batch,
    noise: Float[Array, "batch action"],
    config: Options,
    box: Box,
) -> tuple[State, Metrics]:
    """`update` with its random numbers given."""
    slow = state.delayed
    y, of_target = critic_target(
        slow.target_policy.tree(), slow.target.tree(), batch, noise, config, box
    )
    # Unlike TD3+BC's, the slow policy follows what the policy was before this step.
    state, metrics = delayed.stepped(
        state, batch, y, policy_loss, lambda before, after: before, config, box
    )
    return state, of_target | metrics


REBRAC = Algorithm(
    PRESETS,
    start,
    update,
    fitted,
    delayed.model,
    delayed.act,
    skeletons.mlp(LAYERS),
)
