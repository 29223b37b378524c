"""LBRAC-v's networks and losses: the equations of `lbrac_v.py`, one function each.

These are for behaviors that stay as they were fitted; where they learn with pi, as
printed, see `lbrac_v_joint.py`.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from manyhands.algos.actor_terms import value_by_slope, value_within_reach
from manyhands.algos.lbrac_v_options import Options
from manyhands.behavior import vq
from manyhands.nn import adam
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import for_members, squared_error
from manyhands.nn.distributions import TanhNormal, gaussian_kl, inside
from manyhands.nn.networks import Head, Learning, Trunk, normalize
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
    share: Float[Array, ""]  # of the weight of Q that counts
    behaviors: vq.Policy | None  # None: they learn with pi


class State(NamedTuple):
    policy: Bundle  # of a Policy
    policy_adam: adam.Adam
    critic: Bundle  # of a Critic with a leading member axis
    critic_adam: adam.Adam
    target: Bundle


# The model


def behaviors_of(policy: Policy, fitted: Fitted) -> vq.Policy:
    if fitted.behaviors is not None:
        return fitted.behaviors
    assert policy.E is not None
    assert policy.W is not None
    return vq.Policy(policy.trunk, policy.head, policy.E, policy.W)


class Decoded(NamedTuple):
    """In some states: pi, and the behavior that it is held to."""

    pi: TanhNormal
    b: TanhNormal


def decode(
    policy: Policy,
    observations: Float[Array, "row state"],
    e: Float[Array, "*row embedding"],  # of the behavior, in each row or in all
    fitted: Fitted,
    learning: Learning | None = None,
) -> Decoded:
    assert fitted.behaviors is not None
    features = policy.trunk(observations, learning)
    outputs = policy.head(features, normalize(policy.e_pi), learning)
    b = fitted.behaviors
    return Decoded(
        vq.distribution(outputs, fitted.box),
        vq.distribution(b.head(b.trunk(observations), e), fitted.box),
    )


def values_of_pi(
    critic: Critic,
    observations: Float[Array, "row state"],
    actions: Float[Array, "row action"],
    learning: Learning | None = None,
) -> Float[Array, "member row"]:
    inputs = for_members(critic, jnp.concatenate([observations, actions], axis=-1))

    def member(
        critic: Critic, inputs: Float[Array, "row inputs"]
    ) -> Float[Array, " row"]:
        features = critic.trunk(inputs, learning)
        return critic.head(features, normalize(critic.h_pi), learning)[..., 0]

    return jax.vmap(member)(critic, inputs)


# Losses: the actions of their batches are off the bounds already (`inside`)


def divergence(
    decoded: Decoded,
    noise: Float[Array, "sample row action"],
    config: Options,
    box: Box,
) -> Float[Array, " row"]:
    """D. The released code takes both log-probabilities at the clipped action."""
    pi, b = decoded
    if config.divergence == "exact":
        return gaussian_kl(pi, b)
    action = inside(jax.vmap(lambda n: pi.sample_with(n)[0])(noise), box)
    return jax.nn.relu((pi.log_prob(action) - b.log_prob(action)).mean(axis=0))


def critic_target(
    target: Critic,
    batch: Batch,
    action: Float[Array, "batch action"],  # of pi in s'
    d: Float[Array, " batch"],  # D(s')
    config: Options,
) -> Float[Array, " batch"]:
    """y of L_critic."""
    q = values_of_pi(target, batch.next_observations, action).min(axis=0)
    future = q - config.value_penalty * config.beta * d
    return batch.rewards + config.discount * (1 - batch.terminals) * future


class Judged(NamedTuple):
    """By the critics: pi's actions, and themselves."""

    q: Float[Array, " batch"]  # min_j Q_j(s, a~; h_pi)
    slope: Float[Array, "batch action"]  # its gradient in a~
    gradient: Critic  # of L_critic


def judge(
    critic: Critic,
    batch: Batch,
    y: Float[Array, " batch"],
    action: Float[Array, "batch action"],  # of pi in s
) -> tuple[Judged, Metrics]:
    """L_critic's gradient, and Q at pi's actions with its slope, in one pass.

    Half of its rows are logged actions, from which the critics learn.
    """
    many = len(y)
    states = jnp.concatenate([batch.observations] * 2)

    def values(critic, action) -> Float[Array, "member row"]:
        actions = jnp.concatenate([batch.actions, action])
        return values_of_pi(critic, states, actions, Learning(weights=many))

    def losses(q: Float[Array, "member row"]) -> tuple[Float[Array, ""], tuple]:
        logged, of_pi = q[:, :many], q[:, many:].min(axis=0)
        loss = squared_error(logged, y)
        return loss + of_pi.sum(), (of_pi, loss, logged.mean())

    q, pull = jax.vjp(values, critic, action)
    by_value, (of_pi, loss, mean) = jax.grad(losses, has_aux=True)(q)
    gradient, slope = pull(by_value)
    metrics = {"critic/loss": loss, "critic/q": mean, "critic/target": y.mean()}
    return Judged(of_pi, slope, gradient), metrics


class Noise(NamedTuple):
    """Standard normal numbers for s, then for s': an action of pi, samples for D."""

    action: Float[Array, "row action"]
    divergence: Float[Array, "sample row action"]


def policy_loss(
    policy: Policy,
    critic: Critic,
    target: Critic,
    batch: Batch,
    e: Float[Array, "*batch embedding"],  # of the behavior, in each row or in all
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, ""], tuple[Critic, Metrics]]:
    """L_actor, and the gradient of L_critic, which has the same passes."""
    many, box = len(batch.rewards), fitted.box
    states = jnp.concatenate([batch.observations, batch.next_observations])
    if e.ndim > 1:
        e = jnp.concatenate([e, e])
    decoded = decode(policy, states, e, fitted, Learning(many, many))
    action = inside(decoded.pi.sample_with(noise.action)[0], box)
    d = divergence(decoded, noise.divergence, config, box)
    stay = jax.lax.stop_gradient
    y = critic_target(target, batch, stay(action[many:]), stay(d[many:]), config)
    action, d = action[:many], d[:many].mean()
    judged, metrics = judge(critic, batch, y, stay(action))
    about = judged.q, judged.slope, action
    if config.value_scale == "none":
        value = value_by_slope(*about)
    else:
        b = jax.tree.map(lambda x: x[:many] if x.ndim > 1 else x, decoded.b)
        weight = fitted.share * config.value_weight
        value = value_within_reach(*about, b, weight, config.reach)
    metrics |= {"actor/divergence": d, "actor/q": judged.q.mean()}
    return config.beta * d - value, (judged.gradient, metrics)
