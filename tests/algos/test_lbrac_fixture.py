"""Phase 2 as the released code computes it: losses, gradients, one full update."""

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

from manyhands.algos import lbrac_v, lbrac_v_printed
from manyhands.algos.lbrac_v import Noise, State
from manyhands.algos.lbrac_v_printed import PAPER, Critic, Policy
from manyhands.behavior import vq, vq_learning
from manyhands.nn.bundle import Bundle
from manyhands.nn.networks import normalize
from manyhands.nn.optimizer import Trained

CONFIG = jax.tree.map(jnp.float32, PAPER)


@pytest.fixture(scope="module")
def fixture() -> dict[str, np.ndarray]:
    return numbers()


def policy(arrays: dict, prefix: str) -> Policy:
    b = policy_from(arrays, prefix)
    e_pi = jnp.asarray(arrays[f"{prefix}policy.e_pi"])[0]
    return Policy(b.trunk, b.head, E=b.E, W=b.W, e_pi=e_pi)


def critic(arrays: dict, prefix: str, suffix: str = "") -> Critic:
    c = critic_from(arrays, prefix, suffix)
    names = [f"{prefix}q{j}{suffix}.h_pi" for j in range(2)]
    h_pi = jnp.stack([jnp.asarray(arrays[name])[0] for name in names])
    return Critic(c.trunk, c.head, H=c.H, h_pi=h_pi)


def noises(arrays: dict) -> tuple[Noise, Noise, jax.Array]:
    """For s and for s', and of b's actions in s'."""
    n = {k: jnp.asarray(v) for k, v in arrays.items() if k.startswith("noise/")}
    return (
        Noise(n["noise/p2_a_pi"], n["noise/p2_div_s1"]),
        Noise(n["noise/p2_a2_pi"], n["noise/p2_div_s2"]),
        n["noise/p2_a2_b"],
    )


FITTED = vq_learning.Fitted(BOX, CODES)


def test_the_preset_is_the_released_one(fixture):
    about, preset = meta(fixture), PAPER
    assert about["discount"] == preset.discount
    assert about["alpha"] == preset.beta
    assert about["commit_coe"] == preset.commitment
    assert about["tau"] == preset.target_rate
    assert about["lr_q"] == preset.critic_rate
    assert about["lr_p"] == preset.policy_rate


def test_divergence(fixture):
    pi_and_b = policy(fixture, "param/")
    batch = batch_from(fixture)
    _, e, _ = vq.assign(pi_and_b, batch.trajectory, CODES)
    now, following, _ = noises(fixture)
    for states, noise, name in (
        (batch.observations, now, "s1"),
        (batch.next_observations, following, "s2"),
    ):
        decoded = lbrac_v_printed.decode(pi_and_b, states, e, BOX)
        found = lbrac_v.divergence(decoded, noise.divergence, CONFIG, BOX)
        assert_close(found, fixture[f"mid/div_{name}_relu"], atol=2e-5)


def test_critic_loss_and_gradients(fixture):
    batch, (_, following, of_b) = batch_from(fixture), noises(fixture)
    pi, target = policy(fixture, "param/"), critic(fixture, "param/", "_target")
    _, e, z = vq.assign(pi, batch.trajectory, CODES)
    then = lbrac_v_printed.decode(pi, batch.next_observations, e, BOX)
    y = lbrac_v.critic_target(target, then, batch, following, CONFIG, BOX)
    y_b = lbrac_v_printed.behavior_target(target, then, batch, z, of_b, CONFIG, BOX)
    (loss, metrics), gradient = jax.value_and_grad(
        lbrac_v_printed.critic_loss, has_aux=True
    )(critic(fixture, "param/"), batch, y, z, y_b)
    assert_close(loss, fixture["p2_q/loss"])
    assert_close(metrics["critic/loss"], fixture["p2_q/q_obj_loss"])
    assert_close(metrics["critic/loss_of_behaviors"], fixture["p2_q/q_bc_loss"])
    assert_close(gradient, critic(fixture, "p2_q/grad/"), atol=1e-5)


def test_policy_loss_and_gradients(fixture):
    batch, (now, *_) = batch_from(fixture), noises(fixture)
    (loss, metrics), gradient = jax.value_and_grad(
        lbrac_v_printed.policy_loss, has_aux=True
    )(
        policy(fixture, "param/"),
        critic(fixture, "param/"),
        batch,
        now,
        CONFIG,
        FITTED,
    )
    # The released code leaves out the constant of 1 - <w, e>.
    assert_close(loss - CONFIG.commitment, fixture["p2_p/loss"])
    assert_close(metrics["behavior/reconstruction"], fixture["p2_p/rec_loss"])
    assert_close(metrics["actor/q"], fixture["p2_p/q_a_p_mean"])
    assert_close(metrics["actor/divergence"], fixture["p2_p/div_mean"], atol=1e-5)
    assert_close(gradient, policy(fixture, "p2_p/grad/"), rtol=1e-4, atol=5e-5)


def test_one_full_update(fixture):
    pi, q = (Trained.of(f(fixture, "param/")) for f in (policy, critic))
    state = State(pi, q, Bundle.of(critic(fixture, "param/", "_target")))
    after, _ = lbrac_v_printed.update_with(
        state, batch_from(fixture), *noises(fixture), CONFIG, FITTED
    )
    # A step is 5e-5 or 1e-4 long: to a hundredth of that.
    step = "p2_step/param/"
    assert_close(after.policy.tree(), policy(fixture, step), atol=5e-7)
    assert_close(after.critic.tree(), critic(fixture, step), atol=1e-6)
    assert_close(after.target.tree(), critic(fixture, step, "_target"), atol=1e-7)
    assert normalize(after.policy.tree().e_pi).shape == (vq.EMBEDDING,)
