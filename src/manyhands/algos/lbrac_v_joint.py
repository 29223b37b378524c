"""LBRAC-v as printed: pi and all behaviors share their networks and learn together.

Each update also minimises L_rec + alpha L_com and L_Q of the behavior set (`behavior/
vq_learning.py`). The released code's order: targets, the critics, then the policy by
the critics as they are then.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos.actor_terms import value_within_reach, with_slope
from manyhands.algos.lbrac_v_losses import (
    Critic,
    Decoded,
    Fitted,
    Policy,
    State,
    behaviors_of,
    divergence,
    values_of_pi,
)
from manyhands.algos.lbrac_v_losses import critic_target as target_of
from manyhands.algos.lbrac_v_options import Options
from manyhands.behavior import vq, vq_learning
from manyhands.nn import adam
from manyhands.nn.critics import squared_error
from manyhands.nn.distributions import inside
from manyhands.nn.networks import normalize
from manyhands.types import Batch, Box, Key, Metrics


class Noise(NamedTuple):
    """Standard normal numbers: one action of pi and of b, samples for D."""

    pi: Float[Array, "batch action"]
    b: Float[Array, "batch action"]
    divergence: Float[Array, "sample batch action"]


# Losses: the actions of their batches are off the bounds already (`inside`)


def decode(
    policy: Policy,
    observations: Float[Array, "batch state"],
    e: Float[Array, "batch embedding"],
    box: Box,
) -> Decoded:
    """States are encoded once."""
    e_pi = jnp.broadcast_to(normalize(policy.e_pi), e.shape)
    outputs = policy.head(policy.trunk(observations), jnp.stack([e_pi, e]))
    pi, b = (vq.distribution(part, box) for part in outputs)
    return Decoded(pi, b)


def critic_target(
    policy: Policy,
    target: Critic,
    batch: Batch,
    e: Float[Array, "batch embedding"],
    noise: Noise,
    config: Options,
    box: Box,
) -> tuple[Float[Array, " batch"], Decoded]:
    """y of L_critic."""
    decoded = decode(policy, batch.next_observations, e, box)
    action = inside(decoded.pi.sample_with(noise.pi)[0], box)
    d = divergence(decoded, noise.divergence, config, box)
    return target_of(target, batch, action, d, config), decoded


def behavior_target(
    decoded: Decoded,
    target: Critic,
    batch: Batch,
    z: Float[Array, "batch code"],
    noise: Noise,
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    action = inside(decoded.b.sample_with(noise.b)[0], box)
    inputs = jnp.concatenate([batch.next_observations, action], axis=-1)
    q = vq.values_of(of_behaviors(target), inputs, z).min(axis=0)
    return batch.rewards + config.discount * (1 - batch.terminals) * q


def of_behaviors(critic: Critic) -> vq.Critic:
    assert critic.H is not None
    return vq.Critic(critic.trunk, critic.head, critic.H)


def critic_loss(
    critic: Critic,
    batch: Batch,
    y: Float[Array, " batch"],
    behaviors: tuple[Float[Array, "batch code"], Float[Array, " batch"]],  # z and y
) -> tuple[Float[Array, ""], Metrics]:
    """L_critic + L_Q."""
    q = values_of_pi(critic, batch.observations, batch.actions)
    loss = squared_error(q, y)
    metrics = {"critic/loss": loss, "critic/q": q.mean(), "critic/target": y.mean()}
    more, _ = vq_learning.critic_loss(of_behaviors(critic), batch, *behaviors)
    return loss + more, metrics | {"critic/loss_of_behaviors": more}


def policy_loss(
    policy: Policy,
    critic: Critic,
    batch: Batch,
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_actor + L_rec + alpha L_com."""
    w, e, _ = vq.assign(behaviors_of(policy, fitted), batch.trajectory, fitted.codes)
    e_pi = jnp.broadcast_to(normalize(policy.e_pi), e.shape)
    outputs = policy.head(policy.trunk(batch.observations), jnp.stack([e_pi, e, w]))
    pi, b, of_trajectory = (vq.distribution(part, fitted.box) for part in outputs)
    reconstruction = -(
        b.log_prob(batch.actions).mean() + of_trajectory.log_prob(batch.actions).mean()
    )
    commitment = 1 - jnp.sum(w * e, axis=-1).mean()
    near = b if config.pull else jax.lax.stop_gradient(b)
    loss, metrics = actor_loss(
        Decoded(pi, near), critic, batch, noise, config, fitted.box
    )
    metrics["behavior/reconstruction"] = reconstruction
    return loss + reconstruction + config.commitment * commitment, metrics


def actor_loss(
    decoded: Decoded,
    critic: Critic,
    batch: Batch,
    noise: Noise,
    config: Options,
    box: Box,
) -> tuple[Float[Array, ""], Metrics]:
    """L_actor."""
    action = inside(decoded.pi.sample_with(noise.pi)[0], box)

    def q_of(action: Float[Array, "batch action"]) -> Float[Array, " batch"]:
        return values_of_pi(critic, batch.observations, action).min(axis=0)

    if config.value_scale == "none":
        q = q_of(action)
        value = q.mean()
    else:
        q, slope = with_slope(q_of, jax.lax.stop_gradient(action))
        weights = config.value_weight, config.reach
        value = value_within_reach(q, slope, action, decoded.b, *weights)
    d = divergence(decoded, noise.divergence, config, box).mean()
    loss = config.beta * d - value
    return loss, {"actor/divergence": d, "actor/q": q.mean()}


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    samples = config.samples if config.divergence == "sampled" else 0
    noise = jax.random.normal(key, (2, 2 + samples, *batch.actions.shape))
    following, now = (Noise(rows[0], rows[1], rows[2:]) for rows in noise)
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
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    policy = state.policy.tree()
    moved = adam.polyak(state.target, state.critic, config.target_rate)
    target = moved.tree()
    _, e, z = vq.assign(behaviors_of(policy, fitted), batch.trajectory, fitted.codes)
    box = fitted.box
    y, decoded = critic_target(policy, target, batch, e, following, config, box)
    y_b = behavior_target(decoded, target, batch, z, following, config, box)
    gradient, metrics = jax.grad(critic_loss, has_aux=True)(
        state.critic.tree(), batch, y, (z, y_b)
    )
    critic, critic_adam = adam.step(
        state.critic, gradient, state.critic_adam, config.critic_rate
    )
    gradient, more = jax.grad(policy_loss, has_aux=True)(
        policy, critic.tree(), batch, now, config, fitted
    )
    learning = state.policy_adam.steps >= config.warm_up
    new_policy, policy_adam = adam.step(
        state.policy, gradient, state.policy_adam, learning * config.policy_rate
    )
    return State(new_policy, policy_adam, critic, critic_adam, moved), metrics | more
