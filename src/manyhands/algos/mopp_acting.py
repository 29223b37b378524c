"""MOPP at test time: what its planner asks of what was learnt.

Actions are proposed by the ensemble of the behavior, or by a behavior set.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from manyhands.algos import skeletons
from manyhands.behavior import vq
from manyhands.dynamics import autoregressive, planner
from manyhands.dynamics.autoregressive import Proposer
from manyhands.dynamics.chain import Chain
from manyhands.dynamics.planner import Guides, PlanSettings
from manyhands.dynamics.prediction import predict_all
from manyhands.dynamics.termination import RULES
from manyhands.nn.critics import values_of
from manyhands.nn.distributions import TanhNormal
from manyhands.nn.networks import MLP, Dense, Head, Trunk, normalize
from manyhands.types import Box, Key, Keys

LAYERS = 2  # of the critics


class BehaviorSet(eqx.Module):
    """A behavior set, as far as acting needs it."""

    trunk: Trunk
    head: Head
    E: Float[Array, "*lead code embedding"]
    codes: Bool[Array, "*lead code"]  # false: padding


class Model(eqx.Module):
    """All that planning needs."""

    members: autoregressive.Member
    behavior: Proposer | BehaviorSet
    critic: MLP
    center: Float[Array, "*lead state"]
    scale: Float[Array, "*lead state"]
    plan: PlanSettings
    ending: str = eqx.field(static=True)


def guides(model: Model, box: Box) -> Guides:
    """What the planner asks of what was learnt."""
    if isinstance(model.behavior, Proposer):
        begin, propose = _by_member(model.behavior, box)
    else:
        begin, propose = _by_code(model.behavior, box)
    first = jax.tree.map(lambda leaf: leaf[:1], model.critic)
    return Guides(
        begin,
        propose,
        predict=lambda s, a: predict_all(model.members, s, a).mean,
        value=lambda s, a: values_of(model.critic, s, a),
        first_value=lambda s, a: values_of(first, s, a)[0],
        ended=lambda s: RULES[model.ending](model.center + model.scale * s),
    )


def _by_member(proposers: Proposer, box: Box):
    """At every step one of the models, for all trajectories."""

    def propose(who: None, uniform: Array, s: Array) -> TanhNormal:
        del who
        every = jax.vmap(lambda b: b(s, box))(proposers)
        member = planner.chosen(uniform, len(every.mean))
        return TanhNormal(
            every.mean[member], every.log_std[member], box.center, box.scale
        )

    return (lambda uniform: (None, None)), propose


def _by_code(behaviors: BehaviorSet, box: Box):
    """Every trajectory by one behavior, from its start to its end."""
    E = normalize(behaviors.E)

    def begin(uniform: Array) -> tuple[Array, Array]:
        """All behaviors that there are equally often; padding never."""
        place = jnp.floor(uniform * behaviors.codes.sum())
        place = jnp.minimum(place, behaviors.codes.sum() - 1)
        before = jnp.cumsum(behaviors.codes)
        behavior = jnp.searchsorted(before, place, side="right")
        return E[behavior], behavior

    def propose(embeddings: Array, uniform: Array, s: Array) -> TanhNormal:
        del uniform
        outputs = behaviors.head(behaviors.trunk(s), embeddings)
        return vq.distribution(outputs, box)

    return begin, propose


def act(
    model: Model, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    """The first action of a plan for every row, each with a key of its own."""
    asked = guides(model, box)

    def one(observation: Array, key: Key) -> Array:
        noise = planner.Noise.draw(key, model.plan, len(box.low))
        return planner.plan(observation, noise, asked, model.plan, box).action

    return jax.vmap(one)(observations, keys)


def skeleton(options: Any) -> Model:
    return jax.eval_shape(lambda: _skeleton(options))


def _skeleton(options: Any) -> Model:
    """Leaves of any shape."""
    key, one = jax.random.key(0), jnp.zeros(1)
    chain, dense = Chain.init(key, 1, 1, 1, 1, 1), Dense.init(key, 1, 1)
    order = jnp.zeros(1, jnp.int32)
    behavior = Proposer(chain, order)
    if options.proposer == "set":
        trunk, matrix = Trunk(dense, dense, one, one), one[None]
        behavior = BehaviorSet(trunk, Head(dense, matrix, dense), matrix, one > 0)
    return Model(
        autoregressive.Member(chain, order, options.changes),
        behavior,
        skeletons.mlp(LAYERS)(options),
        one,
        one,
        PlanSettings(
            options.trajectories, options.horizon, options.proposals, 0.0, 0.0, 0.0
        ),
        options.ending,
    )
