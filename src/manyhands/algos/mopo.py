"""MOPO: soft actor-critic in a learnt model, which pays for what it does not know.

Yu et al., "MOPO: Model-based Offline Policy Optimization" (2020). An ensemble of the
dynamics is learnt first and stays (`dynamics/ensemble.py`). From logged states the
policy is rolled out in it for a few steps, with a price on what the ensemble does not
know (`dynamics/imagination.py`), until the world ends. SAC learns from some logged
transitions, with their own rewards, and many of the model's. Per transition

    L_Q     = sum_j (Q_j(s, a) - y)^2 / 2,
              y = r + gamma (1 - terminal) (min_j Qbar_j(s', a') - alpha log pi(a'|s'))
    L_pi    = alpha log pi(a~|s) - min_j Q_j(s, a~)
    L_alpha = log alpha (-log pi(a~|s) - H)

with a' ~ pi(.|s'), a~ ~ pi(.|s) and H in units of the box. All losses are taken at the
same parameters, then everything steps, then the targets follow. At test time: the mode.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import skeletons, soft_actor
from manyhands.algos.algorithm import Algorithm, Common, Given, Need, Setting
from manyhands.algos.soft_actor import Actor, distribution
from manyhands.dynamics.fit import Dynamics
from manyhands.dynamics.imagination import Noise, World, imagine
from manyhands.dynamics.rollouts import Buffer, Underway
from manyhands.dynamics.settings import Judge, check_elites
from manyhands.dynamics.termination import Ending, decide
from manyhands.errors import UserError
from manyhands.nn import critics
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import squared_error, values_of
from manyhands.nn.draws import glorot_mlp
from manyhands.nn.networks import MLP
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

LAYERS = 2


@options
class Options(Common):
    members: int = option(7, "Networks of the dynamics ensemble.", COUNT)
    elites: int = option(
        5, "Members that rollouts use, the best on held-out rows.", COUNT
    )
    model_width: int = option(200, "Hidden units of the dynamics.", COUNT)
    model_steps: int = option(200_000, "Updates of the dynamics, at most.", COUNT)
    model_batch: int = option(256, "Transitions per update of each member.", COUNT)
    model_rate: float = traced(1e-3, "Learning rate of the dynamics.", POSITIVE)
    patience: int = option(
        5,
        "Epochs without a better member before the dynamics are done; 0: never.",
        Range(0),
    )
    judge: Judge = option(
        "likelihood", "What members of the dynamics are judged by on held-out rows."
    )
    ending: Ending = option(
        "auto", "When the world ends: the rule of a task, never, or learned."
    )
    horizon: int = option(5, "Steps of a rollout.", COUNT)
    penalty: float = traced(1.0, "Price lambda of what is not known.", NOT_NEGATIVE)
    rollouts: int = option(50, "Rollouts that start at every update.", COUNT)
    kept: int = option(1000, "Updates whose rollouts are kept.", COUNT)
    real: int = option(12, "Transitions per update that were logged.", Range(0))
    width: int = option(256, "Hidden units of the policy.", COUNT)
    critic_width: int = option(256, "Hidden units of the Q-functions.", COUNT)
    entropy: float = traced(
        0.0, "Entropy H that alpha aims at; 0: minus the number of actions.", Range()
    )
    policy_rate: float = traced(3e-4, "Learning rate of policy and alpha.", POSITIVE)
    critic_rate: float = traced(3e-4, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast target Q-functions follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)


PAPER = Options(
    steps=1_000_000, standardise=False, judge="error", kept=5000, entropy=-3.0
)
KINDS = "random", "medium", "medium-replay", "medium-expert"
# (horizon, penalty) of the released configurations for D4RL's first version ...
FIRST = {
    "halfcheetah": ((5, 0.5), (1, 1.0), (5, 1.0), (5, 5.0)),
    "hopper": ((5, 1.0), (5, 5.0), (5, 1.0), (5, 1.0)),
    "walker2d": ((1, 1.0), (5, 5.0), (1, 1.0), (1, 2.0)),
}
# ... and of a reproduction on its second, without "random".
SECOND = {
    "halfcheetah": ((5, 0.5), (5, 0.5), (5, 2.5)),
    "hopper": ((5, 5.0), (5, 2.5), (5, 5.0)),
    "walker2d": ((5, 0.5), (1, 2.5), (1, 2.5)),
}


def _of_tasks(
    table: dict[str, tuple[tuple[int, float], ...]],
    kinds: tuple[str, ...],
    version: str,
) -> dict[str, Options]:
    return {
        f"{task}-{kind}{version}": replace(PAPER, horizon=horizon, penalty=penalty)
        for task, row in table.items()
        for kind, (horizon, penalty) in zip(kinds, row)
    }


PRESETS = {
    "default": Options(),
    "paper": PAPER,
    **_of_tasks(FIRST, KINDS, ""),
    **_of_tasks(SECOND, KINDS[1:], "-v2"),
}


class State(NamedTuple):
    actor: Trained  # of an Actor
    critic: Trained  # of an MLP with a leading member axis
    target: Bundle
    underway: Underway
    buffer: Buffer


class Fitted(NamedTuple):
    box: Box
    world: World


# What is learnt before


def settle(options: Options, setting: Setting) -> Options:
    check_elites(options)
    for name in ("real", "rollouts"):
        found = getattr(options, name)
        if found > options.batch_size:
            raise UserError(
                f"{name}: expected at most the batch size {options.batch_size}, got "
                f"{found}"
            )
    ending = decide(options.ending, setting.data, setting.env)
    return replace(options, ending=ending)


def dynamics_settings(o: Options) -> dict[str, Any]:
    return dict(
        kind="gaussian",
        members=o.members,
        elites=o.elites,
        width=o.model_width,
        steps=o.model_steps,
        batch_size=o.model_batch,
        patience=o.patience,
        rate=o.model_rate,
        judge=o.judge,
        learn_ending=o.ending == "learned",
    )


# Start


def start(key: Key, given: Given, options: Options) -> State:
    return _start(key, (given.observations, given.actions), options)


@partial(jax.jit, static_argnames="sizes")
def _start(key: Key, sizes: tuple[int, int], options: Options) -> State:
    key_actor, key_critic = jax.random.split(key)
    hidden = [options.width] * LAYERS
    net = glorot_mlp(key_actor, [sizes[0], *hidden, 2 * sizes[1]])
    actor = Trained.of(Actor(net, jnp.zeros(())))
    critic = Trained.of(
        critics.init(key_critic, sum(sizes), options.critic_width, LAYERS, glorot_mlp)
    )
    rows = options.rollouts * options.horizon
    return State(
        actor,
        critic,
        # Copy: a fleet donates these buffers, and XLA refuses to donate one twice.
        jax.tree.map(jnp.copy, critic.params),
        Underway.none(options.horizon, options.rollouts, sizes[0]),
        Buffer.empty(rows * options.kept, *sizes),
    )


def fitted(given: Given, options: Options) -> Fitted:
    del options
    found: Dynamics = given.dynamics
    assert given.scaling is not None
    units = (jnp.asarray(x) for x in given.scaling)
    return Fitted(given.box, World(found.members, found.elites, *units))


# The model


def roll(
    state: State,
    starts: Float[Array, "row state"],
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[Underway, Buffer, Metrics]:
    """One step of all rollouts: what becomes of them, and of the buffer."""
    observations, alive = state.underway.joined(starts)
    pi = distribution(state.actor.tree().net, observations, fitted.box)
    said = imagine(pi, observations, noise, config.penalty, config.ending, fitted.world)
    # Rows that ended before are made a step of like the others, and left out.
    keep = alive & said.sane
    goes_on = keep & (said.batch.terminals == 0)
    buffer = state.buffer.insert(said.batch, keep)
    underway = state.underway.moved(said.batch.next_observations, goes_on)
    share = keep / jnp.maximum(keep.sum(), 1)
    metrics = {
        "model/reward": _over(share, said.batch.rewards),
        "model/price": _over(share, said.price),
        "model/terminal": _over(share, said.batch.terminals),
        "model/lost": jnp.mean(alive & ~said.sane, dtype=jnp.float32),
        "model/kept": buffer.filled / len(buffer.rows),
    }
    return underway, buffer, metrics


def _over(share: Array, values: Array) -> Array:
    # A row that is not counted may hold anything.
    return jnp.sum(jnp.where(share > 0, share * values, 0))


# Losses


def critic_target(
    actor: Actor,
    target: MLP,
    batch: Batch,
    noise: Float[Array, "batch action"],
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    s = batch.next_observations
    action, log_prob = distribution(actor.net, s, box).sample_with(noise)
    q = values_of(target, s, action).min(axis=0)
    soft = q - jnp.exp(actor.log_alpha) * log_prob
    return batch.rewards + config.discount * (1 - batch.terminals) * soft


def critic_loss(
    critic: MLP, batch: Batch, y: Float[Array, " batch"]
) -> tuple[Float[Array, ""], Metrics]:
    """L_Q."""
    q = values_of(critic, batch.observations, batch.actions)
    loss = squared_error(q, y) / 2
    return loss, {"critic/loss": loss, "critic/q": q.mean(), "critic/target": y.mean()}


def actor_loss(
    actor: Actor,
    critic: MLP,
    observations: Float[Array, "batch state"],
    noise: Float[Array, "batch action"],
    config: Options,
    box: Box,
) -> tuple[Float[Array, ""], Metrics]:
    """L_pi + L_alpha: neither has a gradient for the other's parameters."""
    action, log_prob = distribution(actor.net, observations, box).sample_with(noise)
    q = values_of(critic, observations, action).min(axis=0)
    alpha = jax.lax.stop_gradient(jnp.exp(actor.log_alpha))
    aim = jnp.where(config.entropy == 0, -float(len(box.low)), config.entropy)
    surplus = soft_actor.surplus(log_prob, box, aim)
    loss = jnp.mean(alpha * log_prob - q + actor.log_alpha * surplus)
    metrics = {
        "actor/q": q.mean(),
        "actor/log_prob": log_prob.mean(),
        "actor/alpha": alpha,
    }
    return loss, metrics


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    key_model, key_sample, key_noise = jax.random.split(key, 3)
    sizes = batch.observations.shape[1], batch.actions.shape[1]
    noise = Noise.draw(
        key_model, config.rollouts * config.horizon, *sizes, config.elites
    )
    # The batch was drawn for this: its last rows are where rollouts start.
    starts = batch.observations[len(batch.rewards) - config.rollouts :]
    underway, buffer, metrics = roll(state, starts, noise, config, fitted)
    imagined = buffer.sample(key_sample, len(batch.rewards) - config.real, *sizes)
    mixed = mix(batch, imagined, config.real)
    state = state._replace(underway=underway, buffer=buffer)
    more = jax.random.normal(key_noise, (2, *batch.actions.shape))
    state, learnt = learn(state, mixed, more, config, fitted.box)
    return state, metrics | learnt


def mix(batch: Batch, imagined: Batch, real: int) -> Batch:
    """The first logged transitions, then the model's."""
    logged = batch._replace(next_actions=None)
    return jax.tree.map(
        lambda one, other: jnp.concatenate([one[:real], other]), logged, imagined
    )


def learn(
    state: State,
    batch: Batch,
    noise: Float[Array, "2 batch action"],
    config: Options,
    box: Box,
) -> tuple[State, Metrics]:
    """SAC, with its random numbers given, for s' and for s: all losses at the same
    parameters."""
    before = state.actor.tree(), state.critic.tree()
    y = critic_target(before[0], state.target.tree(), batch, noise[0], config, box)
    critic, metrics = state.critic.step(critic_loss, config.critic_rate, batch, y)
    of_loss = before[1], batch.observations, noise[1], config, box
    actor, more = state.actor.step(actor_loss, config.policy_rate, *of_loss)
    target = polyak(state.target, critic, config.target_rate)
    state = state._replace(actor=actor, critic=critic, target=target)
    return state, metrics | more


MOPO = Algorithm(
    PRESETS,
    start,
    update,
    fitted,
    soft_actor.model,
    soft_actor.act,
    skeletons.mlp(LAYERS),
    needs=(Need("dynamics", dynamics_settings),),
    settle=settle,
)
