"""TD3+BC: TD3 whose policy is also drawn to the logged actions.

Fujimoto and Gu, "A Minimalist Approach to Offline Reinforcement Learning" (2021). pi is
deterministic; pibar and Qbar_j are slow copies; epsilon is bounded noise. Per
transition,

    L_Q  = sum_j (Q_j(s, a) - y)^2,
           y = r + gamma (1 - terminal) min_j Qbar_j(s', pibar(s') + epsilon)
    L_pi = (pi(s) - a)^2 / A - lambda Q_1(s, pi(s)),
           lambda = alpha / mean over the batch of |Q_1(s, pi(s))|

with A actions, in units of half their box. The policy and all slow copies move at every
second update only. At test time: pi(s).
"""

import jax
from jaxtyping import Array, Float

from manyhands.algos import delayed, skeletons
from manyhands.algos.actor_terms import scaled_value
from manyhands.algos.algorithm import Algorithm, Common, Given
from manyhands.algos.delayed import State
from manyhands.nn import critics
from manyhands.nn.actors import action_of, blurred, distance, uniform_mlp
from manyhands.nn.critics import values_of
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

LAYERS = 2


@options
class Options(Common):
    width: int = option(256, "Hidden units of the policy.", COUNT)
    critic_width: int = option(256, "Hidden units of the Q-functions.", COUNT)
    alpha: float = traced(2.5, "Weight of Q, which is in units of its size.", POSITIVE)
    policy_every: int = option(
        2, "Updates of the Q-functions for one of the policy and the targets.", COUNT
    )
    target_noise: float = traced(
        0.2, "Deviation of the noise on the target's actions.", NOT_NEGATIVE
    )
    target_noise_bound: float = traced(0.5, "Its largest size.", NOT_NEGATIVE)
    policy_rate: float = traced(3e-4, "Learning rate of the policy.", POSITIVE)
    critic_rate: float = traced(3e-4, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast all targets follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


PRESETS = {"default": Options(), "paper": Options(steps=1_000_000)}


# Start


def start(key: Key, given: Given, options: Options) -> State:
    key_policy, key_critic = jax.random.split(key)
    hidden = [options.width] * LAYERS
    policy = uniform_mlp(key_policy, [given.observations, *hidden, given.actions])
    inputs = given.observations + given.actions
    critic = critics.init(
        key_critic, inputs, options.critic_width, LAYERS, start=uniform_mlp
    )
    return delayed.started(policy, critic, names=("actor/q", "actor/distance"))


def fitted(given: Given, options: Options) -> Box:
    del options
    return given.box


# Losses; L_Q is in `nn/critics.py`


def critic_target(
    policy: MLP,
    target: MLP,
    batch: Batch,
    noise: Float[Array, "batch action"],
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """y of L_Q, by the slow copies."""
    sure = action_of(policy, batch.next_observations, box)
    action = blurred(sure, noise, config.target_noise, config.target_noise_bound, box)
    q = values_of(target, batch.next_observations, action).min(axis=0)
    return batch.rewards + config.discount * (1 - batch.terminals) * q


def policy_loss(
    policy: MLP, critic: MLP, batch: Batch, config: Options, box: Box
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi."""
    action = action_of(policy, batch.observations, box)
    first = jax.tree.map(lambda leaf: leaf[:1], critic)
    q = values_of(first, batch.observations, action)[0]
    far = distance(action, batch.actions, box).mean() / action.shape[-1]
    loss = far - scaled_value(q, "mean", config.alpha)
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
    y = critic_target(
        slow.target_policy.tree(), slow.target.tree(), batch, noise, config, box
    )
    return delayed.stepped(
        state, batch, y, policy_loss, lambda before, after: after, config, box
    )


TD3_BC = Algorithm(
    PRESETS,
    start,
    update,
    fitted,
    delayed.model,
    delayed.act,
    skeletons.mlp(LAYERS),
)
