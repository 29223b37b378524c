"""The released code's own numbers: losses, gradients and one full update.

The file holds float32 results of the paper's code on small networks; an independent
float64 computation agrees with its losses. It is not part of the project.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands.behavior import vq
from manyhands.nn import adam
from manyhands.nn.bundle import Bundle
from manyhands.nn.networks import Dense, Head, Trunk
from manyhands.types import Batch, Box

FILE = Path(__file__).parents[3] / "shared" / "spec" / "official_fixture.npz"


@pytest.fixture(scope="module")
def fixture() -> dict[str, np.ndarray]:
    if not FILE.is_file():
        pytest.skip("no shared/spec/official_fixture.npz beside the checkout")
    with np.load(FILE, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def network(arrays: dict, prefix: str, trunk: str, head: str) -> tuple[Trunk, Head]:
    def get(name):
        return jnp.asarray(arrays[f"{prefix}.{name}"])

    def dense(name):
        return Dense(get(f"{name}.w"), get(f"{name}.b"))

    return (
        Trunk(
            dense(f"{trunk}.0"),
            dense(f"{trunk}.1"),
            get(f"{trunk}.ln.scale"),
            get(f"{trunk}.ln.bias"),
        ),
        # The released first layer reads [features, embedding] with one kernel.
        Head(
            Dense(get(f"{head}.0.w")[: -vq.EMBEDDING], get(f"{head}.0.b")),
            get(f"{head}.0.w")[-vq.EMBEDDING :],
            dense(f"{head}.1"),
        ),
    )


def policy_from(arrays: dict, prefix: str) -> vq.Policy:
    trunk, head = network(arrays, f"{prefix}policy", "f_s", "f_p")
    E, W = (jnp.asarray(arrays[f"{prefix}policy.{name}"]) for name in "EW")
    return vq.Policy(trunk, head, E, W)


def critic_from(arrays: dict, prefix: str, suffix: str = "") -> vq.Critic:
    members = []
    for j in range(2):
        name = f"{prefix}q{j}{suffix}"
        trunk, head = network(arrays, name, "f_sa", "f_Q")
        members.append(vq.Critic(trunk, head, jnp.asarray(arrays[f"{name}.H"])))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


@pytest.fixture(scope="module")
def problem(fixture):
    meta = json.loads(str(fixture["meta"]))
    batch = Batch(
        observations=jnp.asarray(fixture["batch/s1"]),
        actions=jnp.asarray(fixture["batch/a1"]),
        rewards=jnp.asarray(fixture["batch/r"]),
        next_observations=jnp.asarray(fixture["batch/s2"]),
        terminals=1 - jnp.asarray(fixture["batch/dsc"]),
        trajectory=jnp.asarray(fixture["batch/tid"]),
    )
    config = vq.Config(
        policy_rate=jnp.array(meta["lr_p"]),
        embedding_rate=jnp.array(meta["lr_p"]),
        critic_rate=jnp.array(meta["lr_q"]),
        commitment=jnp.array(meta["commit_coe"]),
        target_rate=jnp.array(meta["tau"]),
        discount=jnp.array(meta["discount"]),
        weight_decay=jnp.array(0.0),
        decay_from=jnp.array(0.0),
        decay_to=jnp.array(1e30),
    )
    box = Box(-jnp.ones(6), jnp.ones(6))
    # The released code moves actions off the bounds before anything else.
    batch = batch._replace(actions=vq.inside(batch.actions, box))
    # Row 0 of E is not a code in the released code.
    fitted = vq.Fitted(box, jnp.arange(11) > 0)
    return batch, config, fitted


def assert_close(ours, theirs, name="", rtol=2e-5, atol=2e-6):
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs)
    ):
        place = f"{name}{jax.tree_util.keystr(path)}"
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=place)


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
    (loss, (metrics, _)), gradient = jax.value_and_grad(vq.policy_loss, has_aux=True)(
        policy_from(fixture, "param/"), batch, config, fitted
    )
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
    found = vq.Found(e, z)
    y = vq.critic_target(policy, target, batch, found, noise, config, fitted)
    (loss, _), gradient = jax.value_and_grad(vq.critic_loss, has_aux=True)(
        critic, batch, z, y
    )
    assert_close(loss, fixture["p1_q/loss"])
    assert_close(gradient, critic_from(fixture, "p1_q/grad/"), atol=1e-5)


def test_one_full_update(fixture, problem):
    batch, config, fitted = problem
    policy = Bundle.of(policy_from(fixture, "param/"))
    critic = Bundle.of(critic_from(fixture, "param/"))
    state = vq.State(
        policy,
        adam.init(policy),
        critic,
        adam.init(critic),
        Bundle.of(critic_from(fixture, "param/", "_target")),
    )
    noise = jnp.asarray(fixture["noise/p1_a2"])
    after, _ = vq.update_with(state, batch, noise, config, fitted)
    # A step is 5e-5 or 1e-4 long: to a hundredth of that.
    assert_close(after.policy.tree(), policy_from(fixture, "p1_step/param/"), atol=5e-7)
    assert_close(after.critic.tree(), critic_from(fixture, "p1_step/param/"), atol=1e-6)
    assert_close(
        after.target.tree(),
        critic_from(fixture, "p1_step/param/", "_target"),
        atol=1e-7,
    )
