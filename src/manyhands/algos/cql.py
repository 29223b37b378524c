"""CQL(H): values that are low wherever the data has no actions.

Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning" (NeurIPS
2020), with the settings of the released code. A soft actor-critic whose Q-functions
are pushed down on all actions and up on the logged ones. Per transition, with a' ~
pi(.|s') and a~ ~ pi(.|s),

    L_Q     = sum_j (Q_j(s, a) - y)^2 + w C_j,
              y = r + gamma (1 - terminal) min_j Qbar_j(s', a')
    C_j     = log integral of exp Q_j(s, .) - Q_j(s, a)
    L_pi    = alpha log pi(a~|s) - min_j Q_j(s, a~)
    L_alpha = -log alpha (log pi(a~|s) + H),  H = minus the number of actions, in units
              of the box

The integral is estimated from N actions each of the uniform distribution, of pi(.|s)
and of pi(.|s'), every one divided by the density that it was drawn with (`log_sum`).
For the first `warm_up` updates log pi(a|s) stands in for Q in L_pi: the policy clones.
With `lagrange` the weight of C_j is learnt: w is multiplied by alpha' and

    L_alpha' = -mean_j alpha' (w C_j - tau)

so that w C_j is held at tau. All losses are taken at the same parameters, then
everything steps, then the targets follow. At test time: the mode.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import skeletons, soft_actor
from manyhands.algos.algorithm import Algorithm, Common, Given
from manyhands.algos.soft_actor import Actor
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import MEMBERS, squared_error, values_of
from manyhands.nn.networks import MLP, Dense
from manyhands.nn.optimizer import Trained, polyak
from manyhands.options import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Range,
    option,
    options,
    traced,
)
from manyhands.types import Batch, Box, Key, Metrics

LAYERS = 3
LOG_STD = (-5.0, 2.0)
FIRST_BIAS = 0.1  # of hidden layers
LAST_OF_CRITIC, LAST_OF_ACTOR = 3e-3, 1e-3  # the last layers start nearly at zero
MOST_WEIGHT = 1e6  # of the conservative term, where it is learnt


@options
class Options(Common):
    width: int = option(256, "Hidden units of the policy.", COUNT)
    critic_width: int = option(256, "Hidden units of the Q-functions.", COUNT)
    conservatism: float = traced(
        5.0, "Weight w of the conservative term.", NOT_NEGATIVE
    )
    samples: int = option(
        10, "Actions N from each of three sources for the conservative term.", COUNT
    )
    lagrange: bool = option(
        False, "Learn a factor of the weight that holds the term at `threshold`."
    )
    threshold: float = traced(10.0, "Where w C is held with `lagrange`: tau.", Range())
    warm_up: int = option(
        10_000,
        "Updates of the policy that clone the data; by default at most a fifth of the "
        "steps given.",
        NOT_NEGATIVE,
    )
    policy_rate: float = traced(1e-4, "Learning rate of policy and alpha.", POSITIVE)
    critic_rate: float = traced(3e-4, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast target Q-functions follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


# What the released code is recommended with on MuJoCo tasks.
PAPER = Options(steps=1_000_000, standardise=False, warm_up=40_000)
PRESETS = {
    "default": Options(),
    "paper": PAPER,
    # What made CORL's table on the second version of the data.
    "corl": replace(
        PAPER, standardise=True, conservatism=10.0, warm_up=0, policy_rate=3e-5
    ),
    # With a learnt weight, as the paper has it on these tasks.
    "lagrange": replace(PAPER, conservatism=1.0, lagrange=True, policy_rate=3e-5),
}


class State(NamedTuple):
    actor: Trained  # of an Actor
    critic: Trained  # of an MLP with a leading member axis
    target: Bundle
    log_weight: Trained  # of log alpha'; stays at 0 without `lagrange`


# Start


def start(key: Key, given: Given, options: Options) -> State:
    key_actor, key_critic, key_target = jax.random.split(key, 3)
    hidden = [options.width] * LAYERS
    sizes = [given.observations, *hidden, 2 * given.actions]
    net = init_net(key_actor, sizes, LAST_OF_ACTOR)
    # Targets do not start as copies.
    critic, target = (
        init_critics(key, given, options) for key in (key_critic, key_target)
    )
    return State(
        Trained.of(Actor(net, jnp.zeros(()))),
        Trained.of(critic),
        Bundle.of(target),
        Trained.of(jnp.zeros(())),
    )


def init_critics(key: Key, given: Given, options: Options) -> MLP:
    inputs = given.observations + given.actions
    sizes = [inputs, *[options.critic_width] * LAYERS, 1]
    keys = jax.random.split(key, MEMBERS)
    return jax.vmap(lambda key: init_net(key, sizes, LAST_OF_CRITIC))(keys)


def init_net(key: Key, sizes: list[int], last: float) -> MLP:
    """rlkit's start: the bound of a hidden layer is by its width, not its inputs."""
    layers = []
    for number, (inputs, outputs) in enumerate(pairwise(sizes)):
        final = number == len(sizes) - 2
        limit = last if final else outputs**-0.5
        key_w, key_b = jax.random.split(jax.random.fold_in(key, number))
        w = jax.random.uniform(key_w, (inputs, outputs), minval=-limit, maxval=limit)
        b = jax.random.uniform(key_b, (outputs,), minval=-last, maxval=last)
        layers.append(Dense(w, b if final else jnp.full(outputs, FIRST_BIAS)))
    return MLP(tuple(layers))


def fitted(given: Given, options: Options) -> Box:
    del options
    return given.box


# The model


distribution = partial(soft_actor.distribution, bounds=LOG_STD)


class Proposals(NamedTuple):
    """Actions that values are pushed down on, and their log-densities."""

    actions: Float[Array, "sample batch action"]
    log_density: Float[Array, "sample batch"]


class Noise(NamedTuple):
    """Normal numbers for an action in s' and in s and for N more in each; N uniform."""

    following: Float[Array, "batch action"]
    now: Float[Array, "batch action"]
    many_following: Float[Array, "sample batch action"]
    many_now: Float[Array, "sample batch action"]
    uniform: Float[Array, "sample batch action"]  # from 0 to 1


def draw(key: Key, samples: int, shape: tuple[int, ...]) -> Noise:
    key_one, key_many, key_uniform = jax.random.split(key, 3)
    one = jax.random.normal(key_one, (2, *shape))
    many = jax.random.normal(key_many, (2, samples, *shape))
    uniform = jax.random.uniform(key_uniform, (samples, *shape))
    return Noise(one[0], one[1], many[0], many[1], uniform)


def propose(net: MLP, batch: Batch, noise: Noise, box: Box) -> Proposals:
    """N actions each: uniform, of pi(.|s') and of pi(.|s). All are judged in s."""
    pi_next, pi = (
        distribution(net, s, box) for s in (batch.next_observations, batch.observations)
    )
    uniform = box.low + (box.high - box.low) * noise.uniform
    everywhere = jnp.full(uniform.shape[:2], -jnp.log(box.high - box.low).sum())
    following, log_next = jax.vmap(pi_next.sample_with)(noise.many_following)
    now, log_now = jax.vmap(pi.sample_with)(noise.many_now)
    return Proposals(
        jnp.concatenate([uniform, following, now]),
        jnp.concatenate([everywhere, log_next, log_now]),
    )


# Losses


def values_of_many(
    critic: MLP,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "sample batch action"],
) -> Float[Array, "member sample batch"]:
    """As rows of one batch: products then need no axes moved."""
    samples, batch, size = actions.shape
    states = jnp.tile(observations, (samples, 1))
    q = values_of(critic, states, actions.reshape(-1, size))
    return q.reshape(-1, samples, batch)


def log_sum(
    q: Float[Array, "member sample batch"], log_density: Float[Array, "sample batch"]
) -> Float[Array, "member batch"]:
    """log of the sum of exp(Q_j(s, a_i)) / density(a_i): of 3N integrals of exp Q_j."""
    return jax.nn.logsumexp(q - log_density, axis=1)


def critic_target(
    actor: Actor,
    target: MLP,
    batch: Batch,
    noise: Float[Array, "batch action"],
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """y of L_Q: without the entropy."""
    action, _ = distribution(actor.net, batch.next_observations, box).sample_with(noise)
    q = values_of(target, batch.next_observations, action).min(axis=0)
    return batch.rewards + config.discount * (1 - batch.terminals) * q


def critic_loss(
    critic: MLP,
    batch: Batch,
    y: Float[Array, " batch"],
    proposals: Proposals,
    weight: Float[Array, ""],
    config: Options,
) -> tuple[Float[Array, ""], Metrics]:
    """L_Q; the weight is alpha', or 1."""
    # Logged actions in one pass with the others.
    actions = jnp.concatenate([batch.actions[None], proposals.actions])
    every = values_of_many(critic, batch.observations, actions)
    q, proposed = every[:, 0], every[:, 1:]
    bellman = squared_error(q, y)
    overall = log_sum(proposed, proposals.log_density)
    gaps = (overall - q).mean(axis=-1)  # C_j, by member
    loss = bellman + weight * config.conservatism * gaps.sum()
    metrics = {
        "critic/loss": bellman,
        "critic/q": q.mean(),
        "critic/target": y.mean(),
        "critic/gap": gaps.mean(),
    }
    return loss, metrics


def actor_loss(
    actor: Actor,
    critic: MLP,
    batch: Batch,
    noise: Float[Array, "batch action"],
    cloning: Array,
    box: Box,
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi + L_alpha: neither has a gradient for the other's parameters."""
    pi = distribution(actor.net, batch.observations, box)
    action, log_prob = pi.sample_with(noise)
    q = values_of(critic, batch.observations, action).min(axis=0)
    worth = jnp.where(cloning, pi.log_prob(batch.actions), q)
    alpha = jax.lax.stop_gradient(jnp.exp(actor.log_alpha))
    surplus = soft_actor.surplus(log_prob, box, -float(len(box.low)))
    loss = jnp.mean(alpha * log_prob - worth + actor.log_alpha * surplus)
    metrics = {
        "actor/q": q.mean(),
        "actor/log_prob": log_prob.mean(),
        "actor/alpha": alpha,
    }
    return loss, metrics


def weight_loss(
    log_weight: Float[Array, ""], gap: Float[Array, ""], config: Options
) -> tuple[Float[Array, ""], Metrics]:
    """L_alpha', by the mean of C_j."""
    weight = weight_of(log_weight)
    loss = -weight * (config.conservatism * gap - config.threshold)
    return loss, {"critic/weight": weight}


def weight_of(log_weight: Float[Array, ""]) -> Float[Array, ""]:
    """alpha'."""
    return jnp.minimum(jnp.exp(log_weight), MOST_WEIGHT)


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, box: Box
) -> tuple[State, Metrics]:
    noise = draw(key, config.samples, batch.actions.shape)
    return update_with(state, batch, noise, config, box)


def update_with(
    state: State, batch: Batch, noise: Noise, config: Options, box: Box
) -> tuple[State, Metrics]:
    """`update` with its random numbers given: all losses at the same parameters."""
    before, log_weight = state.actor.tree(), state.log_weight
    y = critic_target(before, state.target.tree(), batch, noise.following, config, box)
    proposals = propose(before.net, batch, noise, box)
    weight = weight_of(log_weight.tree()) if config.lagrange else jnp.ones(())
    critic, metrics = state.critic.step(
        critic_loss, config.critic_rate, batch, y, proposals, weight, config
    )
    # Apart: the compiler would join its few rows with the many above, by copying both.
    apart = jax.lax.optimization_barrier(state.critic.tree())
    cloning = state.actor.steps < config.warm_up
    actor, more = state.actor.step(
        actor_loss, config.policy_rate, apart, batch, noise.now, cloning, box
    )
    if config.lagrange:
        log_weight, of_weight = log_weight.step(
            weight_loss, config.critic_rate, metrics["critic/gap"], config
        )
        metrics |= of_weight
    target = polyak(state.target, critic, config.target_rate)
    return State(actor, critic, target, log_weight), metrics | more


CQL = Algorithm(
    PRESETS,
    start,
    update,
    fitted,
    soft_actor.model,
    soft_actor.act,
    skeletons.mlp(LAYERS),
)
