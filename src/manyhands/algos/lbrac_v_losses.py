"""LBRAC-v's networks and losses: the equations of `lbrac_v.py`, one function each."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from manyhands.algos.actor_terms import value_within_reach
from manyhands.algos.lbrac_v_options import Options
from manyhands.behavior import vq, vq_learning
from manyhands.nn.critics import for_members, squared_error
from manyhands.nn.distributions import TanhNormal, gaussian_kl, inside
from manyhands.nn.networks import Head, Trunk, normalize
from manyhands.types import Batch, Box, Metrics


class Policy(eqx.Module):
    """pi(a|s) = b(a|s; e_pi); the behaviors' embeddings where these go on learning."""

    trunk: Trunk
    head: Head
    e_pi: Float[Array, " embedding"]
    E: Float[Array, "code embedding"] | None
    W: Float[Array, "trajectory embedding"] | None


class Critic(eqx.Module):
    """Q(s, a; h_pi), one per member, and where they go on learning Q(s, a; h_k)."""

    trunk: Trunk
    head: Head
    h_pi: Float[Array, "*member embedding"]
    H: Float[Array, "*member code embedding"] | None


class Fitted(NamedTuple):
    box: Box
    codes: Bool[Array, " code"]  # false: padding
    best: Float[Array, " embedding"]  # e_k*, as fitted
    behaviors: vq.Policy | None  # None: they learn with pi


# The model


def behaviors_of(policy: Policy, fitted: Fitted) -> vq.Policy:
    if fitted.behaviors is not None:
        return fitted.behaviors
    assert policy.E is not None
    assert policy.W is not None
    return vq.Policy(policy.trunk, policy.head, policy.E, policy.W)


def pi_of(
    policy: Policy, observations: Float[Array, "*lead state"], box: Box
) -> TanhNormal:
    outputs = policy.head(policy.trunk(observations), normalize(policy.e_pi))
    return vq.distribution(outputs, box)


class Decoded(NamedTuple):
    """In some states: pi, and the behavior that it is held to."""

    pi: TanhNormal
    b: TanhNormal


def decode(
    policy: Policy,
    observations: Float[Array, "batch state"],
    e: Float[Array, "*batch embedding"],
    fitted: Fitted,
) -> Decoded:
    """States are encoded once where networks are shared."""
    if fitted.behaviors is not None:
        b = fitted.behaviors
        outputs = b.head(b.trunk(observations), e)
        return Decoded(
            pi_of(policy, observations, fitted.box),
            vq.distribution(outputs, fitted.box),
        )
    e_pi = jnp.broadcast_to(normalize(policy.e_pi), e.shape)
    outputs = policy.head(policy.trunk(observations), jnp.stack([e_pi, e]))
    pi, b = (vq.distribution(part, fitted.box) for part in outputs)
    return Decoded(pi, b)


def values_of_pi(
    critic: Critic,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
) -> Float[Array, "member batch"]:
    inputs = for_members(critic, jnp.concatenate([observations, actions], axis=-1))

    def member(
        critic: Critic, inputs: Float[Array, "batch inputs"]
    ) -> Float[Array, " batch"]:
        return critic.head(critic.trunk(inputs), normalize(critic.h_pi))[..., 0]

    return jax.vmap(member)(critic, inputs)


# Losses: the actions of their batches are off the bounds already (`inside`)


class Noise(NamedTuple):
    """Standard normal numbers: one action of pi and of b, samples for D."""

    pi: Float[Array, "batch action"]
    b: Float[Array, "batch action"]
    divergence: Float[Array, "sample batch action"]


def divergence(
    decoded: Decoded,
    noise: Float[Array, "sample batch action"],
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """D. The released code takes both log-probabilities at the clipped action."""
    pi, b = decoded
    if config.divergence == "exact":
        return gaussian_kl(pi, b)
    action = inside(jax.vmap(lambda n: pi.sample_with(n)[0])(noise), box)
    return jax.nn.relu((pi.log_prob(action) - b.log_prob(action)).mean(axis=0))


def critic_target(
    policy: Policy,
    target: Critic,
    batch: Batch,
    e: Float[Array, "*batch embedding"],  # of the behavior, in each row or in all
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, " batch"], Decoded]:
    """y of L_critic."""
    decoded = decode(policy, batch.next_observations, e, fitted)
    action = inside(decoded.pi.sample_with(noise.pi)[0], fitted.box)
    q = values_of_pi(target, batch.next_observations, action).min(axis=0)
    d = divergence(decoded, noise.divergence, config, fitted.box)
    future = q - config.value_penalty * config.beta * d
    y = batch.rewards + config.discount * (1 - batch.terminals) * future
    return y, decoded


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
    behaviors: tuple[Float[Array, "batch code"], Float[Array, " batch"]] | None,
) -> tuple[Float[Array, ""], Metrics]:
    """L_critic, and L_Q where behaviors (their z and y) learn too."""
    q = values_of_pi(critic, batch.observations, batch.actions)
    loss = squared_error(q, y)
    metrics = {"critic/loss": loss, "critic/q": q.mean(), "critic/target": y.mean()}
    if behaviors is None:
        return loss, metrics
    more, _ = vq_learning.critic_loss(of_behaviors(critic), batch, *behaviors)
    return loss + more, metrics | {"critic/loss_of_behaviors": more}


def policy_loss(
    policy: Policy,
    critic: Critic,
    batch: Batch,
    e: Float[Array, "*batch embedding"],  # of the behavior, in each row or in all
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_actor, and L_rec + alpha L_com where behaviors learn too."""
    if fitted.behaviors is not None:
        decoded = decode(policy, batch.observations, e, fitted)
        return actor_loss(decoded, critic, batch, noise, config, fitted.box)
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
        value, q = value_within_reach(
            q_of, action, decoded.b, config.value_weight, config.reach
        )
    d = divergence(decoded, noise.divergence, config, box).mean()
    loss = config.beta * d - value
    return loss, {"actor/divergence": d, "actor/q": q.mean()}
