"""The paper's behavior set: K policies, and which trajectory each one made.

Zhang and Kashima, "Behavior Estimation from Multi-Source Data for Offline Reinforcement
Learning" (AAAI 2023). Trajectory m has an embedding w_m, behavior k has e_k; its code
is z_m = argmax_k <e_k, w_m>, and its actions come from b(a|s; e_z). All embeddings are
normalised where they are used.

The networks and their start are those of the released code; `vq_learning.py` says how
they learn.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from manyhands.nn.critics import MEMBERS
from manyhands.nn.distributions import TanhNormal, inside
from manyhands.nn.networks import Head, Trunk, normalize, take_rows
from manyhands.types import Box, Key

EMBEDDING = 8
LOG_STD_BOUND = 10.0


class Policy(eqx.Module):
    """b(a|s; embedding) and the embeddings of codes (E) and trajectories (W)."""

    trunk: Trunk
    head: Head
    E: Float[Array, "code embedding"]
    W: Float[Array, "trajectory embedding"]


class Critic(eqx.Module):
    """Q(s, a; embedding), one per member, and the embeddings of codes (H)."""

    trunk: Trunk
    head: Head
    H: Float[Array, "*member code embedding"]


class Values(NamedTuple):
    critic: Critic  # with a leading member axis
    target: Critic


# Start


def init_policy(key, observations, actions, codes, trajectories, width) -> Policy:
    key_trunk, key_head, key_E, key_W = jax.random.split(key, 4)
    return Policy(
        Trunk.init(key_trunk, observations, width),
        Head.init(key_head, width, EMBEDDING, width, 2 * actions),
        _init_embedding(key_E, codes),
        _init_embedding(key_W, trajectories),
    )


def init_critics(key: Key, inputs: int, codes: int, width: int) -> Critic:
    keys = jax.random.split(key, MEMBERS)
    return jax.vmap(lambda key: _init_critic(key, inputs, codes, width))(keys)


def _init_critic(key, inputs, codes, width) -> Critic:
    key_trunk, key_head, key_H = jax.random.split(key, 3)
    return Critic(
        Trunk.init(key_trunk, inputs, width),
        Head.init(key_head, width, EMBEDDING, width, 1),
        _init_embedding(key_H, codes),
    )


def _init_embedding(key: Key, rows: int) -> Float[Array, "rows embedding"]:
    """Row by row, so that padding does not change the rows before it."""
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(rows))
    draw = lambda key: jax.random.uniform(key, (EMBEDDING,), minval=-0.05, maxval=0.05)  # noqa: E731
    return jax.vmap(draw)(keys)


# The model


def distribution(outputs: Float[Array, "*lead outputs"], box: Box) -> TanhNormal:
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    log_std = jnp.clip(log_std, -LOG_STD_BOUND, LOG_STD_BOUND)
    return TanhNormal(mean, log_std, box.center, box.scale)


def assign(
    policy: Policy, trajectory: Int[Array, " batch"], codes: Bool[Array, " code"]
) -> tuple[
    Float[Array, "batch embedding"],
    Float[Array, "batch embedding"],
    Float[Array, "batch code"],
]:
    """w_m, e_z and z (as one-hot) of each row: eq. posterior of the paper."""
    w = normalize(take_rows(policy.W, trajectory))
    E = normalize(policy.E)
    scores = jnp.where(codes, w @ E.T, -jnp.inf)
    z = jax.nn.one_hot(jnp.argmax(scores, axis=-1), len(codes))
    # A product instead of a gather: its gradient is a product too, not a scatter.
    e = jnp.matmul(z, E, precision=jax.lax.Precision.HIGHEST)
    return w, e, z


def values_of(
    critic: Critic,
    inputs: Float[Array, "batch inputs"],
    z: Float[Array, "batch code"],
) -> Float[Array, "member batch"]:
    def member(critic: Critic) -> Float[Array, " batch"]:
        h = jnp.matmul(z, normalize(critic.H), precision=jax.lax.Precision.HIGHEST)
        return critic.head(critic.trunk(inputs), h)[..., 0]

    return jax.vmap(member)(critic)


def log_prob(
    outputs: Float[Array, "*lead outputs"],
    actions: Float[Array, "*more action"],
    box: Box,
) -> Float[Array, "*lead"]:
    return distribution(outputs, box).log_prob(actions)


def sample(
    policy: Policy,
    observations: Float[Array, "batch state"],
    embeddings: Float[Array, "batch embedding"],
    noise: Float[Array, "batch action"],
    box: Box,
) -> Float[Array, "batch action"]:
    outputs = policy.head(policy.trunk(observations), embeddings)
    b = distribution(outputs, box)
    u = b.mean + jnp.exp(b.log_std) * noise
    return inside(box.center + box.scale * jnp.tanh(u), box)


def code_log_probs(
    policy: Policy,
    box: Box,
    observations: Float[Array, "row state"],
    actions: Float[Array, "row action"],
) -> Float[Array, "row code"]:
    """log b(a|s; e_k) for every code: states are encoded once, decoded K times."""
    features = policy.trunk(observations)[:, None]
    outputs = policy.head(features, normalize(policy.E))  # [row, code, 2 A]
    return log_prob(outputs, inside(actions, box)[:, None], box)


def sample_codes(
    policy: Policy,
    box: Box,
    observations: Float[Array, "row state"],
    codes: Int[Array, " row"],
    key: Key,
) -> Float[Array, "row action"]:
    noise = jax.random.normal(key, (len(observations), len(box.low)))
    return sample(policy, observations, normalize(policy.E)[codes], noise, box)
