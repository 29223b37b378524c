"""MOPP: planning at test time, along what the behaviors might do next.

Zhan, Zhu and Xu, "Model-Based Offline Planning with Trajectory Pruning" (2021). An
autoregressive ensemble of the dynamics is learnt first and stays
(`dynamics/autoregressive.py`). Then, from the same batches, with a'_logged the action
that was logged next and rewards scaled to 0 ... 1 over the data,

    L_b = sum_members -log b(a|s) + 1e-5 sum |W|^2
    L_Q = sum_j (Q_j(s, a) - y)^2 + 1e-5 sum |W|^2,
          y = r + gamma (1 - terminal) min_j Qbar_j(s', a'_logged)

Q is the value of the behaviors as they are: no policy is learnt. To act, a plan is made
in every state (`dynamics/planner.py`), and its first action is taken. With a behavior
set given, its behaviors propose actions, each trajectory by one of them, and L_b is
not needed.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from manyhands.algos.algorithm import Algorithm, Common, Given, Need, Setting
from manyhands.algos.mopp_acting import LAYERS, BehaviorSet, Model, act, skeleton
from manyhands.algos.starting_sets import Start
from manyhands.dynamics import autoregressive
from manyhands.dynamics.autoregressive import Proposer
from manyhands.dynamics.chain import Chain
from manyhands.dynamics.fit import Dynamics
from manyhands.dynamics.planner import PlanSettings
from manyhands.dynamics.rows import reward_range
from manyhands.dynamics.settings import check_elites
from manyhands.dynamics.termination import Ending, decide, rule_of
from manyhands.errors import UserError
from manyhands.nn import critics
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import values_of
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
from manyhands.training.replicas import pick
from manyhands.types import Batch, Box, Key, Metrics


@options
class Options(Common):
    proposer: Literal["own", "set"] = option(
        "own", "Who proposes actions: models of its own, or the behavior set given."
    )
    members: int = option(6, "Models of the dynamics, each with its own order.", COUNT)
    elites: int = option(3, "Those that plan, the best on held-out rows.", COUNT)
    behavior_members: int = option(2, "Models of the behavior, likewise.", COUNT)
    model_width: int = option(500, "Hidden units of the dynamics.", COUNT)
    behavior_width: int = option(500, "Hidden units of the behavior.", COUNT)
    head_width: int = option(200, "Hidden units for each variable in turn.", COUNT)
    critic_width: int = option(500, "Hidden units of the Q-functions.", COUNT)
    model_steps: int = option(200_000, "Updates of the dynamics, at most.", COUNT)
    model_batch: int = option(256, "Transitions per update of each member.", COUNT)
    model_rate: float = traced(1e-3, "Learning rate of the dynamics.", POSITIVE)
    patience: int = option(
        5,
        "Epochs without a better member before the dynamics are done; 0: never.",
        Range(0),
    )
    changes: bool = option(
        True, "Predict how observations change, not what they will be."
    )
    behavior_rate: float = traced(1e-3, "Learning rate of the behavior.", POSITIVE)
    critic_rate: float = traced(1e-3, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast target Q-functions follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)
    trajectories: int = option(100, "Trajectories of a plan, N.", COUNT)
    horizon: int = option(4, "Their steps, H.", COUNT)
    proposals: int = option(10, "Actions to choose from at each of them, K.", COUNT)
    kappa: float = traced(3.0, "How much more good trajectories count.", NOT_NEGATIVE)
    spread: float = traced(0.4, "Deviation of the widest variable, sigma_M.", POSITIVE)
    threshold: float = traced(
        0.0, "Disagreement L that is pruned; 0: by `percentile`.", NOT_NEGATIVE
    )
    percentile: float = traced(
        90.0,
        "Share of the data, in percent, that disagrees less than L.",
        Range(0, 100),
    )
    ending: Ending = option(
        "auto", "When the world ends in plans: the rule of a task, or never."
    )


PAPER = Options(
    steps=500_000,
    batch_size=512,
    standardise=False,
    behavior_members=6,
    model_steps=500_000,
    model_batch=512,
    patience=0,
    changes=False,
    ending="never",
)


def _planning(kappa: float, horizon: int, spread: float, threshold: float) -> Options:
    options = dict(kappa=kappa, horizon=horizon, spread=spread, threshold=threshold)
    return replace(PAPER, **options)


PRESETS = {
    "default": Options(),
    "paper": PAPER,
    # The released script's.
    "hopper-random": _planning(10.0, 4, 0.45, 0.5),
    "hopper-medium": _planning(0.3, 4, 0.25, 1.0),
    "hopper-medium-replay": _planning(0.3, 4, 0.6, 1.0),
    "hopper-medium-expert": _planning(3.0, 10, 0.4, 1.0),
    # Nobody has published these: ours, searched on one seed of each task's medium set,
    # with the default's models.
    "halfcheetah": Options(kappa=30.0, horizon=2, spread=0.8),
    "walker2d": Options(kappa=10.0, horizon=4, spread=0.8),
}


class State(NamedTuple):
    behavior: Trained | None  # of a Chain with a leading member axis
    critic: Trained  # of an MLP with a leading member axis
    target: Bundle


class Fitted(eqx.Module):
    box: Box
    members: autoregressive.Member  # those that plan, with a leading member axis
    order: Int[Array, "member place"]  # of the behavior's models
    behavior: BehaviorSet | None
    lowest: Float[Array, ""]  # reward, and what differences are divided by
    unit: Float[Array, ""]
    center: Float[Array, " state"]  # of the scaling of observations: rules need the
    scale: Float[Array, " state"]  # units of the task
    plan: PlanSettings
    ending: str = eqx.field(static=True)


# What is learnt before


def settle(options: Options, setting: Setting) -> Options:
    check_elites(options)
    if options.proposer == "set" and not setting.behavior:
        raise UserError("behavior: expected a behavior set, as proposer is set")
    if options.ending == "learned":
        raise UserError("ending: expected a rule or never, got learned")
    # Plans are short: where nobody knows a rule, they go on.
    known = options.ending != "auto" or rule_of(setting.env) is not None
    ending = decide(options.ending, setting.data, setting.env) if known else "never"
    proposer = "set" if setting.behavior else "own"
    return replace(options, ending=ending, proposer=proposer)


def dynamics_settings(o: Options) -> dict[str, Any]:
    return dict(
        kind="autoregressive",
        members=o.members,
        elites=o.elites,
        width=o.model_width,
        steps=o.model_steps,
        batch_size=o.model_batch,
        patience=o.patience,
        rate=o.model_rate,
        head_width=o.head_width,
        changes=o.changes,
        unit_rewards=True,
    )


# Start


def start(key: Key, given: Given, options: Options) -> State:
    return _start(key, (given.observations, given.actions), options)


@partial(jax.jit, static_argnames="sizes")
def _start(key: Key, sizes: tuple[int, int], options: Options) -> State:
    key_behavior, key_critic, key_target = jax.random.split(key, 3)
    behavior = None
    if options.proposer == "own":
        widths = options.behavior_width, options.head_width
        behavior = Trained.of(
            autoregressive.start_actions(
                key_behavior, *sizes, options.behavior_members, *widths
            )
        )
    # Targets do not start as copies in the released code.
    critic, target = (
        critics.init(key, sum(sizes), options.critic_width, LAYERS, glorot_mlp)
        for key in (key_critic, key_target)
    )
    return State(behavior, Trained.of(critic), Bundle.of(target))


def fitted(given: Given, options: Options) -> Fitted:
    found: Dynamics = given.dynamics
    lowest, highest = map(float, found.rewards)
    threshold = options.threshold or float(
        np.interp(options.percentile, np.arange(101), np.asarray(found.quantiles))
    )
    behavior = None
    if options.proposer == "set":
        these: Start = given.behavior
        b = these.behaviors
        behavior = BehaviorSet(b.trunk, b.head, b.E, jnp.asarray(these.codes))
    assert given.scaling is not None
    floats = (jnp.float32(x) for x in (options.kappa, options.spread, threshold))
    return Fitted(
        given.box,
        pick(found.members, found.elites),
        jnp.asarray(autoregressive.orders(given.actions, options.behavior_members)),
        behavior,
        jnp.float32(lowest),
        jnp.float32(reward_range(lowest, highest)),
        jnp.asarray(given.scaling.center),
        jnp.asarray(given.scaling.scale),
        PlanSettings(options.trajectories, options.horizon, options.proposals, *floats),
        options.ending,
    )


# Losses


def critic_target(
    target: MLP, batch: Batch, config: Options, fitted: Fitted
) -> tuple[Float[Array, " batch"], Bool[Array, " batch"]]:
    """y of L_Q, and where it is known: not where a trajectory was cut off."""
    assert batch.next_actions is not None
    there = ~jnp.isnan(batch.next_actions).any(axis=-1)
    actions = jnp.where(there[:, None], batch.next_actions, fitted.box.center)
    q = values_of(target, batch.next_observations, actions).min(axis=0)
    rewards = (batch.rewards - fitted.lowest) / fitted.unit
    y = rewards + config.discount * (1 - batch.terminals) * q
    return y, there | (batch.terminals > 0)


def critic_loss(
    critic: MLP, batch: Batch, y: Float[Array, " batch"], known: Bool[Array, " batch"]
) -> tuple[Float[Array, ""], Metrics]:
    """L_Q, a mean over the rows whose y is known."""
    q = values_of(critic, batch.observations, batch.actions)
    share = known / jnp.maximum(known.sum(), 1)
    square = jnp.sum(share * (q - y) ** 2)
    metrics = {
        "critic/loss": square,
        "critic/q": q.mean(),
        "critic/target": jnp.sum(share * y),
    }
    return square + autoregressive.decay(layer.w for layer in critic.layers), metrics


def behavior_loss(
    chains: Chain, batch: Batch, fitted: Fitted
) -> tuple[Float[Array, ""], Metrics]:
    """L_b."""
    return autoregressive.actions_loss(chains, fitted.order, batch, fitted.box)


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    """Targets, then critics, then the behavior, which none of them looks at."""
    del key
    target = polyak(state.target, state.critic, config.target_rate)
    y, known = critic_target(target.tree(), batch, config, fitted)
    critic, metrics = state.critic.step(
        critic_loss, config.critic_rate, batch, y, known
    )
    if state.behavior is None:
        return State(None, critic, target), metrics
    behavior, more = state.behavior.step(
        behavior_loss, config.behavior_rate, batch, fitted
    )
    return State(behavior, critic, target), metrics | more


# Acting: `mopp_acting.py`


def model(state: State, fitted: Fitted) -> Model:
    behavior = fitted.behavior
    if state.behavior is not None:
        behavior = Proposer(state.behavior.tree(), fitted.order)
    assert behavior is not None
    return Model(
        fitted.members,
        behavior,
        state.critic.tree(),
        fitted.center,
        fitted.scale,
        fitted.plan,
        fitted.ending,
    )


MOPP = Algorithm(
    PRESETS,
    start,
    update,
    fitted,
    model,
    act,
    skeleton,
    needs=(Need("dynamics", dynamics_settings), Need("vq", only_given=True)),
    settle=settle,
    acts_on_device=True,
)
