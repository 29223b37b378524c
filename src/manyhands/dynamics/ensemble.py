"""The probabilistic ensemble of MOPO: networks that each predict a Gaussian.

Chua et al., "Deep Reinforcement Learning in a Handful of Trials" (2018), as MOPO uses
it. Member i sees standardised (s, a) and says mean m and log-variance v of
y = [r, s' - s]. With learnt bounds per target that all members share, v is kept between
them by two soft clamps. Over members, batch and targets,

    L = sum_i mean [(m_i - y)^2 exp(-v_i) + v_i]
        + 0.01 sum (highest - lowest) + sum_layers c_l |W_l|^2 / 2

Every member draws its own batch. Where no rule says when a world ends, every member
has a second network for that, P(terminal | s'), trained by cross-entropy.
"""

from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.dynamics.prediction import Prediction, targets_of
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.nn import draws
from manyhands.nn.networks import MLP, Dense
from manyhands.nn.optimizer import Trained
from manyhands.types import Batch, Key, Metrics

LAYERS = 4
HIGHEST, LOWEST = 0.5, -10.0  # log-variances at the start
BOUND_WEIGHT = 0.01
# c of the hidden layers, of the mean and of the log-variance
DECAY = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4, 1e-4)


class Net(eqx.Module):
    hidden: tuple[Dense, ...]
    mean: Dense
    log_variance: Dense
    ending: MLP | None  # s' -> logit of being terminal; None: a rule says


class Params(eqx.Module):
    nets: Net  # with a leading member axis
    highest: Float[Array, " target"]
    lowest: Float[Array, " target"]


class Member(eqx.Module):
    """All that one prediction needs."""

    net: Net
    highest: Float[Array, "*member target"]
    lowest: Float[Array, "*member target"]
    inputs: Inputs

    def __call__(
        self,
        observations: Float[Array, "*lead state"],
        actions: Float[Array, "*lead action"],
    ) -> Prediction:
        mean, log_variance = self.outputs(observations, actions)
        return Prediction(mean, log_variance / 2)

    def outputs(
        self, observations: Array, actions: Array
    ) -> tuple[Float[Array, "*lead target"], Float[Array, "*lead target"]]:
        h = self.inputs.standard(observations, actions)
        for layer in self.net.hidden:
            # Apart from the product, which on a GPU would add a matrix that another
            # kernel has to fill with the bias (as in `relu_layer`).
            h = jax.nn.silu(jax.lax.optimization_barrier(h @ layer.w) + layer.b)
        v = self.net.log_variance(h)
        v = self.highest - jax.nn.softplus(self.highest - v)
        v = self.lowest + jax.nn.softplus(v - self.lowest)
        return self.net.mean(h), v

    def ending(
        self, next_observations: Float[Array, "*lead state"]
    ) -> Float[Array, "*lead"]:
        """The logit of P(terminal | s')."""
        assert self.net.ending is not None
        return self.net.ending(self.inputs.state(next_observations))[..., 0]


class State(NamedTuple):
    params: Trained  # of Params


# Start


def start(key: Key, observations: int, actions: int, settings: Settings) -> State:
    last = settings.width, observations + 1
    sizes = [observations + actions, *[settings.width] * LAYERS]
    shapes = [*pairwise(sizes), last, last]

    def net(key: Key) -> Net:
        key_dense, key_ending = jax.random.split(key)
        numbers = draws.truncated_normal(key_dense, shapes)
        *hidden, mean, log_variance = map(_dense, numbers)
        ending = [observations, settings.width, settings.width, 1]
        return Net(
            tuple(hidden),
            mean,
            log_variance,
            draws.glorot_mlp(key_ending, ending) if settings.learn_ending else None,
        )

    nets = jax.vmap(net)(jax.random.split(key, settings.members))
    bounds = (jnp.full(observations + 1, bound) for bound in (HIGHEST, LOWEST))
    return State(Trained.of(Params(nets, *bounds)))


def _dense(numbers: Float[Array, "inputs outputs"]) -> Dense:
    inputs, outputs = numbers.shape
    return Dense(numbers / (2 * inputs**0.5), jnp.zeros(outputs))


def members(state: State, inputs: Inputs, settings: Settings) -> Member:
    """With a leading member axis on everything, so that each can be kept on its own."""
    params = state.params.tree()

    def repeat(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf, (settings.members, *leaf.shape))

    shared = jax.tree.map(repeat, (params.highest, params.lowest, inputs))
    return Member(params.nets, *shared)


# Losses


def loss(
    params: Params, batch: Batch, inputs: Inputs
) -> tuple[Float[Array, ""], Metrics]:
    """L; the batch leads with a member axis."""

    def one(net: Net, batch: Batch):
        member = Member(net, params.highest, params.lowest, inputs)
        mean, v = member.outputs(batch.observations, batch.actions)
        square = (mean - targets_of(batch)) ** 2
        likelihood = jnp.mean(square * jnp.exp(-v) + v)
        wrong = jnp.zeros(())
        if net.ending is not None:
            wrong = cross_entropy(
                member.ending(batch.next_observations), batch.terminals
            )
        return likelihood, square.mean(), wrong

    likelihood, square, wrong = jax.vmap(one)(params.nets, batch)
    bounds = BOUND_WEIGHT * jnp.sum(params.highest - params.lowest)
    nets = params.nets
    kernels = [*(layer.w for layer in nets.hidden), nets.mean.w, nets.log_variance.w]
    decay = sum(c / 2 * jnp.sum(w**2) for c, w in zip(DECAY, kernels))
    total = likelihood.sum() + bounds + decay + wrong.sum()
    metrics = {
        "dynamics/loss": likelihood.mean(),
        "dynamics/squared_error": square.mean(),
        "dynamics/highest": params.highest.mean(),
        "dynamics/lowest": params.lowest.mean(),
    }
    if nets.ending is not None:
        metrics["dynamics/ending_loss"] = wrong.mean()
    return total, metrics


def cross_entropy(
    logits: Float[Array, " row"], terminals: Float[Array, " row"]
) -> Float[Array, ""]:
    return jnp.mean(jax.nn.softplus(logits) - terminals * logits)


# Update


def update(
    state: State, batch: Batch, key: Key, config: Settings, inputs: Inputs
) -> tuple[State, Metrics]:
    del key
    shared = jax.tree.map(
        lambda leaf: leaf.reshape(config.members, -1, *leaf.shape[1:]), batch
    )
    params, metrics = state.params.step(loss, config.rate, shared, inputs)
    return State(params), metrics
