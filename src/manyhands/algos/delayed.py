"""TD3's updates: Q-functions at every one, policy and slow copies at some only."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.nn.actors import action_of
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import Critic, critic_loss
from manyhands.nn.networks import MLP
from manyhands.nn.optimizer import Trained, polyak
from manyhands.types import Batch, Box, Keys, Metrics


class Delayed(NamedTuple):
    """What only some updates change."""

    policy: Trained  # of an MLP
    target_policy: Bundle
    target: Bundle  # of the critic
    metrics: Metrics  # of the last update that changed the policy


class State(NamedTuple):
    critic: Trained  # of a Critic with a leading member axis
    delayed: Delayed


def started(policy: MLP, critic: Critic, names: tuple[str, ...]) -> State:
    """Targets are copies; `names` are those of the policy's metrics."""
    # Copy: a fleet donates these buffers, and XLA refuses to donate one twice.
    slow_policy, slow_critic = jax.tree.map(jnp.copy, (policy, critic))
    delayed = Delayed(
        Trained.of(policy),
        Bundle.of(slow_policy),
        Bundle.of(slow_critic),
        {name: jnp.zeros(()) for name in names},
    )
    return State(Trained.of(critic), delayed)


def stepped(
    state: State,
    batch: Batch,
    y: Float[Array, " batch"],
    policy_loss: Callable[..., tuple[Array, Metrics]],
    followed: Callable[[Trained, Trained], Trained],
    config: Any,
    box: Box,
) -> tuple[State, Metrics]:
    """Q-functions, then, where it is due, policy and slow copies.

    Args:
        policy_loss: policy, critic, batch, config, box -> loss, metrics
        followed: the policy before and after its step -> the one that its copy follows
    """
    critic, metrics = state.critic.step(critic_loss, config.critic_rate, batch, y)

    def policy_step(slow: Delayed) -> Delayed:
        policy, metrics = slow.policy.step(
            policy_loss, config.policy_rate, critic.tree(), batch, config, box
        )
        ahead = followed(slow.policy, policy)
        return Delayed(
            policy,
            polyak(slow.target_policy, ahead, config.target_rate),
            polyak(slow.target, critic, config.target_rate),
            metrics,
        )

    # One replica skips the work; replicas that are mapped together select its result.
    due = state.critic.steps % config.policy_every == 0
    slow = jax.lax.cond(due, policy_step, lambda slow: slow, state.delayed)
    return State(critic, slow), metrics | slow.metrics


# Acting


def model(state: State, fitted: Any) -> MLP:
    del fitted
    return state.delayed.policy.tree()


def act(
    net: MLP, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    del keys
    return action_of(net, observations, box)
