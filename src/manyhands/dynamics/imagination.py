"""One step of a policy in a learnt world, with a price on what is not known: MOPO's.

With one elite member i drawn for every row and sigma_j the deviations of [r, s' - s] by
member j,

    (r, s' - s) ~ N(m_i(s, a), sigma_i(s, a)^2),  r~ = r - lambda max_j |sigma_j(s, a)|

with sigma_j in the units of the task, as lambda is published, also where observations
are standardised. The world ends by the rule of a task, or as probably as the elites
say.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from manyhands.dynamics import ensemble
from manyhands.dynamics.prediction import predict_all, widest
from manyhands.dynamics.termination import RULES
from manyhands.nn.distributions import TanhNormal
from manyhands.training.replicas import pick
from manyhands.types import Batch, Key

FARTHEST = 100.0  # deviations of the data; nobody has been there, nor any model


class World(NamedTuple):
    members: ensemble.Member  # with a leading member axis
    elites: Int[Array, " elite"]
    # Of the scaling of observations: rules and prices are in the units of the task.
    center: Float[Array, " state"]
    scale: Float[Array, " state"]


class Noise(NamedTuple):
    """Of one step: standard normal numbers, which elite, uniform numbers."""

    action: Float[Array, "many action"]
    target: Float[Array, "many target"]
    elite: Int[Array, " many"]  # a place in the list of elites
    ending: Float[Array, " many"]

    @staticmethod
    def draw(key: Key, many: int, states: int, actions: int, elites: int) -> "Noise":
        # At once, which is quick to compile.
        key_normal, key_uniform = jax.random.split(key)
        normal = jax.random.normal(key_normal, (many, actions + states + 1))
        uniform = jax.random.uniform(key_uniform, (2, many))
        elite = jnp.minimum(jnp.int32(uniform[0] * elites), elites - 1)
        return Noise(normal[:, :actions], normal[:, actions:], elite, uniform[1])


class Imagined(NamedTuple):
    """A step from each of some observations."""

    batch: Batch  # with penalised rewards
    sane: Bool[Array, " many"]  # false: the model has lost itself
    price: Float[Array, " many"]  # max_j |sigma_j|


def imagine(
    pi: TanhNormal,
    observations: Float[Array, "many state"],
    noise: Noise,
    penalty: Float[Array, ""] | float,
    ending: str,
    world: World,
) -> Imagined:
    """(r~, s') of the policy's actions.

    Args:
        pi: the policy in these observations.
        ending: the name of a rule, or "learned".
    """
    actions, _ = pi.sample_with(noise.action)
    said = predict_all(world.members, observations, actions)
    member = world.elites[noise.elite][None, :, None]
    mean, log_std = (jnp.take_along_axis(x, member, axis=0)[0] for x in said)
    drawn = mean + jnp.exp(log_std) * noise.target
    following = observations + drawn[:, 1:]
    units = jnp.concatenate([jnp.ones(1), world.scale])
    price = widest(said.log_std + jnp.log(units))
    inputs = pick(world.members.inputs, 0)  # the same for all
    batch = Batch(
        observations,
        actions,
        drawn[:, 0] - penalty * price,
        following,
        ends(following, noise.ending, ending, world).astype(jnp.float32),
        jnp.zeros(len(actions), jnp.int32),
    )
    # Comparisons with what is no number are false.
    sane = jnp.abs(inputs.state(following)).max(axis=-1) < FARTHEST
    return Imagined(batch, sane & jnp.isfinite(batch.rewards), price)


def ends(
    following: Float[Array, "many state"],
    uniform: Float[Array, " many"],
    ending: str,
    world: World,
) -> Bool[Array, " many"]:
    if ending != "learned":
        return RULES[ending](world.center + world.scale * following)
    elites = pick(world.members, world.elites)
    logits = jax.vmap(lambda member: member.ending(following))(elites)
    return uniform < jax.nn.sigmoid(logits).mean(axis=0)
