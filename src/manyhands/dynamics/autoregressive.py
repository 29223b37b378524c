"""MOPP's autoregressive models: one variable after the other, in several orders.

Zhan, Zhu and Xu, "Model-Based Offline Planning with Trajectory Pruning" (2021). A trunk
makes a latent vector of the input. Head i reads it and what was predicted for the
variables before i in its order (their means, not samples, nor what was logged), and
says mean and deviation of variable i (`chain.py`). A member of an ensemble is one
order. Used twice:

    actions    p(a|s), tanh-Gaussians; earlier variables enter as their modes
    dynamics   p(r, s'|s, a), Gaussians; the reward comes last in every order

Both minimise sum_members -mean log p + 1e-5 sum |W|^2.
"""

import math
from collections.abc import Iterable
from itertools import permutations
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from manyhands.dynamics.chain import Chain
from manyhands.dynamics.prediction import Prediction, targets_of
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.nn.distributions import TanhNormal, inside
from manyhands.nn.optimizer import Trained
from manyhands.types import Batch, Box, Key, Metrics

DECAY = 1e-5


def orders(variables: int, members: int) -> np.ndarray:
    """[member, place] the variable at every place.

    Straight on, backwards, then shuffled; none twice as long as there are others.
    """
    many = math.factorial(variables)
    if members >= many:
        every = np.array(list(permutations(range(variables))))
        every = np.concatenate([every[[0, -1]], every[1:-1]]) if many > 2 else every
        return np.resize(every, (members, variables)).astype(np.int32)
    found = [tuple(range(variables)), tuple(reversed(range(variables)))]
    random = np.random.default_rng(0)
    while len(found) < members:
        new = tuple(random.permutation(variables))
        found += [new] if new not in found else []
    return np.array(found[:members], np.int32)


@jax.custom_vjp
def by_variable(
    x: Float[Array, "*lead place"], order: Int[Array, " place"]
) -> Float[Array, "*lead variable"]:
    """What is by place. Its gradient is the way back, not a sum into zeros."""
    return x[..., jnp.argsort(order)]


by_variable.defvjp(
    lambda x, order: (by_variable(x, order), order),
    lambda order, gradient: (gradient[..., order], None),
)


def penalty(chain: Chain) -> Float[Array, ""]:
    """1e-5 sum |W|^2."""
    return decay([chain.first.w, chain.latent.w, *(layer.w for layer in chain.heads)])


def decay(kernels: Iterable[Array]) -> Float[Array, ""]:
    """1e-5 sum |W|^2 of these."""
    return DECAY * sum((jnp.sum(w**2) for w in kernels), jnp.zeros(()))


# Actions


class Proposer(eqx.Module):
    """p(a|s) in one order, or in several with a leading member axis."""

    chain: Chain
    order: Int[Array, "*member place"]

    def __call__(
        self, observations: Float[Array, "*lead state"], box: Box
    ) -> TanhNormal:
        found = self.chain(observations, jnp.tanh)
        mean, log_std = (by_variable(x, self.order) for x in found)
        return TanhNormal(mean, log_std, box.center, box.scale)


def start_actions(
    key: Key, observations: int, actions: int, members: int, width: int, head: int
) -> Chain:
    """With a leading member axis."""

    def one(key: Key) -> Chain:
        return Chain.init(key, observations, actions, 2 * actions, width, head)

    return jax.vmap(one)(jax.random.split(key, members))


def actions_loss(
    chains: Chain, order: Int[Array, "member place"], batch: Batch, box: Box
) -> tuple[Float[Array, ""], Metrics]:
    def one(chain: Chain, order: Array) -> Float[Array, ""]:
        b = Proposer(chain, order)(batch.observations, box)
        return b.log_prob(inside(batch.actions, box)).mean()

    log_prob = jax.vmap(one)(chains, order)
    loss = penalty(chains) - log_prob.sum()
    return loss, {"behavior/log_prob": log_prob.mean()}


# Dynamics


class Member(eqx.Module):
    """p(r, s'|s, a) in one order."""

    chain: Chain
    order: Int[Array, "*member place"]
    changes: bool = eqx.field(static=True)

    def __call__(
        self,
        observations: Float[Array, "*lead state"],
        actions: Float[Array, "*lead action"],
    ) -> Prediction:
        inputs = jnp.concatenate([observations, actions], axis=-1)
        found = self.chain(inputs, lambda mean: mean)
        mean, log_std = (by_variable(x, self.order) for x in found)
        if not self.changes:
            mean = mean.at[..., 1:].add(-observations)
        return Prediction(mean, log_std)


class State(NamedTuple):
    chains: Trained  # of a Chain with a leading member axis


def dynamics_orders(observations: int, members: int) -> Int[Array, "member place"]:
    """Of [reward, observation], the reward last."""
    states = orders(observations, members) + 1
    return jnp.asarray(np.pad(states, [(0, 0), (0, 1)]), jnp.int32)


def start(key: Key, observations: int, actions: int, settings: Settings) -> State:
    def one(key: Key) -> Chain:
        sizes = observations + actions, observations + 1, observations
        return Chain.init(key, *sizes, settings.width, settings.head_width)

    chains = jax.vmap(one)(jax.random.split(key, settings.members))
    return State(Trained.of(chains))


def members(state: State, inputs: Inputs, settings: Settings) -> Member:
    """With a leading member axis."""
    del inputs
    chains = state.chains.tree()
    variables = chains.heads[-1].b.shape[1]
    order = dynamics_orders(variables - 1, settings.members)
    return Member(chains, order, settings.changes)


def loss(
    chains: Chain, order: Int[Array, "member place"], batch: Batch, changes: bool
) -> tuple[Float[Array, ""], Metrics]:
    """The batch leads with a member axis."""

    def one(chain: Chain, order: Array, batch: Batch):
        said = Member(chain, order, changes)(batch.observations, batch.actions)
        targets = targets_of(batch)
        return said.log_prob(targets).mean(), jnp.mean((said.mean - targets) ** 2)

    log_prob, square = jax.vmap(one)(chains, order, batch)
    metrics = {
        "dynamics/loss": -log_prob.mean(),
        "dynamics/squared_error": square.mean(),
    }
    return penalty(chains) - log_prob.sum(), metrics


def update(
    state: State, batch: Batch, key: Key, config: Settings, inputs: Any
) -> tuple[State, Metrics]:
    del key, inputs
    shared = jax.tree.map(
        lambda leaf: leaf.reshape(config.members, -1, *leaf.shape[1:]), batch
    )
    order = dynamics_orders(batch.observations.shape[-1], config.members)
    chains, metrics = state.chains.step(
        loss, config.rate, order, shared, config.changes
    )
    return State(chains), metrics
