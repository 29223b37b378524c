"""LBRAC-v: stay close to the behavior that made the trajectory, not to all at once.

Zhang and Kashima, "Behavior Estimation from Multi-Source Data for Offline Reinforcement
Learning" (AAAI 2023), Algorithm 2. It starts from a fitted behavior set (`behavior/
vq.py`): pi is the best behavior k*, judged by the returns of its trajectories, with an
embedding of its own, e_pi = e_k*, and so is its Q-function, h_pi = h_k*. Per
transition of trajectory m with the code z, a' ~ pi(.|s'), a~ ~ pi(.|s),

    D(s)     = mean over a ~ pi(.|s) of log pi(a|s) - log b(a|s; e_z), at least 0
    L_critic = sum_j (Q_j(s, a; h_pi) - y)^2,
               y = r + gamma (1 - terminal) (min_j Qbar_j(s', a'; h_pi) - beta D(s'))
    L_actor  = beta D(s) - min_j Q_j(s, a~; h_pi)

As printed (`--preset paper`) networks are shared by pi and all behaviors, which go on
learning: L_rec + alpha L_com is added to L_actor and L_Q to L_critic. By default the
behaviors stay as they were fitted and pi has networks of its own, D is exact, and Q is
in units of its size; docs/lbrac_v.md says what each of these changes brings. At test
time: the mode.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from manyhands.algos.actor_terms import scaled_value
from manyhands.algos.algorithm import Algorithm, Given
from manyhands.algos.options import WHOLE, Common, learner_options
from manyhands.algos.starting_sets import Start
from manyhands.behavior import vq
from manyhands.errors import UserError
from manyhands.hyper import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, option
from manyhands.nn import adam
from manyhands.nn.bundle import Bundle
from manyhands.nn.critics import squared_error
from manyhands.nn.distributions import TanhNormal, gaussian_kl, inside
from manyhands.nn.networks import Head, Trunk, normalize
from manyhands.types import Batch, Box, Key, Keys, Metrics


@learner_options
class Options(Common):
    behavior_steps: int = option(
        0, "Updates of the behavior set; 0: as many as `fit` takes by default.", WHOLE
    )
    joint: bool = option(
        False,
        "Train pi and all behaviors together in shared networks, as printed; else the "
        "behaviors stay and pi has networks of its own.",
    )
    pull: bool = option(
        False,
        "Let the divergence move the behaviors too, as printed (joint only).",
    )
    divergence: Literal["exact", "sampled"] = option(
        "exact", "KL of the Gaussians before the tanh, or by samples as printed."
    )
    samples: int = option(10, "Samples for the divergence.", COUNT)
    value_scale: Literal["mean", "none"] = option(
        "mean", "What Q is divided by in the policy's loss: its mean size, or 1."
    )
    held_to: Literal["best", "own"] = option(
        "best",
        "Which behavior pi is held to: the best (not joint), or the one that made the "
        "trajectory, as printed.",
    )
    critic_width: int = option(300, "Hidden units of the Q-functions.", COUNT)
    warm_up: int = option(
        10_000,
        "Updates of the Q-functions alone, while pi is still the best behavior.",
        WHOLE,
    )
    beta: float = option(1.0, "Weight of the divergence.", NOT_NEGATIVE)
    value_penalty: float = option(
        1.0, "Weight of beta D in the Q-functions' target.", NOT_NEGATIVE
    )
    value_weight: float = option(
        2.5, "Weight of Q in the policy's loss, where it is divided.", NOT_NEGATIVE
    )
    policy_rate: float = option(5e-5, "Learning rate of the policy.", POSITIVE)
    critic_rate: float = option(3e-4, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = option(0.005, "How fast target Q-functions follow.", SHARE)
    discount: float = option(0.99, "Discount factor.", SHARE)
    commitment: float = option(
        0.1, "Weight alpha of the commitment loss (joint only).", NOT_NEGATIVE
    )


PAPER = Options(
    steps=500_000,
    standardise=False,
    behavior_steps=500_000,
    joint=True,
    pull=True,
    divergence="sampled",
    value_scale="none",
    held_to="own",
    warm_up=0,
    critic_rate=1e-4,
    target_rate=0.001,
)
PRESETS = {"default": Options(), "paper": PAPER}


class Policy(eqx.Module):
    """pi(a|s) = b(a|s; e_pi); the behaviors' embeddings where these go on learning."""

    trunk: Trunk
    head: Head
    e_pi: Float[Array, " embedding"]
    E: Float[Array, "code embedding"] | None
    W: Float[Array, "trajectory embedding"] | None


class Critic(eqx.Module):
    """Q(s, a; h_pi), one per member, and where they go on learning Q(s, a; h_k)."""

    trunk: Trunk
    head: Head
    h_pi: Float[Array, "*member embedding"]
    H: Float[Array, "*member code embedding"] | None


class State(NamedTuple):
    policy: Bundle  # of a Policy
    policy_adam: adam.Adam
    critic: Bundle  # of a Critic with a leading member axis
    critic_adam: adam.Adam
    target: Bundle


class Fitted(NamedTuple):
    box: Box
    codes: Bool[Array, " code"]  # false: padding
    best: Float[Array, " embedding"]  # e_k*, as fitted
    behaviors: vq.Policy | None  # None: they learn with pi


# Start


def start(key: Key, given: Given, options: Options) -> State:
    found: Start = given.behavior
    if options.joint and options.held_to == "best":
        raise UserError("held_to: expected own where joint is true, got best")
    values = found.values or _fresh_values(key, given, options)
    b = found.behaviors
    policy = Bundle.of(
        Policy(
            b.trunk,
            b.head,
            b.E[found.best],
            b.E if options.joint else None,
            b.W if options.joint else None,
        )
    )

    def with_pi(critic: vq.Critic) -> Bundle:
        h_pi = critic.H[:, found.best]
        H = critic.H if options.joint else None
        return Bundle.of(Critic(critic.trunk, critic.head, h_pi, H))

    critic, target = map(with_pi, values)
    # Not the same arrays twice, in the state or with what is fitted: a fleet gives its
    # state up.
    state = State(policy, adam.init(policy), critic, adam.init(critic), target)
    return jax.tree.map(jnp.copy, state)


def _fresh_values(key: Key, given: Given, options: Options) -> vq.Values:
    inputs = given.observations + given.actions
    many = len(given.behavior.codes)
    critic = vq.init_critics(key, inputs, many, options.critic_width)
    return vq.Values(critic, critic)


def fitted(given: Given, options: Options) -> Fitted:
    found: Start = given.behavior
    return Fitted(
        given.box,
        jnp.asarray(found.codes),
        normalize(found.behaviors.E[found.best]),
        None if options.joint else found.behaviors,
    )


# The model


def behaviors_of(policy: Policy, fitted: Fitted) -> vq.Policy:
    if fitted.behaviors is not None:
        return fitted.behaviors
    assert policy.E is not None
    assert policy.W is not None
    return vq.Policy(policy.trunk, policy.head, policy.E, policy.W)


def pi_of(
    policy: Policy, observations: Float[Array, "*lead state"], box: Box
) -> TanhNormal:
    outputs = policy.head(policy.trunk(observations), normalize(policy.e_pi))
    return vq.distribution(outputs, box)


class Decoded(NamedTuple):
    """In some states: pi, and the behavior that it is held to."""

    pi: TanhNormal
    b: TanhNormal


def decode(
    policy: Policy,
    observations: Float[Array, "batch state"],
    e: Float[Array, "batch embedding"],
    fitted: Fitted,
) -> Decoded:
    """States are encoded once where networks are shared."""
    if fitted.behaviors is not None:
        b = fitted.behaviors
        outputs = b.head(b.trunk(observations), e)
        return Decoded(
            pi_of(policy, observations, fitted.box),
            vq.distribution(outputs, fitted.box),
        )
    e_pi = jnp.broadcast_to(normalize(policy.e_pi), e.shape)
    outputs = policy.head(policy.trunk(observations), jnp.stack([e_pi, e]))
    pi, b = (vq.distribution(part, fitted.box) for part in outputs)
    return Decoded(pi, b)


def values_of_pi(
    critic: Critic,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
) -> Float[Array, "member batch"]:
    inputs = jnp.concatenate([observations, actions], axis=-1)

    def member(critic: Critic) -> Float[Array, " batch"]:
        return critic.head(critic.trunk(inputs), normalize(critic.h_pi))[..., 0]

    return jax.vmap(member)(critic)


# Losses: the actions of their batches are off the bounds already (`inside`)


class Noise(NamedTuple):
    """Standard normal numbers: one action of pi and of b, samples for D."""

    pi: Float[Array, "batch action"]
    b: Float[Array, "batch action"]
    divergence: Float[Array, "sample batch action"]


def divergence(
    decoded: Decoded,
    noise: Float[Array, "sample batch action"],
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """D. The released code takes both log-probabilities at the clipped action."""
    pi, b = decoded
    if config.divergence == "exact":
        return gaussian_kl(pi, b)
    action = inside(jax.vmap(lambda n: pi.sample_with(n)[0])(noise), box)
    return jax.nn.relu((pi.log_prob(action) - b.log_prob(action)).mean(axis=0))


def critic_target(
    policy: Policy,
    target: Critic,
    batch: Batch,
    e: Float[Array, "batch embedding"],
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, " batch"], Decoded]:
    """y of L_critic."""
    decoded = decode(policy, batch.next_observations, e, fitted)
    action = inside(decoded.pi.sample_with(noise.pi)[0], fitted.box)
    q = values_of_pi(target, batch.next_observations, action).min(axis=0)
    d = divergence(decoded, noise.divergence, config, fitted.box)
    future = q - config.value_penalty * config.beta * d
    y = batch.rewards + config.discount * (1 - batch.terminals) * future
    return y, decoded


def behavior_target(
    decoded: Decoded,
    target: Critic,
    batch: Batch,
    z: Float[Array, "batch code"],
    noise: Noise,
    config: Options,
    box: Box,
) -> Float[Array, " batch"]:
    """y of L_Q."""
    action = inside(decoded.b.sample_with(noise.b)[0], box)
    inputs = jnp.concatenate([batch.next_observations, action], axis=-1)
    q = vq.values_of(of_behaviors(target), inputs, z).min(axis=0)
    return batch.rewards + config.discount * (1 - batch.terminals) * q


def of_behaviors(critic: Critic) -> vq.Critic:
    assert critic.H is not None
    return vq.Critic(critic.trunk, critic.head, critic.H)


def critic_loss(
    critic: Critic,
    batch: Batch,
    y: Float[Array, " batch"],
    behaviors: tuple[Float[Array, "batch code"], Float[Array, " batch"]] | None,
) -> tuple[Float[Array, ""], Metrics]:
    """L_critic, and L_Q where behaviors (their z and y) learn too."""
    q = values_of_pi(critic, batch.observations, batch.actions)
    loss = squared_error(q, y)
    metrics = {"critic/loss": loss, "critic/q": q.mean(), "critic/target": y.mean()}
    if behaviors is None:
        return loss, metrics
    more, _ = vq.critic_loss(of_behaviors(critic), batch, *behaviors)
    return loss + more, metrics | {"critic/loss_of_behaviors": more}


def policy_loss(
    policy: Policy,
    critic: Critic,
    batch: Batch,
    e: Float[Array, "batch embedding"],
    noise: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[Float[Array, ""], Metrics]:
    """L_actor, and L_rec + alpha L_com where behaviors learn too."""
    if fitted.behaviors is not None:
        decoded = decode(policy, batch.observations, e, fitted)
        return actor_loss(decoded, critic, batch, noise, config, fitted.box)
    w, e, _ = vq.assign(behaviors_of(policy, fitted), batch.trajectory, fitted.codes)
    e_pi = jnp.broadcast_to(normalize(policy.e_pi), e.shape)
    outputs = policy.head(policy.trunk(batch.observations), jnp.stack([e_pi, e, w]))
    pi, b, of_trajectory = (vq.distribution(part, fitted.box) for part in outputs)
    reconstruction = -(
        b.log_prob(batch.actions).mean() + of_trajectory.log_prob(batch.actions).mean()
    )
    commitment = 1 - jnp.sum(w * e, axis=-1).mean()
    near = b if config.pull else jax.lax.stop_gradient(b)
    loss, metrics = actor_loss(
        Decoded(pi, near), critic, batch, noise, config, fitted.box
    )
    metrics["behavior/reconstruction"] = reconstruction
    return loss + reconstruction + config.commitment * commitment, metrics


def actor_loss(
    decoded: Decoded,
    critic: Critic,
    batch: Batch,
    noise: Noise,
    config: Options,
    box: Box,
) -> tuple[Float[Array, ""], Metrics]:
    """L_actor."""
    action = inside(decoded.pi.sample_with(noise.pi)[0], box)
    q = values_of_pi(critic, batch.observations, action).min(axis=0)
    d = divergence(decoded, noise.divergence, config, box).mean()
    loss = config.beta * d - scaled_value(q, config.value_scale, config.value_weight)
    return loss, {"actor/divergence": d, "actor/q": q.mean()}


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    samples = config.samples if config.divergence == "sampled" else 0
    noise = jax.random.normal(key, (2, 2 + samples, *batch.actions.shape))
    following, now = (Noise(rows[0], rows[1], rows[2:]) for rows in noise)
    return update_with(state, batch, following, now, config, fitted)


def update_with(
    state: State,
    batch: Batch,
    following: Noise,
    now: Noise,
    config: Options,
    fitted: Fitted,
) -> tuple[State, Metrics]:
    """`update` with its random numbers given: for s' and for s.

    Targets first, then the critics, then the policy by the critics as they are then.
    """
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    policy = state.policy.tree()
    target = adam.polyak(state.target, state.critic, config.target_rate)
    _, e, z = vq.assign(behaviors_of(policy, fitted), batch.trajectory, fitted.codes)
    if config.held_to == "best":
        e = jnp.broadcast_to(fitted.best, e.shape)
    y, decoded = critic_target(
        policy, target.tree(), batch, e, following, config, fitted
    )
    behaviors = None
    if config.joint:
        y_b = behavior_target(
            decoded, target.tree(), batch, z, following, config, fitted.box
        )
        behaviors = z, y_b
    gradient, metrics = jax.grad(critic_loss, has_aux=True)(
        state.critic.tree(), batch, y, behaviors
    )
    critic, critic_adam = adam.step(
        state.critic, gradient, state.critic_adam, config.critic_rate
    )
    gradient, more = jax.grad(policy_loss, has_aux=True)(
        policy, critic.tree(), batch, e, now, config, fitted
    )
    learning = state.policy_adam.steps >= config.warm_up
    new_policy, policy_adam = adam.step(
        state.policy, gradient, state.policy_adam, learning * config.policy_rate
    )
    state = State(new_policy, policy_adam, critic, critic_adam, target)
    return state, metrics | more


# Acting


class Model(eqx.Module):
    """pi, and the embeddings that it lives among."""

    trunk: Trunk
    head: Head
    e_pi: Float[Array, " embedding"]
    E: Float[Array, "code embedding"]
    W: Float[Array, "trajectory embedding"]


def model(state: State, fitted: Fitted) -> Model:
    policy = state.policy.tree()
    b = behaviors_of(policy, fitted)
    return Model(policy.trunk, policy.head, policy.e_pi, b.E, b.W)


def unpadded(model: Model, start: Start) -> Model:
    """With no more codes and trajectories than its behavior set has, see `starts`."""
    own = model.E[: start.codes.sum()], model.W[: start.trajectories]
    return eqx.tree_at(lambda m: (m.E, m.W), model, own)


def act(
    model: Model, box: Box, observations: Float[Array, "row state"], keys: Keys
) -> Float[Array, "row action"]:
    del keys
    outputs = model.head(model.trunk(observations), normalize(model.e_pi))
    return vq.distribution(outputs, box).mode()


def skeleton(options: Any) -> Model:
    del options
    key, rows = jax.random.key(0), jnp.zeros((1, vq.EMBEDDING))
    head = Head.init(key, 1, vq.EMBEDDING, 1, 2)
    return Model(Trunk.init(key, 1, 1), head, rows[0], rows, rows)


def set_changes(options: Any) -> dict[str, Any]:
    """Of the behavior set that is fitted first."""
    steps = {"steps": options.behavior_steps} if options.behavior_steps else {}
    return {"standardise": options.standardise, **steps}


LBRAC_V = Algorithm(
    PRESETS,
    start,
    update,
    fitted,
    model,
    act,
    skeleton,
    first="vq",
    first_changes=set_changes,
)
