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
learning: L_rec + alpha L_com is added to L_actor and L_Q to L_critic (`lbrac_v_joint.
py`). By default the behaviors stay as they were fitted and pi has networks of its own,
D is exact, and Q is in units of its size; docs/lbrac_v.md says what each of these
changes brings. At test time: the mode.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.algos import lbrac_v_joint
from manyhands.algos.algorithm import Algorithm, Given, Need
from manyhands.algos.lbrac_v_losses import (
    Critic,
    Fitted,
    Noise,
    Policy,
    State,
    behaviors_of,
    policy_loss,
)
from manyhands.algos.lbrac_v_options import PRESETS, Options
from manyhands.algos.starting_sets import Start
from manyhands.behavior import vq
from manyhands.errors import UserError
from manyhands.nn import adam
from manyhands.nn.bundle import Bundle
from manyhands.nn.distributions import inside
from manyhands.nn.networks import Head, Trunk, normalize
from manyhands.types import Batch, Box, Key, Keys, Metrics

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
    shared = options.value_share and options.held_to == "best"
    return Fitted(
        given.box,
        jnp.asarray(found.codes),
        normalize(found.behaviors.E[found.best]),
        jnp.float32(found.share if shared else 1),
        None if options.joint else found.behaviors,
    )


# Update


def update(
    state: State, batch: Batch, key: Key, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    if config.joint:
        return lbrac_v_joint.update(state, batch, key, config, fitted)
    samples = config.samples if config.divergence == "sampled" else 0
    many, actions = batch.actions.shape
    noise = jax.random.normal(key, (1 + samples, 2 * many, actions))
    return update_with(state, batch, Noise(noise[0], noise[1:]), config, fitted)


def update_with(
    state: State, batch: Batch, noise: Noise, config: Options, fitted: Fitted
) -> tuple[State, Metrics]:
    """`update` with its random numbers given, behaviors as they are.

    Policy and critics step together, each by the other as it was before: what they
    evaluate is then the same, and done once. Targets follow.
    """
    batch = batch._replace(actions=inside(batch.actions, fitted.box))
    policy = state.policy.tree()
    if config.held_to == "best":
        e = fitted.best
    else:
        behaviors = behaviors_of(policy, fitted)
        _, e, _ = vq.assign(behaviors, batch.trajectory, fitted.codes)
    critics = state.critic.tree(), state.target.tree()
    gradient, (of_critic, metrics) = jax.grad(policy_loss, has_aux=True)(
        policy, *critics, batch, e, noise, config, fitted
    )
    critic, critic_adam = adam.step(
        state.critic, of_critic, state.critic_adam, config.critic_rate
    )
    learning = state.policy_adam.steps >= config.warm_up
    new_policy, policy_adam = adam.step(
        state.policy, gradient, state.policy_adam, learning * config.policy_rate
    )
    target = adam.polyak(state.target, critic, config.target_rate)
    return State(new_policy, policy_adam, critic, critic_adam, target), metrics


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


def unpadded(model: Model, given: Given) -> Model:
    """With no more codes and trajectories than its behavior set has, see `starts`."""
    start: Start = given.behavior
    own = model.E[: start.codes.sum()], model.W[: start.trajectories]
    return eqx.tree_at(lambda m: (m.E, m.W), model, own)


def embeddings(model: Model) -> dict[str, Any]:
    return {name: normalize(getattr(model, name)) for name in ("W", "E", "e_pi")}


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
    needs=(Need("vq", set_changes),),
    unpadded=unpadded,
    embeddings=embeddings,
)
