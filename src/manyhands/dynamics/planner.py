"""Planning by trajectories that a behavior proposes: MOPP's planner.

Many trajectories start from one observation. At every step each draws some actions from
the behavior, widened where it is narrow, and takes the one of the highest value. The
trajectories on which the models disagree are pruned. Of those that are left, the first
actions are averaged with weights exp(kappa R), R the rewards and the value at the end.

Where trajectories are those of several behaviors, only one behavior's are averaged:
between two that act differently there may be nothing good.

The planner knows behavior, dynamics and values by what they answer (`Guides`), so a
problem with a known best plan can be put in their place. It plans for one observation;
the caller vmaps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from manyhands.dynamics.prediction import disagreement
from manyhands.nn.distributions import TanhNormal
from manyhands.types import Box, Key, Pytree

SURVIVES = 5  # one in so many trajectories, or as many are kept all the same
NO_WEIGHT = 1e-10  # what the sum of all weights is at least


class PlanSettings(eqx.Module):
    trajectories: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    proposals: int = eqx.field(static=True)  # actions to choose from, per step
    kappa: float | Float[Array, "*replica"]
    spread: float | Float[Array, "*replica"]  # deviation of the widest action variable
    threshold: float | Float[Array, "*replica"]  # of the disagreement


class Guides(NamedTuple):
    """What a planner asks; n trajectories at a time."""

    # uniform numbers [n] -> who acts, for whole trajectories: what `propose` takes, and
    # their numbers; None: there are not several
    begin: Callable[[Array], tuple[Pytree, Int[Array, " n"] | None]]
    # who, a uniform number, observations [n, S] -> a distribution over actions
    propose: Callable[[Any, Array, Array], TanhNormal]
    # observations, actions -> means of [reward, change], [member, n, 1 + S]
    predict: Callable[[Array, Array], Array]
    # observations, actions -> values [critic, n]
    value: Callable[[Array, Array], Array]
    # the same of the first critic alone, [n], which chooses among proposals
    first_value: Callable[[Array, Array], Array]
    ended: Callable[[Array], Array]  # observations -> bool [n]


class Noise(NamedTuple):
    """All random numbers of a plan; drawn at once, which is quick to compile."""

    action: Float[
        Array, "times draws n action"
    ]  # standard normal; the last: at the end
    who: Float[Array, " n"]  # uniform, like the rest
    proposer: Float[Array, " times"]
    member: Float[Array, " times"]

    @staticmethod
    def draw(key: Key, settings: PlanSettings, actions: int) -> "Noise":
        key_normal, key_uniform = jax.random.split(key)
        times, many = settings.horizon + 1, settings.trajectories
        shape = times, settings.proposals, many, actions
        uniform = jax.random.uniform(key_uniform, (many + 2 * times,))
        return Noise(
            jax.random.normal(key_normal, shape),
            *jnp.split(uniform, [many, many + times]),
        )


class Imagined(NamedTuple):
    """Trajectories: n of them, one step after the other."""

    actions: Float[Array, "time n action"]
    rewards: Float[Array, "time n"]  # 0 after an end
    apart: Float[Array, "time n"]  # how far the models disagree; after an end as before
    returns: Float[Array, " n"]  # rewards and the value at the end
    behaviors: Int[Array, " n"] | None  # whose they are, if there are several


class Plan(NamedTuple):
    action: Float[Array, " action"]
    survivors: Float[Array, ""]  # share of trajectories within the threshold
    value: Float[Array, ""]  # mean return, weighted as the actions are


def plan(
    observation: Float[Array, " state"],
    noise: Noise,
    guides: Guides,
    settings: PlanSettings,
    box: Box,
) -> Plan:
    imagined = imagine(observation, noise, guides, settings)
    # Far from the data a model may say what is no number. That counts as doubt.
    sane = jnp.isfinite(imagined.returns)
    returns = jnp.where(sane, imagined.returns, 0)
    fine, keep = prune(jnp.where(sane, imagined.apart, jnp.inf), settings.threshold)
    weights = weigh(returns, keep, settings.kappa)
    if imagined.behaviors is not None:
        weights = of_the_best(weights, returns, imagined.behaviors)
    # Rounding may leave a mean of bounds a bit outside.
    return Plan(
        jnp.clip(weights @ imagined.actions[0], box.low, box.high),
        fine.mean(dtype=jnp.float32),
        weights @ returns,
    )


def imagine(
    observation: Float[Array, " state"],
    noise: Noise,
    guides: Guides,
    settings: PlanSettings,
) -> Imagined:
    many = settings.trajectories
    who, behaviors = guides.begin(noise.who)

    def one(carry: tuple[Array, Array, Array], drawn: tuple[Array, Array, Array]):
        (s, alive, last), (normal, proposer, member) = carry, drawn
        b = widened(guides.propose(who, proposer, s), settings.spread)
        action = best_of(b, normal, s, guides.first_value)
        means = guides.predict(s, action)
        following = s + means[chosen(member, len(means)), :, 1:]
        rewards = jnp.where(alive, means[..., 0].mean(axis=0), 0)
        # Not 0 after an end: an early one would be the way to stay unpruned.
        apart = jnp.where(alive, disagreement(means), last)
        alive = alive & ~guides.ended(following)
        return (following, alive, apart), (action, rewards, apart)

    start = jnp.broadcast_to(observation, (many, len(observation)))
    drawn = noise.action[:-1], noise.proposer[:-1], noise.member[:-1]
    begun = start, jnp.ones(many, bool), jnp.zeros(many)
    (s, alive, _), (actions, rewards, apart) = jax.lax.scan(one, begun, drawn)
    b = guides.propose(who, noise.proposer[-1], s)
    value = mean_value(b, noise.action[-1], s, guides.value)
    returns = rewards.sum(axis=0) + jnp.where(alive, value, 0)
    return Imagined(actions, rewards, apart, returns, behaviors)


def chosen(uniform: Float[Array, "*lead"], many: int) -> Int[Array, "*lead"]:
    """A number below `many`, each as probable as the others."""
    return jnp.minimum(jnp.int32(uniform * many), many - 1)


def widened(b: TanhNormal, spread: Array | float) -> TanhNormal:
    """sigma' = spread sigma / max sigma: the relations between variables stay."""
    widest = b.log_std.max(axis=-1, keepdims=True)
    log_std = b.log_std - widest + jnp.log(spread)
    return TanhNormal(b.mean, log_std, b.center, b.scale)


def best_of(
    b: TanhNormal,
    noise: Float[Array, "draws n action"],
    s: Float[Array, "n state"],
    value: Callable[[Array, Array], Array],
) -> Float[Array, "n action"]:
    """Of several actions the one of the highest value."""
    actions, q = _valued(b, noise, s, value)
    best = jnp.argmax(q, axis=0)
    return jnp.take_along_axis(actions, best[None, :, None], axis=0)[0]


def mean_value(
    b: TanhNormal,
    noise: Float[Array, "draws n action"],
    s: Float[Array, "n state"],
    value: Callable[[Array, Array], Array],
) -> Float[Array, " n"]:
    """V(s): over several actions and all critics."""
    return _valued(b, noise, s, value)[1].mean(axis=(0, 1))


def _valued(
    b: TanhNormal, noise: Array, s: Array, value: Callable[[Array, Array], Array]
) -> tuple[Float[Array, "draws n action"], Float[Array, "*critic draws n"]]:
    actions, _ = b.sample_with(noise)
    draws, many = noise.shape[:2]
    states = jnp.broadcast_to(s, (draws, *s.shape)).reshape(-1, s.shape[-1])
    q = value(states, actions.reshape(-1, actions.shape[-1]))
    return actions, q.reshape(*q.shape[:-1], draws, many)


def prune(
    apart: Float[Array, "time n"], threshold: Array | float
) -> tuple[Bool[Array, " n"], Bool[Array, " n"]]:
    """Which trajectories are within the threshold all along, and which to keep.

    These are the same unless too few are: then those that disagree least in all.
    """
    fine = (apart <= threshold).all(axis=0)
    total = apart.sum(axis=0)
    total = jnp.where(jnp.isnan(total), jnp.inf, total)
    # By places and counts: percentiles and shares are rounded.
    least = total <= jnp.sort(total)[(len(total) - 1) // SURVIVES]
    return fine, jnp.where(SURVIVES * fine.sum() < len(fine), least, fine)


def weigh(
    returns: Float[Array, " n"], keep: Bool[Array, " n"], kappa: Array | float
) -> Float[Array, " n"]:
    """exp(kappa R) over its sum, of those kept; 0 for the others."""
    best = jnp.max(returns, where=keep, initial=-jnp.inf)
    weights = jnp.where(keep, jnp.exp(kappa * (returns - best)), 0)
    return weights / (weights.sum() + NO_WEIGHT)


def of_the_best(
    weights: Float[Array, " n"],
    returns: Float[Array, " n"],
    behaviors: Int[Array, " n"],
) -> Float[Array, " n"]:
    """The weights of that behavior whose weighted mean return is the highest."""
    same = behaviors == behaviors[:, None]  # [n, n]
    # Sums, not products: these would be rounded on a GPU.
    mass, worth = (
        jnp.where(same, each, 0).sum(axis=1) for each in (weights, weights * returns)
    )
    best = jnp.argmax(jnp.where(mass > 0, worth / mass, -jnp.inf))
    return jnp.where(same[best], weights, 0) / (mass[best] + NO_WEIGHT)
