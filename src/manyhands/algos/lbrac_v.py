"""LBRAC-v: stay close to the behavior that made the trajectory, not to all at once.

Zhang and Kashima, "Behavior Estimation from Multi-Source Data for Offline Reinforcement
Learning" (AAAI 2023), Algorithm 2. It starts from a fitted behavior set (`behavior/
vq.py`): pi is the best behavior k*, judged by the returns of its trajectories, with an
embedding of its own, e_pi = e_k*, and so is its Q-function, h_pi = h_k*. Per
transition of trajectory m with the code z, a' ~ pi(.|s'), a~ ~ pi(.|s),

    D(s)     = mean over a ~ pi(.|s) of log pi(a|s) - log b(a|s; e_z), at least 0
    L_critic = sum_j (Q_j(s, a; h_pi) - y)^2,
               y = r + gamma (1 - terminal) (min_j Qbar_j(s', a'; h_pi) - beta D(s'))
    L_actor  = beta D(s) - min_j Q_j(s, a~; h_pi)

As printed, the networks of pi are those of the behaviors, and these go on learning:
that is `lbrac_v_printed.py` (`--preset paper`). Here the behaviors stay as they were
fitted and pi has networks of its own. By default pi is held to the best behavior, D is
exact, and Q is in units of its size; docs/lbrac_v.md says what each of these changes
brings. At test time: the mode.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from manyhands.algos.actor_terms import value_within_reach
from manyhands.algos.algorithm import Algorithm, Common, Given, Need
from manyhands.algos.clone import (
    Model,
    act,
    embeddings,
    set_changes,
    skeleton,
    unpadded,
)
from manyhands.algos.starting_sets import Start, first_values
from manyhands.behavior import vq
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import for_members, squared_error
from manyhands.nn.distributions import TanhNormal, gaussian_kl, inside
from manyhands.nn.networks import Head, Trunk, normalize
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
    behavior_steps: int = option(
        0,
        "Updates of the behavior set; 0: as many as `fit` takes by default.",
        NOT_NEGATIVE,
    )
    divergence: Literal["exact", "sampled"] = option(
        "exact", "KL of the Gaussians before the tanh, or by samples as printed."
    )
    samples: int = option(10, "Samples for the divergence.", COUNT)
    value_scale: Literal["mean", "none"] = option(
        "mean", "What Q is divided by in the policy's loss: its mean size, or 1."
    )
    held_to: Literal["best", "own"] = option(
        "best",
        "Which behavior pi is held to: the best (not joint), or the one that made the "
        "trajectory, as printed.",
    )
    critic_width: int = option(300, "Hidden units of the Q-functions.", COUNT)
    warm_up: int = option(
        10_000,
        "Updates of the Q-functions alone, while pi is still the best behavior; by "
        "default at most a fifth of the steps given.",
        NOT_NEGATIVE,
    )
    beta: float = traced(1.0, "Weight of the divergence.", NOT_NEGATIVE)
    value_penalty: float = traced(
        1.0, "Weight of beta D in the Q-functions' target.", NOT_NEGATIVE
    )
    value_weight: float = traced(
        400.0, "Weight of Q in the policy's loss, where it is divided.", NOT_NEGATIVE
    )
    value_share: bool = option(
        True,
        "Take that weight times the share of the data that the behavior made to which "
        "pi is held (the best): elsewhere Q knows less of what pi does.",
    )
    reach: float = traced(
        0.5,
        "How far Q may move pi, in deviations of the behavior, where it is divided; "
        "for a divergence of reach^2 / 2 nats.",
        POSITIVE,
    )
    policy_rate: float = traced(5e-5, "Learning rate of the policy.", POSITIVE)
    critic_rate: float = traced(3e-4, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast target Q-functions follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


PRESETS = {"default": Options()}


class Policy(eqx.Module):
    """pi(a|s) = b(a|s; e_pi)."""

    trunk: Trunk
    head: Head
    e_pi: Float[Array, " embedding"]


class Critic(eqx.Module):
    """Q(s, a; h_pi), one per member."""

    trunk: Trunk
    head: Head
    h_pi: Float[Array, "*member embedding"]


class State(NamedTuple):
    policy: Trained  # of a Policy
    critic: Trained  # of a Critic with a leading member axis
    target: Bundle


class Fitted(NamedTuple):
    box: Box
    codes: Bool[Array, " code"]  # false: padding
    behaviors: vq.Policy
    best: Float[Array, " embedding"]  # e_k*, normalized
    share: Float[Array, ""]  # of `value_weight` that counts


# Start


def start(key: Key, given: Given, options: Options) -> State:
    found: Start = given.behavior
    b = found.behaviors
    critic, target = (
        Critic(q.trunk, q.head, q.H[:, found.best])
        for q in first_values(key, given, options.critic_width)
    )
    return started(Policy(b.trunk, b.head, b.E[found.best]), critic, target)


def started(policy: Policy, critic: Critic, target: Critic) -> State:
    state = State(Trained.of(policy), Trained.of(critic), Bundle.of(target))
    # Copy: a fleet donates its state's buffers, and these are the behavior set's too.
    return jax.tree.map(jnp.copy, state)


def fitted(given: Given, options: Options) -> Fitted:
    found: Start = given.behavior
    shared = options.value_share and options.held_to == "best"
    return Fitted(
        given.box,
        jnp.asarray(found.codes),
        found.behaviors,
        normalize(found.behaviors.E[found.best]),
        jnp.float32(found.share if shared else 1),
    )


# The model


class Decoded(NamedTuple):
    """In some states: pi, and the behavior b that it is held to."""

    pi: TanhNormal
    b: TanhNormal


def decode(
    policy: Policy,
    observations: Float[Array, "batch state"],
    e: Float[Array, "*batch embedding"],  # of b, in each row or in all
    fitted: Fitted,
) -> Decoded:
    pi = policy.head(policy.trunk(observations), normalize(policy.e_pi))
    b = fitted.behaviors.head(fitted.behaviors.trunk(observations), e)
    return Decoded(vq.distribution(pi, fitted.box), vq.distribution(b, fitted.box))


def values_of_pi(
    critic: Critic,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
) -> Float[Array, "member batch"]:
    def member(q: Critic, inputs: Float[Array, "batch inputs"]):
        return q.head(q.trunk(inputs), normalize(q.h_pi))[..., 0]

    inputs = jnp.concatenate([observations, actions], axis=-1)
    return jax.vmap(member)(critic, for_members(critic, inputs))


# Losses: the actions of their batches are off the bounds already (`inside`)


class Noise(NamedTuple):
    """Standard normal numbers: one action of pi, samples for D."""

    action: Float[Array, "batch action"]
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
    target: Critic,
    following: Decoded,  # in s'
    batch: Batch,
    noise: Noise,
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """y of L_critic."""
    action = inside(following.pi.sample_with(noise.action)[0], box)
    q = values_of_pi(target, batch.next_observations, action).min(axis=0)
    d = divergence(following, noise.divergence, config, box)
    future = q - config.value_penalty * config.beta * d
    return batch.rewards + config.discount * (1 - batch.terminals) * future


def critic_loss(
    critic: Critic, batch: Batch, y: Float[Array, " batch"]
) -> tuple[Float[Array, ""], Metrics]:
    """L_critic."""
    q = values_of_pi(critic, batch.observations, batch.actions)
    loss = squared_error(q, y)
    return loss, {"critic/loss": loss, "critic/q": q.mean(), "critic/target": y.mean()}


def policy_loss(
    policy: Policy,
    critic: Critic,
    batch: Batch,
    e: Float[Array, "*batch embedding"],  # of b, in each row or in all
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_actor of pi in s."""
    decoded = decode(policy, batch.observations, e, fitted)
    weight = fitted.share * config.value_weight
    return actor_loss(decoded, critic, batch, noise, weight, config, fitted.box)


def actor_loss(
    decoded: Decoded,
    critic: Critic,
    batch: Batch,
    noise: Noise,
    weight: Float[Array, ""] | float,
    config: Options,
    box: Box,
) -> tuple[Float[Array, ""], Metrics]:
    """L_actor."""

    def q_of(action: Float[Array, "batch action"]) -> Float[Array, " batch"]:
        return values_of_pi(critic, batch.observations, action).min(axis=0)

    action = inside(decoded.pi.sample_with(noise.action)[0], box)
    if config.value_scale == "none":
        q = q_of(action)
        value = q.mean()
    else:
        value, q = value_within_reach(q_of, action, decoded.b, weight, config.reach)
    d = divergence(decoded, noise.divergence, config, box).mean()
    return config.beta * d - value, {"actor/divergence": d, "actor/q": q.mean()}


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    samples = config.samples if config.divergence == "sampled" else 0
    noise = jax.random.normal(key, (2, 1 + samples, *batch.actions.shape))
    now, following = (Noise(rows[0], rows[1:]) for rows in noise)
    return update_with(state, batch, now, following, config, fitted)


def update_with(
    state: State,
    batch: Batch,
    now: Noise,
    following: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[State, Metrics]:
    """Algorithm 2 with its random numbers given: for s and for s'.

    In the released code's order: targets, critics, then the policy by the new critics.
    """
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    e = fitted.best
    if config.held_to == "own":
        _, e, _ = vq.assign(fitted.behaviors, batch.trajectory, fitted.codes)

    # Targets
    target = polyak(state.target, state.critic, config.target_rate)
    then = decode(state.policy.tree(), batch.next_observations, e, fitted)
    y = critic_target(target.tree(), then, batch, following, config, fitted.box)

    # Critics
    critic, metrics = state.critic.step(critic_loss, config.critic_rate, batch, y)

    # Policy
    rate = (state.policy.steps >= config.warm_up) * config.policy_rate
    policy, more = state.policy.step(
        policy_loss, rate, critic.tree(), batch, e, now, config, fitted
    )
    return State(policy, critic, target), metrics | more


# Acting


def model(state: State, fitted: Fitted) -> Model:
    policy, b = state.policy.tree(), fitted.behaviors
    return Model(policy.trunk, policy.head, policy.e_pi, b.E, b.W)


LBRAC_V = Algorithm(
    PRESETS,
    start,
    update,
    fitted,
    model,
    act,
    skeleton,
    needs=(Need("vq", set_changes),),
    unpadded=unpadded,
    embeddings=embeddings,
)
