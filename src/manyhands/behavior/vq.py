"""The paper's behavior set: K policies, and which trajectory each one made.

Zhang and Kashima, "Behavior Estimation from Multi-Source Data for Offline Reinforcement
Learning" (AAAI 2023). Trajectory m has an embedding w_m, behavior k has e_k; its code
is z_m = argmax_k <e_k, w_m>, and its actions come from b(a|s; e_z). All embeddings are
normalised where they are used. Per transition,

    L_rec = -log b(a|s; e_z) - log b(a|s; w_m)
    L_com = 1 - <w_m, e_z>
    L_Q   = sum_j (Q_j(s, a; h_z) - y)^2,
            y = r + gamma (1 - terminal) min_j Qbar_j(s', a'; h_z), a' ~ b(.|s'; e_z)

The networks, their start and the order of updates are those of the released code.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from manyhands.behavior.options import Options
from manyhands.nn import adam
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import MEMBERS, squared_error
from manyhands.nn.distributions import TanhNormal, inside
from manyhands.nn.networks import Head, Trunk, normalize, take_rows
from manyhands.types import Batch, Box, Key, Metrics

EMBEDDING = 8
LOG_STD_BOUND = 10.0


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


class Policy(eqx.Module):
    """b(a|s; embedding) and the embeddings of codes (E) and trajectories (W)."""

    trunk: Trunk
    head: Head
    E: Float[Array, "code embedding"]
    W: Float[Array, "trajectory embedding"]


class Critic(eqx.Module):
    """Q(s, a; embedding), one per member, and the embeddings of codes (H)."""

    trunk: Trunk
    head: Head
    H: Float[Array, "*member code embedding"]


class Values(NamedTuple):
    critic: Critic  # with a leading member axis
    target: Critic


class State(NamedTuple):
    policy: Bundle  # of a Policy
    policy_adam: adam.Adam
    critic: Bundle | None  # of a Critic; None: behaviors without their values
    critic_adam: adam.Adam | None
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
    policy = _init_policy(
        key_policy, observations, actions, codes, trajectories, policy_width
    )
    policy = Bundle.of(policy)
    if not values:
        return State(policy, adam.init(policy), None, None, None)
    inputs = observations + actions
    critic = Bundle.of(init_critics(key_critic, inputs, codes, critic_width))
    return State(
        policy,
        adam.init(policy),
        critic,
        adam.init(critic),
        target=jax.tree.map(jnp.copy, critic),
    )


def values(state: State) -> Values | None:
    if state.critic is None or state.target is None:
        return None
    return Values(state.critic.tree(), state.target.tree())


def fresh(policy: Policy, state: State) -> State:
    """The policy as given, with an optimiser that has seen nothing; critics stay."""
    bundle = Bundle.of(policy)
    return state._replace(policy=bundle, policy_adam=adam.init(bundle))


def _init_policy(key, observations, actions, codes, trajectories, width) -> Policy:
    key_trunk, key_head, key_E, key_W = jax.random.split(key, 4)
    return Policy(
        Trunk.init(key_trunk, observations, width),
        Head.init(key_head, width, EMBEDDING, width, 2 * actions),
        _init_embedding(key_E, codes),
        _init_embedding(key_W, trajectories),
    )


def init_critics(key: Key, inputs: int, codes: int, width: int) -> Critic:
    keys = jax.random.split(key, MEMBERS)
    return jax.vmap(lambda key: _init_critic(key, inputs, codes, width))(keys)


def _init_critic(key, inputs, codes, width) -> Critic:
    key_trunk, key_head, key_H = jax.random.split(key, 3)
    return Critic(
        Trunk.init(key_trunk, inputs, width),
        Head.init(key_head, width, EMBEDDING, width, 1),
        _init_embedding(key_H, codes),
    )


def _init_embedding(key: Key, rows: int) -> Float[Array, "rows embedding"]:
    """Row by row, so that padding does not change the rows before it."""
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(rows))
    draw = lambda key: jax.random.uniform(key, (EMBEDDING,), minval=-0.05, maxval=0.05)  # noqa: E731
    return jax.vmap(draw)(keys)


# The model


def distribution(outputs: Float[Array, "*lead outputs"], box: Box) -> TanhNormal:
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    log_std = jnp.clip(log_std, -LOG_STD_BOUND, LOG_STD_BOUND)
    return TanhNormal(mean, log_std, box.center, box.scale)


def assign(
    policy: Policy, trajectory: Int[Array, " batch"], codes: Bool[Array, " code"]
) -> tuple[
    Float[Array, "batch embedding"],
    Float[Array, "batch embedding"],
    Float[Array, "batch code"],
]:
    """w_m, e_z and z (as one-hot) of each row: eq. posterior of the paper."""
    w = normalize(take_rows(policy.W, trajectory))
    E = normalize(policy.E)
    scores = jnp.where(codes, w @ E.T, -jnp.inf)
    z = jax.nn.one_hot(jnp.argmax(scores, axis=-1), len(codes))
    # A product instead of a gather: its gradient is a product too, not a scatter.
    e = jnp.matmul(z, E, precision=jax.lax.Precision.HIGHEST)
    return w, e, z


def values_of(
    critic: Critic,
    inputs: Float[Array, "batch inputs"],
    z: Float[Array, "batch code"],
) -> Float[Array, "member batch"]:
    def member(critic: Critic) -> Float[Array, " batch"]:
        h = jnp.matmul(z, normalize(critic.H), precision=jax.lax.Precision.HIGHEST)
        return critic.head(critic.trunk(inputs), h)[..., 0]

    return jax.vmap(member)(critic)


# Losses: the actions of their batches are off the bounds already (`inside`)


class Found(NamedTuple):
    """The codes of a batch, found on the way."""

    e: Float[Array, "batch embedding"]
    z: Float[Array, "batch code"]


def policy_loss(
    policy: Policy, batch: Batch, config: Config, fitted: Fitted
) -> tuple[Float[Array, ""], tuple[Metrics, Found]]:
    """L_rec + alpha L_com."""
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
    return loss, (metrics, Found(e, z))


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
    found: Found,
    noise: Float[Array, "batch action"],
    config: Config,
    fitted: Fitted,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    next_action = sample(policy, batch.next_observations, found.e, noise, fitted.box)
    inputs = jnp.concatenate([batch.next_observations, next_action], axis=-1)
    q = values_of(target, inputs, found.z).min(axis=0)
    return batch.rewards + config.discount * (1 - batch.terminals) * q


def log_prob(
    outputs: Float[Array, "*lead outputs"],
    actions: Float[Array, "*more action"],
    box: Box,
) -> Float[Array, "*lead"]:
    return distribution(outputs, box).log_prob(actions)


def sample(
    policy: Policy,
    observations: Float[Array, "batch state"],
    embeddings: Float[Array, "batch embedding"],
    noise: Float[Array, "batch action"],
    box: Box,
) -> Float[Array, "batch action"]:
    outputs = policy.head(policy.trunk(observations), embeddings)
    b = distribution(outputs, box)
    u = b.mean + jnp.exp(b.log_std) * noise
    return inside(box.center + box.scale * jnp.tanh(u), box)


def code_log_probs(
    policy: Policy,
    box: Box,
    observations: Float[Array, "row state"],
    actions: Float[Array, "row action"],
) -> Float[Array, "row code"]:
    """log b(a|s; e_k) for every code: states are encoded once, decoded K times."""
    features = policy.trunk(observations)[:, None]
    outputs = policy.head(features, normalize(policy.E))  # [row, code, 2 A]
    return log_prob(outputs, inside(actions, box)[:, None], box)


def sample_codes(
    policy: Policy,
    box: Box,
    observations: Float[Array, "row state"],
    codes: Int[Array, " row"],
    key: Key,
) -> Float[Array, "row action"]:
    noise = jax.random.normal(key, (len(observations), len(box.low)))
    return sample(policy, observations, normalize(policy.E)[codes], noise, box)


# Updates


def update(
    state: State, batch: Batch, key: Key, config: Config, fitted: Fitted
) -> tuple[State, Metrics]:
    """Algorithm 1: targets, then critics, then the policy."""
    noise = jax.random.normal(key, batch.actions.shape)
    return update_with(state, batch, noise, config, fitted)


def update_with(
    state: State,
    batch: Batch,
    noise: Float[Array, "batch action"],
    config: Config,
    fitted: Fitted,
) -> tuple[State, Metrics]:
    """`update` with its random numbers given."""
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    policy = state.policy.tree()
    scale = schedule(state.policy_adam.steps, config)
    # The policy's loss does not look at the critics, so its gradient may come first,
    # and the codes that it finds serve both.
    gradient, (metrics, found) = jax.grad(policy_loss, has_aux=True)(
        policy, batch, config, fitted
    )
    if state.critic is not None:
        assert state.target is not None
        assert state.critic_adam is not None
        target = adam.polyak(state.target, state.critic, config.target_rate)
        y = critic_target(policy, target.tree(), batch, found, noise, config, fitted)
        critic_gradient, critic_metrics = jax.grad(critic_loss, has_aux=True)(
            state.critic.tree(), batch, *jax.lax.stop_gradient((found.z, y))
        )
        rate = scale * config.critic_rate
        critic, critic_adam = adam.step(
            state.critic, critic_gradient, state.critic_adam, rate
        )
        state = state._replace(critic=critic, critic_adam=critic_adam, target=target)
        metrics |= critic_metrics
    return _step_policy(state, gradient, scale, config), metrics


def embed(
    state: State, batch: Batch, key: Key, config: Config, fitted: Fitted
) -> tuple[State, Metrics]:
    """One step of the embedding stage: trajectories only, no codes, no values."""
    del key
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    gradient, metrics = jax.grad(embedding_loss, has_aux=True)(
        state.policy.tree(), batch, fitted
    )
    scale = schedule(state.policy_adam.steps, config)
    return _step_policy(state, gradient, scale, config), metrics


def _step_policy(state: State, gradient: Policy, scale, config: Config) -> State:
    def embeddings(tree: Policy):
        return tree.E, tree.W

    rates = eqx.tree_at(
        embeddings,
        adam.for_all(scale * config.policy_rate, gradient),
        replace=(scale * config.embedding_rate,) * 2,
    )
    # An embedding's length does not matter: only its direction is used.
    decay = eqx.tree_at(
        embeddings, adam.for_kernels(config.weight_decay, gradient), replace=(0.0, 0.0)
    )
    policy, policy_adam = adam.update(
        state.policy, gradient, state.policy_adam, rates, decay
    )
    return state._replace(policy=policy, policy_adam=policy_adam)


def schedule(count: Int[Array, ""], config: Config) -> Float[Array, ""]:
    left = (config.decay_to - count) / (config.decay_to - config.decay_from)
    return jnp.clip(left, 0.0, 1.0)
