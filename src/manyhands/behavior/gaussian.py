"""One tanh-Gaussian policy for all data: the canonical estimate.

    L = -log b(a|s)

The network is that of the behavior set without the embedding, so that the two differ in
nothing else.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from manyhands.behavior.options import Options
from manyhands.behavior.vq import distribution
from manyhands.behavior.vq_learning import Config, Fitted, schedule
from manyhands.nn.distributions import inside
from manyhands.nn.networks import Head, Trunk
from manyhands.nn.optimizer import Trained, for_all, for_kernels
from manyhands.types import Batch, Box, Key, Metrics


class Model(eqx.Module):
    trunk: Trunk
    head: Head

    def __call__(self, observations: Float[Array, "row state"], box: Box):
        no_embedding = jnp.zeros((len(observations), 0))
        return distribution(self.head(self.trunk(observations), no_embedding), box)


class State(NamedTuple):
    model: Trained  # of a Model


def start(
    key: Key,
    observations: int,
    actions: int,
    codes: int,
    trajectories: int,
    options: Options,
) -> State:
    del codes, trajectories
    key_trunk, key_head = jax.random.split(key)
    width = options.policy_width
    model = Model(
        Trunk.init(key_trunk, observations, width),
        Head.init(key_head, width, 0, width, 2 * actions),
    )
    return State(Trained.of(model))


def loss(model: Model, batch: Batch, box: Box) -> tuple[Float[Array, ""], Metrics]:
    log_prob = model(batch.observations, box).log_prob(batch.actions).mean()
    return -log_prob, {"behavior/log_prob": log_prob}


def update(
    state: State, batch: Batch, key: Key, config: Config, fitted: Fitted
) -> tuple[State, Metrics]:
    del key
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    gradient, metrics = jax.grad(loss, has_aux=True)(
        state.model.tree(), batch, fitted.box
    )
    return step(state, gradient, config), metrics


def step(state, gradient: eqx.Module, config: Config):
    """One step of a state with a `model`."""
    rate = schedule(state.model.steps, config) * config.policy_rate
    model = state.model.descend(
        gradient,
        rates=for_all(rate, gradient),
        decay=for_kernels(config.weight_decay, gradient),
    )
    return state._replace(model=model)


def log_probs(
    model: Model,
    box: Box,
    observations: Float[Array, "row state"],
    actions: Float[Array, "row action"],
) -> Float[Array, "row code"]:
    return model(observations, box).log_prob(inside(actions, box))[:, None]


def sample(
    model: Model,
    box: Box,
    observations: Float[Array, "row state"],
    codes: Int[Array, " row"],
    key: Key,
) -> Float[Array, "row action"]:
    del codes
    return inside(model(observations, box).sample(key)[0], box)
