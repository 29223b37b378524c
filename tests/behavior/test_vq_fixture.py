"""The behavior set as the released code computes it: losses, gradients, an update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from official import (
    BOX,
    CODES,
    assert_close,
    batch_from,
    critic_from,
    meta,
    numbers,
    policy_from,
)

from manyhands.behavior import vq, vq_learning
from manyhands.nn.bundle import Bundle
from manyhands.nn.optimizer import Trained


@pytest.fixture(scope="module")
def fixture() -> dict[str, np.ndarray]:
    return numbers()


@pytest.fixture(scope="module")
def problem(fixture):
    about = meta(fixture)
    config = vq_learning.Config(
        policy_rate=jnp.array(about["lr_p"]),
        embedding_rate=jnp.array(about["lr_p"]),
        critic_rate=jnp.array(about["lr_q"]),
        commitment=jnp.array(about["commit_coe"]),
        target_rate=jnp.array(about["tau"]),
        discount=jnp.array(about["discount"]),
        weight_decay=jnp.array(0.0),
        decay_from=jnp.array(0.0),
        decay_to=jnp.array(1e30),
    )
    return batch_from(fixture), config, vq_learning.Fitted(BOX, CODES)


def test_codes_outputs_and_log_probs(fixture, problem):
    batch, _, fitted = problem
    policy = policy_from(fixture, "param/")
    w, e, z = vq.assign(policy, batch.trajectory, fitted.codes)
    assert np.array_equal(np.argmax(z, axis=-1), fixture["mid/matched"])
    assert_close(w, fixture["mid/w"])
    assert_close(e, fixture["mid/e_matched"])
    features = policy.trunk(batch.observations)
    assert_close(features, fixture["mid/f_s_s1"], atol=1e-5)
    assert_close(batch.actions, fixture["mid/a1_clipped"])
    for embedding, name in ((e, "matched"), (w, "w")):
        outputs = policy.head(features, embedding)
        assert_close(outputs, fixture[f"mid/out_{name}_s1"], atol=1e-5)
        log_prob = vq.log_prob(outputs, batch.actions, fitted.box)
        # Two actions are at the bound: there the log-probability has large parts.
        assert_close(log_prob, fixture[f"mid/logp_a1_{name}"], atol=1e-4)


def test_policy_loss_and_gradients(fixture, problem):
    batch, config, fitted = problem
    (loss, (metrics, *_)), gradient = jax.value_and_grad(
        vq_learning.policy_loss, has_aux=True
    )(policy_from(fixture, "param/"), batch, config, fitted)
    # The released code leaves out the constant of 1 - <w, e>.
    assert_close(loss - 0.1, fixture["p1_p/loss"])
    rec = -metrics["behavior/log_prob"] - metrics["behavior/log_prob_of_trajectory"]
    assert_close(rec, fixture["p1_p/rec_loss"])
    commit = 0.1 * (metrics["behavior/commitment"] - 1)
    assert_close(commit, fixture["p1_p/commit_loss"])
    assert_close(gradient, policy_from(fixture, "p1_p/grad/"), atol=2e-5)


def test_critic_loss_and_gradients(fixture, problem):
    batch, config, fitted = problem
    policy, critic = policy_from(fixture, "param/"), critic_from(fixture, "param/")
    target = critic_from(fixture, "param/", "_target")
    noise = jnp.asarray(fixture["noise/p1_a2"])
    _, e, z = vq.assign(policy, batch.trajectory, fitted.codes)
    y = vq_learning.critic_target(policy, target, batch, e, z, noise, config, fitted)
    (loss, _), gradient = jax.value_and_grad(vq_learning.critic_loss, has_aux=True)(
        critic, batch, z, y
    )
    assert_close(loss, fixture["p1_q/loss"])
    assert_close(gradient, critic_from(fixture, "p1_q/grad/"), atol=1e-5)


def test_one_full_update(fixture, problem):
    batch, config, fitted = problem
    state = vq_learning.State(
        Trained.of(policy_from(fixture, "param/")),
        Trained.of(critic_from(fixture, "param/")),
        Bundle.of(critic_from(fixture, "param/", "_target")),
    )
    noise = jnp.asarray(fixture["noise/p1_a2"])
    after, _ = vq_learning.update_with(state, batch, noise, config, fitted)
    # A step is 5e-5 or 1e-4 long: to a hundredth of that.
    assert_close(after.policy.tree(), policy_from(fixture, "p1_step/param/"), atol=5e-7)
    assert_close(after.critic.tree(), critic_from(fixture, "p1_step/param/"), atol=1e-6)
    assert_close(
        after.target.tree(),
        critic_from(fixture, "p1_step/param/", "_target"),
        atol=1e-7,
    )
