"""TD3's updates: Q-functions at every one, policy and slow copies at some only."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos.critic_terms import critic_loss
from manyhands.nn import adam
from manyhands.nn.actors import action_of
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import Critic
from manyhands.nn.networks import MLP
from manyhands.types import Batch, Box, Keys, Metrics


class Delayed(NamedTuple):
    """What only some updates change."""

    policy: Bundle  # of an MLP
    policy_adam: adam.Adam
    target_policy: Bundle
    target: Bundle  # of the critic
    metrics: Metrics  # of the last update that changed the policy


class State(NamedTuple):
    critic: Bundle  # of a Critic with a leading member axis
    critic_adam: adam.Adam
    delayed: Delayed


def started(policy: MLP, critic: Critic, names: tuple[str, ...]) -> State:
    """Targets are copies; `names` are those of the policy's metrics."""
    fast, slow = Bundle.of(critic), Bundle.of(policy)
    delayed = Delayed(
        slow,
        adam.init(slow),
        # Not the same arrays twice: a fleet gives its state up.
        jax.tree.map(jnp.copy, slow),
        jax.tree.map(jnp.copy, fast),
        {name: jnp.zeros(()) for name in names},
    )
    return State(fast, adam.init(fast), delayed)


def stepped(
    state: State,
    batch: Batch,
    y: Float[Array, " batch"],
    policy_loss: Callable[..., tuple[Array, Metrics]],
    followed: Callable[[Bundle, Bundle], Bundle],
    config: Any,
    box: Box,
) -> tuple[State, Metrics]:
    """Q-functions, then, where it is due, policy and slow copies.

    Args:
        policy_loss: policy, critic, batch, config, box -> loss, metrics
        followed: the policy before and after its step -> the one that its copy follows
    """
    gradient, metrics = jax.grad(critic_loss, has_aux=True)(
        state.critic.tree(), batch, y
    )
    critic, critic_adam = adam.step(
        state.critic, gradient, state.critic_adam, config.critic_rate
    )

    def policy_step(slow: Delayed) -> Delayed:
        gradient, metrics = jax.grad(policy_loss, has_aux=True)(
            slow.policy.tree(), critic.tree(), batch, config, box
        )
        policy, moments = adam.step(
            slow.policy, gradient, slow.policy_adam, config.policy_rate
        )
        ahead = followed(slow.policy, policy)
        return Delayed(
            policy,
            moments,
            adam.polyak(slow.target_policy, ahead, config.target_rate),
            adam.polyak(slow.target, critic, config.target_rate),
            metrics,
        )

    # One replica skips the work; replicas that are mapped together select its result.
    due = state.critic_adam.steps % config.policy_every == 0
    slow = jax.lax.cond(due, policy_step, lambda slow: slow, state.delayed)
    return State(critic, critic_adam, slow), metrics | slow.metrics


# Acting


def model(state: State, fitted: Any) -> MLP:
    del fitted
    return state.delayed.policy.tree()


def act(
    net: MLP, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    del keys
    return action_of(net, observations, box)
