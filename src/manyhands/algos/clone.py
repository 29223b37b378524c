"""The best behavior of a behavior set, as it was fitted: what a learner must beat.

Nothing is learnt beyond the set. It is what LBRAC-v starts from; see there for which
behavior is the best. At test time: the mode.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos.algorithm import Algorithm, Common, Given, Need
from manyhands.algos.starting_sets import Start
from manyhands.behavior import vq
from manyhands.nn.networks import Head, Trunk, normalize
from manyhands.options import NOT_NEGATIVE, Range, option, options
from manyhands.types import Batch, Box, Key, Keys, Metrics

NONE = Range(
    0, 0, words="0, for clone makes no updates of its own (behavior_steps: of its set)"
)


@options
class Options(Common):
    steps: int = option(0, "Updates after the behavior set: none.", NONE)
    behavior_steps: int = option(
        0,
        "Updates of the behavior set; 0: as many as `fit` takes by default.",
        NOT_NEGATIVE,
    )


PRESETS = {
    "default": Options(),
    "paper": Options(behavior_steps=500_000, standardise=False),
}


class Model(eqx.Module):
    """A policy, and the embeddings of the behaviors and trajectories around its own."""

    trunk: Trunk
    head: Head
    e_pi: Float[Array, " embedding"]
    E: Float[Array, "code embedding"]
    W: Float[Array, "trajectory embedding"]


def start(key: Key, given: Given, options: Options) -> Model:
    del key, options
    found: Start = given.behavior
    b = found.behaviors
    return Model(b.trunk, b.head, b.E[found.best], b.E, b.W)


def update(
    state: Model, batch: Batch, key: Key, config: Options, fitted: None
) -> tuple[Model, Metrics]:
    del batch, key, config, fitted
    return state, {}


# Acting


def unpadded(model: Model, given: Given) -> Model:
    """With no more codes and trajectories than its behavior set has, see `starts`."""
    start: Start = given.behavior
    own = model.E[: start.codes.sum()], model.W[: start.trajectories]
    return eqx.tree_at(lambda m: (m.E, m.W), model, own)


def act(
    model: Model, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    del keys
    outputs = model.head(model.trunk(observations), normalize(model.e_pi))
    return vq.distribution(outputs, box).mode()


def embeddings(model: Model) -> dict[str, Any]:
    return {name: normalize(getattr(model, name)) for name in ("W", "E", "e_pi")}


def skeleton(options: Any) -> Model:
    del options
    key, rows = jax.random.key(0), jnp.zeros((1, vq.EMBEDDING))
    head = Head.init(key, 1, vq.EMBEDDING, 1, 2)
    return Model(Trunk.init(key, 1, 1), head, rows[0], rows, rows)


def set_changes(options: Any) -> dict[str, Any]:
    """The options of the behavior set that is fitted first."""
    steps = {"steps": options.behavior_steps} if options.behavior_steps else {}
    return {"standardise": options.standardise, **steps}


CLONE = Algorithm(
    PRESETS,
    start,
    update,
    fitted=lambda given, options: None,
    model=lambda state, fitted: state,
    act=act,
    skeleton=skeleton,
    needs=(Need("vq", set_changes),),
    unpadded=unpadded,
    embeddings=embeddings,
)
