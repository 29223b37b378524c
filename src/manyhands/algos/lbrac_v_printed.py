"""LBRAC-v as printed: pi and all behaviors share their networks and learn together.

Zhang and Kashima (AAAI 2023), Algorithm 2; D, y and L_actor are those of `lbrac_v.py`.
Each update also minimises L_rec + alpha L_com and L_Q of the behavior set (`behavior/
vq_learning.py`), so that

    L_policies = L_actor + L_rec + alpha L_com    for f_s, f_p, W, E and e_pi
    L_critics  = L_critic + L_Q                   for f_sa, f_Q, H and h_pi

In the released code gradients of D reach the behaviors (`pull`).
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import lbrac_v
from manyhands.algos.algorithm import Algorithm, Given
from manyhands.algos.clone import Model
from manyhands.algos.lbrac_v import (
    Decoded,
    Noise,
    State,
    actor_loss,
    critic_target,
    started,
)
from manyhands.algos.starting_sets import Start, first_values
from manyhands.behavior import vq, vq_learning
from manyhands.behavior.vq_learning import Fitted
from manyhands.errors import UserError
from manyhands.nn.distributions import inside
from manyhands.nn.networks import normalize
from manyhands.nn.optimizer import polyak
from manyhands.options import NOT_NEGATIVE, option, options, traced
from manyhands.types import Batch, Box, Key, Metrics


@options
class Options(lbrac_v.Options):
    joint: bool = option(
        False,
        "Train pi and all behaviors together in shared networks, as printed; else the "
        "behaviors stay and pi has networks of its own.",
    )
    pull: bool = option(
        False,
        "Let the divergence move the behaviors too, as printed (joint only).",
    )
    commitment: float = traced(
        0.1, "Weight alpha of the commitment loss (joint only).", NOT_NEGATIVE
    )


PAPER = Options(
    steps=500_000,
    standardise=False,
    behavior_steps=500_000,
    joint=True,
    pull=True,
    divergence="sampled",
    value_scale="none",
    held_to="own",
    warm_up=0,
    critic_rate=1e-4,
    target_rate=0.001,
)
PRESETS = {"default": Options(), "paper": PAPER}


class Policy(lbrac_v.Policy, vq.Policy):
    """pi(a|s) = b(a|s; e_pi) in the networks of the behaviors."""


class Critic(lbrac_v.Critic, vq.Critic):
    """Q(s, a; h_pi) in the networks of the behaviors' Q-functions."""


# Start


def start(key: Key, given: Given, options: Options) -> State:
    if options.held_to == "best":
        raise UserError("held_to: expected own where joint is true, got best")
    found: Start = given.behavior
    b, best = found.behaviors, found.best
    critic, target = (
        Critic(q.trunk, q.head, H=q.H, h_pi=q.H[:, best])
        for q in first_values(key, given, options.critic_width)
    )
    policy = Policy(b.trunk, b.head, E=b.E, W=b.W, e_pi=b.E[best])
    return started(policy, critic, target)


def fitted(given: Given, options: Options) -> Fitted:
    del options
    return Fitted(given.box, jnp.asarray(given.behavior.codes))


# The model


def decode(
    policy: Policy,
    observations: Float[Array, "batch state"],
    e: Float[Array, "batch embedding"],  # of b
    box: Box,
) -> Decoded:
    """States are encoded once."""
    e_pi = jnp.broadcast_to(normalize(policy.e_pi), e.shape)
    outputs = policy.head(policy.trunk(observations), jnp.stack([e_pi, e]))
    pi, b = (vq.distribution(part, box) for part in outputs)
    return Decoded(pi, b)


# Losses: the actions of their batches are off the bounds already (`inside`)


def behavior_target(
    target: Critic,
    following: Decoded,  # in s'
    batch: Batch,
    z: Float[Array, "batch code"],
    noise: Float[Array, "batch action"],
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    action = inside(following.b.sample_with(noise)[0], box)
    inputs = jnp.concatenate([batch.next_observations, action], axis=-1)
    q = vq.values_of(target, inputs, z).min(axis=0)
    return batch.rewards + config.discount * (1 - batch.terminals) * q


def critic_loss(
    critic: Critic,
    batch: Batch,
    y: Float[Array, " batch"],
    z: Float[Array, "batch code"],
    y_b: Float[Array, " batch"],
) -> tuple[Float[Array, ""], Metrics]:
    """L_critic + L_Q."""
    of_pi, metrics = lbrac_v.critic_loss(critic, batch, y)
    of_behaviors, _ = vq_learning.critic_loss(critic, batch, z, y_b)
    metrics["critic/loss_of_behaviors"] = of_behaviors
    return of_pi + of_behaviors, metrics


def policy_loss(
    policy: Policy,
    critic: Critic,
    batch: Batch,
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_actor + L_rec + alpha L_com."""
    w, e, _ = vq.assign(policy, batch.trajectory, fitted.codes)
    e_pi = jnp.broadcast_to(normalize(policy.e_pi), e.shape)
    outputs = policy.head(policy.trunk(batch.observations), jnp.stack([e_pi, e, w]))
    pi, b, of_trajectory = (vq.distribution(part, fitted.box) for part in outputs)
    reconstruction = -(
        b.log_prob(batch.actions).mean() + of_trajectory.log_prob(batch.actions).mean()
    )
    commitment = 1 - jnp.sum(w * e, axis=-1).mean()
    held_to = b if config.pull else jax.lax.stop_gradient(b)
    weight, box = config.value_weight, fitted.box
    loss, metrics = actor_loss(
        Decoded(pi, held_to), critic, batch, noise, weight, config, box
    )
    metrics["behavior/reconstruction"] = reconstruction
    return loss + reconstruction + config.commitment * commitment, metrics


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    samples = config.samples if config.divergence == "sampled" else 0
    noise = jax.random.normal(key, (2, 2 + samples, *batch.actions.shape))
    following, now = (Noise(rows[0], rows[2:]) for rows in noise)
    return update_with(state, batch, now, following, noise[0, 1], config, fitted)


def update_with(
    state: State,
    batch: Batch,
    now: Noise,
    following: Noise,
    of_b: Float[Array, "batch action"],
    config: Options,
    fitted: Fitted,
) -> tuple[State, Metrics]:
    """Algorithm 2 with its random numbers given: for s, for s', for a' ~ b(.|s').

    In the released code's order: targets, critics, then the policy by the new critics.
    """
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    policy, box = state.policy.tree(), fitted.box
    _, e, z = vq.assign(policy, batch.trajectory, fitted.codes)

    # Targets
    moved = polyak(state.target, state.critic, config.target_rate)
    target = moved.tree()
    then = decode(policy, batch.next_observations, e, box)
    y = critic_target(target, then, batch, following, config, box)
    y_b = behavior_target(target, then, batch, z, of_b, config, box)

    # Critics
    critic, metrics = state.critic.step(
        critic_loss, config.critic_rate, batch, y, z, y_b
    )

    # Policies
    rate = (state.policy.steps >= config.warm_up) * config.policy_rate
    policies, more = state.policy.step(
        policy_loss, rate, critic.tree(), batch, now, config, fitted
    )
    return State(policies, critic, moved), metrics | more


# Acting


def model(state: State, fitted: Fitted) -> Model:
    del fitted
    policy = state.policy.tree()
    return Model(policy.trunk, policy.head, policy.e_pi, policy.E, policy.W)


# Registration: `joint` chooses between this file and `lbrac_v.py`


PRINTED = replace(
    lbrac_v.LBRAC_V, start=start, update=update, fitted=fitted, model=model
)


def variant(joint: bool) -> Algorithm:
    return PRINTED if joint else lbrac_v.LBRAC_V


LBRAC_V = replace(
    PRINTED,
    presets=PRESETS,
    start=lambda key, given, o: variant(o.joint).start(key, given, o),
    update=lambda state, batch, key, config, fitted: variant(config.joint).update(
        state, batch, key, config, fitted
    ),
    fitted=lambda given, o: variant(o.joint).fitted(given, o),
    model=lambda state, fitted: variant(isinstance(fitted, Fitted)).model(
        state, fitted
    ),
)
