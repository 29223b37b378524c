"""How the behavior set of `vq.py` learns: losses and updates.

Per transition,

    L_rec = -log b(a|s; e_z) - log b(a|s; w_m)
    L_com = 1 - <w_m, e_z>
    L_Q   = sum_j (Q_j(s, a; h_z) - y)^2,
            y = r + gamma (1 - terminal) min_j Qbar_j(s', a'; h_z), a' ~ b(.|s'; e_z)
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from manyhands.behavior.options import Options
from manyhands.behavior.vq import (
    Critic,
    Policy,
    Values,
    assign,
    init_critics,
    init_policy,
    log_prob,
    sample,
    values_of,
)
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import squared_error
from manyhands.nn.distributions import inside
from manyhands.nn.networks import normalize, take_rows
from manyhands.nn.optimizer import Trained, for_all, for_kernels, polyak
from manyhands.types import Batch, Box, Key, Metrics


class Config(NamedTuple):
    """Traced hyper-parameters: they may differ between replicas trained together."""

    policy_rate: Float[Array, ""]
    embedding_rate: Float[Array, ""]  # of W and E
    critic_rate: Float[Array, ""]
    commitment: Float[Array, ""]  # alpha: the weight of L_com
    target_rate: Float[Array, ""]
    discount: Float[Array, ""]
    weight_decay: Float[Array, ""]  # of the policy's kernels, in units of the rate
    decay_from: Float[Array, ""]  # rates fall linearly to 0 from this step on ...
    decay_to: Float[Array, ""]  # ... until this one


class Fitted(NamedTuple):
    """What is given: the action box, and which codes there are."""

    box: Box
    codes: Bool[Array, " code"]  # false: padding, or merged into another


class State(NamedTuple):
    policy: Trained  # of a Policy
    critic: Trained | None  # of a Critic; None: behaviors without their values
    target: Bundle | None


# Start


def start(
    key: Key,
    observations: int,
    actions: int,
    codes: int,
    trajectories: int,
    options: Options,
) -> State:
    return init(
        key,
        observations,
        actions,
        codes,
        trajectories,
        options.policy_width,
        options.critic_width,
        options.values,
    )


def init(
    key: Key,
    observations: int,
    actions: int,
    codes: int,
    trajectories: int,
    policy_width: int = 200,
    critic_width: int = 300,
    values: bool = True,
) -> State:
    key_policy, key_critic = jax.random.split(key)
    policy = init_policy(
        key_policy, observations, actions, codes, trajectories, policy_width
    )
    if not values:
        return State(Trained.of(policy), None, None)
    inputs = observations + actions
    critic = Trained.of(init_critics(key_critic, inputs, codes, critic_width))
    return State(Trained.of(policy), critic, jax.tree.map(jnp.copy, critic.params))


def values(state: State) -> Values | None:
    if state.critic is None or state.target is None:
        return None
    return Values(state.critic.tree(), state.target.tree())


def fresh(policy: Policy, state: State) -> State:
    """The policy as given, with an optimiser that has seen nothing; critics stay."""
    return state._replace(policy=Trained.of(policy))


# Losses: the actions of their batches are off the bounds already (`inside`)


def policy_loss(
    policy: Policy, batch: Batch, config: Config, fitted: Fitted
) -> tuple[Float[Array, ""], tuple[Metrics, Array, Array]]:
    """L_rec + alpha L_com; besides metrics, e and z of the batch."""
    w, e, z = assign(policy, batch.trajectory, fitted.codes)
    features = policy.trunk(batch.observations)
    outputs = policy.head(features, jnp.stack([e, w]))  # [2, batch, 2 A]
    by_code, by_trajectory = log_prob(outputs, batch.actions, fitted.box).mean(axis=-1)
    commitment = 1 - jnp.sum(w * e, axis=-1).mean()
    loss = -by_code - by_trajectory + config.commitment * commitment
    metrics = {
        "behavior/log_prob": by_code,
        "behavior/log_prob_of_trajectory": by_trajectory,
        "behavior/commitment": commitment,
    }
    return loss, (metrics, e, z)


def embedding_loss(
    policy: Policy, batch: Batch, fitted: Fitted
) -> tuple[Float[Array, ""], Metrics]:
    """-log b(a|s; w_m) alone: the second term of L_rec, without codes."""
    w = normalize(take_rows(policy.W, batch.trajectory))
    outputs = policy.head(policy.trunk(batch.observations), w)
    by_trajectory = log_prob(outputs, batch.actions, fitted.box).mean()
    return -by_trajectory, {"behavior/log_prob_of_trajectory": by_trajectory}


def critic_loss(
    critic: Critic,
    batch: Batch,
    z: Float[Array, "batch code"],
    y: Float[Array, " batch"],
) -> tuple[Float[Array, ""], Metrics]:
    """L_Q: fitted evaluation of every behavior, summed over the members."""
    inputs = jnp.concatenate([batch.observations, batch.actions], axis=-1)
    q = values_of(critic, inputs, z)
    loss = squared_error(q, y)
    return loss, {"critic/loss": loss, "critic/q": q.mean(), "critic/target": y.mean()}


def critic_target(
    policy: Policy,
    target: Critic,
    batch: Batch,
    e: Float[Array, "batch embedding"],
    z: Float[Array, "batch code"],
    noise: Float[Array, "batch action"],
    config: Config,
    fitted: Fitted,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    next_action = sample(policy, batch.next_observations, e, noise, fitted.box)
    inputs = jnp.concatenate([batch.next_observations, next_action], axis=-1)
    q = values_of(target, inputs, z).min(axis=0)
    return batch.rewards + config.discount * (1 - batch.terminals) * q


# Updates


def update(
    state: State, batch: Batch, key: Key, config: Config, fitted: Fitted
) -> tuple[State, Metrics]:
    noise = jax.random.normal(key, batch.actions.shape)
    return update_with(state, batch, noise, config, fitted)


def update_with(
    state: State,
    batch: Batch,
    noise: Float[Array, "batch action"],
    config: Config,
    fitted: Fitted,
) -> tuple[State, Metrics]:
    """Algorithm 1 with its random numbers given.

    In the released code's order: targets, critics, policies.
    """
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    policy, of_critic = state.policy.tree(), {}
    scale = schedule(state.policy.steps, config)

    # Codes, and along with them the policies' gradient: L_rec and L_com read no critic.
    of_policy, (metrics, e, z) = jax.grad(policy_loss, has_aux=True)(
        policy, batch, config, fitted
    )

    if state.critic is not None:
        assert state.target is not None

        # Targets
        target = polyak(state.target, state.critic, config.target_rate)
        y = critic_target(policy, target.tree(), batch, e, z, noise, config, fitted)

        # Critics
        critic, of_critic = state.critic.step(
            critic_loss, scale * config.critic_rate, batch, z, y
        )
        state = state._replace(critic=critic, target=target)

    # Policies
    return _step_policy(state, of_policy, scale, config), metrics | of_critic


def embed(
    state: State, batch: Batch, key: Key, config: Config, fitted: Fitted
) -> tuple[State, Metrics]:
    """One step of the embedding stage: trajectories only, no codes, no values."""
    del key
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    gradient, metrics = jax.grad(embedding_loss, has_aux=True)(
        state.policy.tree(), batch, fitted
    )
    scale = schedule(state.policy.steps, config)
    return _step_policy(state, gradient, scale, config), metrics


def _step_policy(state: State, gradient: Policy, scale, config: Config) -> State:
    def embeddings(tree: Policy):
        return tree.E, tree.W

    rates = eqx.tree_at(
        embeddings,
        for_all(scale * config.policy_rate, gradient),
        replace=(scale * config.embedding_rate,) * 2,
    )
    # An embedding's length does not matter: only its direction is used.
    decay = eqx.tree_at(
        embeddings, for_kernels(config.weight_decay, gradient), replace=(0.0, 0.0)
    )
    return state._replace(policy=state.policy.descend(gradient, rates, decay))


def schedule(count: Int[Array, ""], config: Config) -> Float[Array, ""]:
    left = (config.decay_to - count) / (config.decay_to - config.decay_from)
    return jnp.clip(left, 0.0, 1.0)
