"""Mixtures of tanh-Gaussians, one for every action dimension: Fisher-BRC's behavior.

Kostrikov et al., "Offline Reinforcement Learning with Fisher Divergence Critic
Regularization" (ICML 2021). With 5 components k for each dimension i of the action,

    log b(a|s) = sum_i log sum_k w_ik(s) TanhNormal(a_i; mean_ik(s), std_ik(s))
    L_b        = -log b(a|s) + alpha log b(a~|s),  a~ ~ b(.|s)
    L_alpha    = alpha (-log b(a~|s) - H),  H = minus the number of actions, in units
                 of the box

Dimensions are independent given the state: two ways around an obstacle are two modes,
but two actions that only go together are four. Draws carry a gradient through the
component that was chosen, none through the choice.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from manyhands.behavior.gaussian import step
from manyhands.behavior.options import Options
from manyhands.behavior.vq_learning import Config, Fitted
from manyhands.nn.distributions import TanhNormal, inside
from manyhands.nn.networks import MLP
from manyhands.nn.optimizer import Trained
from manyhands.types import Batch, Box, Key, Metrics

COMPONENTS = 5
LAYERS = 2
# The paper's lowest is -20: an action that was logged again and again, say at a bound,
# then has a density without end, and a gradient that nothing survives.
LOG_STD = (-5.0, 2.0)
# The paper's first alpha is 1, which a million updates forget. Few would not.
FIRST_ALPHA = 0.01


class Mixture(NamedTuple):
    """Leading axes are states."""

    log_weights: Float[Array, "*lead component action"]  # a dimension's sum to 1
    components: TanhNormal  # [*lead, component, action]

    def log_prob(self, actions: Float[Array, "*lead action"]) -> Float[Array, "*lead"]:
        """Of actions off the bounds, see `inside`."""
        c = self.components
        u = jnp.arctanh((actions - c.center) / c.scale)[..., None, :]
        terms = self.log_weights + c.inner_terms(u)
        return jax.nn.logsumexp(terms, axis=-2).sum(axis=-1)

    def sample_with(
        self,
        choice: Float[Array, "*lead component action"],
        noise: Float[Array, "*lead action"],
    ) -> Float[Array, "*lead action"]:
        """With numbers drawn from Gumbel's and from a normal distribution."""
        c = self.components
        chosen = jnp.argmax(self.log_weights + choice, axis=-2)
        # A product instead of a gather: its gradient is no scatter.
        one_hot = jax.nn.one_hot(chosen, COMPONENTS, axis=-2)
        mean = (one_hot * c.mean).sum(axis=-2)
        std = (one_hot * jnp.exp(c.log_std)).sum(axis=-2)
        return c.center + c.scale * jnp.tanh(mean + std * noise)


class Model(eqx.Module):
    net: MLP  # observation -> logits, means, log-deviations, [component, action] each

    def __call__(self, observations: Float[Array, "*lead state"], box: Box) -> Mixture:
        outputs = self.net(observations)
        shape = *outputs.shape[:-1], 3, COMPONENTS, len(box.low)
        logits, mean, raw = jnp.moveaxis(outputs.reshape(shape), -3, 0)
        low, high = LOG_STD
        # No plain clip: beyond it nothing would pull a deviation back.
        log_std = low + (high - low) * (jnp.tanh(raw) + 1) / 2
        components = TanhNormal(mean, log_std, box.center, box.scale)
        return Mixture(jax.nn.log_softmax(logits, axis=-2), components)


class Learnt(eqx.Module):
    b: Model
    log_alpha: Float[Array, "*lead"]  # the price of entropy; only fitting needs it


class State(NamedTuple):
    model: Trained  # of a Learnt


def start(
    key: Key,
    observations: int,
    actions: int,
    codes: int,
    trajectories: int,
    options: Options,
) -> State:
    del codes, trajectories
    hidden = [options.policy_width] * LAYERS
    net = MLP.init(key, [observations, *hidden, 3 * COMPONENTS * actions])
    # Side by side, so that each component finds a part of its own, and as wide as the
    # box: a narrow one would have to be called back from far away.
    means = jnp.repeat(jnp.linspace(-1, 1, COMPONENTS), actions)
    low, high = LOG_STD
    wide = jnp.full_like(means, jnp.arctanh(-2 * low / (high - low) - 1))  # std 1
    bias = jnp.concatenate([jnp.zeros_like(means), means, wide])
    net = eqx.tree_at(lambda n: n.layers[-1].b, net, bias)
    return State(Trained.of(Learnt(Model(net), jnp.log(jnp.float32(FIRST_ALPHA)))))


class Noise(NamedTuple):
    """For one action in each state: Gumbel and normal numbers."""

    choice: Float[Array, "batch component action"]
    normal: Float[Array, "batch action"]


def draw(key: Key, rows: int, actions: int) -> Noise:
    key_choice, key_normal = jax.random.split(key)
    return Noise(
        jax.random.gumbel(key_choice, (rows, COMPONENTS, actions)),
        jax.random.normal(key_normal, (rows, actions)),
    )


def loss(
    learnt: Learnt, batch: Batch, noise: Noise, box: Box
) -> tuple[Float[Array, ""], Metrics]:
    """L_b + L_alpha: neither has a gradient for the other's parameters."""
    b = learnt.b(batch.observations, box)
    log_prob = b.log_prob(batch.actions).mean()
    entropy = -b.log_prob(inside(b.sample_with(*noise), box)).mean()
    floor = jnp.log(box.scale).sum() - len(box.low)  # H
    alpha = jnp.exp(learnt.log_alpha)
    surplus = jax.lax.stop_gradient(entropy - floor)
    loss = -log_prob - jax.lax.stop_gradient(alpha) * entropy + alpha * surplus
    metrics = {
        "behavior/log_prob": log_prob,
        "behavior/entropy": entropy,
        "behavior/alpha": alpha,
    }
    return loss, metrics


def update(
    state: State, batch: Batch, key: Key, config: Config, fitted: Fitted
) -> tuple[State, Metrics]:
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    noise = draw(key, *batch.actions.shape)
    gradient, metrics = jax.grad(loss, has_aux=True)(
        state.model.tree(), batch, noise, fitted.box
    )
    return step(state, gradient, config), metrics


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
    noise = draw(key, len(observations), len(box.low))
    return inside(model(observations, box).sample_with(*noise), box)
