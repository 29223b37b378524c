"""The released code's own numbers, as our structures.

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
from manyhands.nn.distributions import inside
from manyhands.nn.networks import Dense, Head, Trunk
from manyhands.types import Batch, Box

FILE = Path(__file__).parents[2] / "shared" / "spec" / "official_fixture.npz"
BOX = Box(-jnp.ones(6), jnp.ones(6))


def numbers() -> dict[str, np.ndarray]:
    if not FILE.is_file():
        pytest.skip("no shared/spec/official_fixture.npz beside the checkout")
    with np.load(FILE, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def meta(arrays: dict) -> dict:
    return json.loads(str(arrays["meta"]))


def batch_from(arrays: dict) -> Batch:
    batch = Batch(
        observations=jnp.asarray(arrays["batch/s1"]),
        actions=jnp.asarray(arrays["batch/a1"]),
        rewards=jnp.asarray(arrays["batch/r"]),
        next_observations=jnp.asarray(arrays["batch/s2"]),
        terminals=1 - jnp.asarray(arrays["batch/dsc"]),
        trajectory=jnp.asarray(arrays["batch/tid"]),
    )
    # The released code moves actions off the bounds before anything else.
    return batch._replace(actions=inside(batch.actions, BOX))


# Row 0 of E is not a code in the released code.
CODES = jnp.arange(11) > 0


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


def assert_close(ours, theirs, name="", rtol=2e-5, atol=2e-6):
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs)
    ):
        place = f"{name}{jax.tree_util.keystr(path)}"
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=place)
