"""Microseconds per update of the paper's phase 1, for many replicas at once.

HalfCheetah's sizes, batch 256, K = 10, 1000 trajectories, values included: L_rec, L_com
and L_Q with twin critics. Prints the arithmetic and the bytes that an update cannot do
without, and what share of the machine's peaks that would be.
Usage: python benchmarks/fit.py [--replicas 1 5 25 100] [--updates N]
       [--torch PYTHON: an interpreter that has torch, to compare one replica with]
"""

import argparse
import subprocess
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from manyhands import fleet
from manyhands.behavior import vq_learning
from manyhands.types import Box

STATES, ACTIONS, CODES, TRAJECTORIES, BATCH = 17, 6, 10, 1000, 256
CONFIG = dict(
    policy_rate=5e-5,
    embedding_rate=5e-5,
    critic_rate=1e-4,
    commitment=0.1,
    target_rate=0.001,
    discount=0.99,
    weight_decay=0.0,
    decay_from=0.0,
    decay_to=1e30,
)


def problem(
    replicas: int, rows: int
) -> tuple[vq_learning.State, fleet.Replicas, fleet.Packed]:
    columns = 2 * STATES + ACTIONS + 3
    data = jax.random.uniform(
        jax.random.key(0), (rows, columns), minval=-1.0, maxval=1.0
    )
    data = data.at[:, -2].set(0.0)
    data = data.at[:, -1].set(jnp.arange(rows) // (rows // TRAJECTORIES))
    many = jnp.arange(replicas, dtype=jnp.uint32)
    state = jax.vmap(
        lambda seed: vq_learning.init(
            jax.random.key(seed), STATES, ACTIONS, CODES, TRAJECTORIES
        )
    )(many)
    box = Box(-jnp.ones(ACTIONS), jnp.ones(ACTIONS))
    one = (vq_learning.Config(**{k: jnp.float32(v) for k, v in CONFIG.items()}), box)
    config, box = jax.tree.map(lambda x: jnp.broadcast_to(x, (replicas, *x.shape)), one)
    zeros = jnp.zeros(replicas, jnp.int32)
    active = jnp.ones((replicas, CODES), bool)
    fitted = vq_learning.Fitted(box, active)
    group = fleet.Replicas(many, zeros, zeros + rows, config, fitted)
    return state, group, fleet.Packed(data, STATES, ACTIONS)


def floor() -> tuple[float, float]:
    """Floating-point operations and bytes of one update of one replica."""
    policy_trunk = STATES * 200 + 200 * 200
    policy_head = 200 * 200 + 2 * (8 * 200 + 200 * 2 * ACTIONS)
    next_action = policy_trunk + 208 * 200 + 200 * 2 * ACTIONS
    critic = (STATES + ACTIONS) * 300 + 300 * 300 + 308 * 300 + 300
    # forward and backward (3 products) of policy and critics, forward of the rest
    macs = 3 * (policy_trunk + policy_head) + next_action + 2 * (3 + 1) * critic
    policy_size = STATES * 200 + 200 * 200 + 208 * 200 + 200 * 2 * ACTIONS
    policy_size += 8 * (CODES + TRAJECTORIES)
    critic_size = 2 * (critic + 8 * CODES)
    # Adam reads and writes a parameter and two moments; targets are read and written
    numbers = 6 * (policy_size + critic_size) + 2 * critic_size
    return 2.0 * BATCH * macs, 4.0 * numbers


def measure(replicas: int, updates: int, rows: int, together: bool | None) -> float:
    """Seconds per update of all replicas together; the best of three."""
    state, group, data = problem(replicas, rows)
    best = float("inf")
    for trial in range(4):
        started = time.perf_counter()
        state, _ = fleet.advance(
            vq_learning.update,
            state,
            group,
            data,
            trial * updates,
            updates,
            BATCH,
            together,
        )
        jax.block_until_ready(state)
        if trial:  # the first one compiles
            best = min(best, time.perf_counter() - started)
    return best / updates


def main() -> None:
    on_cpu = jax.default_backend() == "cpu"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="+", default=None)
    parser.add_argument("--updates", type=int, default=50 if on_cpu else 1000)
    parser.add_argument("--rows", type=int, default=100_000 if on_cpu else 1_000_000)
    parser.add_argument("--torch", help="an interpreter that has torch")
    options = parser.parse_args()
    device = jax.devices()[0]
    operations, traffic = floor()
    print(f"{device.platform} {device.device_kind}, jax {jax.__version__}")
    print(f"an update: {operations / 1e9:.2f} GFLOP, {traffic / 1e6:.1f} MB of state")
    print("replicas  us/update  us/update/replica  GFLOP/s  GB/s")
    for replicas in options.replicas or ([1, 4] if on_cpu else [1, 5, 25, 100]):
        for together in [True, False] if on_cpu and replicas > 1 else [None]:
            seconds = measure(replicas, options.updates, options.rows, together)
            note = {True: "together", False: "one after another", None: ""}[together]
            print(
                f"{replicas:8d}  {seconds * 1e6:9.0f}  {seconds * 1e6 / replicas:17.1f}"
                f"  {operations * replicas / seconds / 1e9:7.0f}"
                f"  {traffic * replicas / seconds / 1e9:4.0f}  {note}",
                flush=True,
            )
    if options.torch:
        compare_with_torch(options.torch, options.updates, options.rows)


def compare_with_torch(python: str, updates: int, rows: int) -> None:
    """Turn about, so that a busy machine treats both alike."""
    script = str(Path(__file__).with_name("fit_torch.py"))
    command = [python, script, "--updates", str(updates)]
    ours, theirs = [], []
    for _ in range(3):
        ours.append(measure(1, updates, rows, None))
        done = subprocess.run(command, capture_output=True, check=True)
        theirs.append(float(done.stdout))
    print(
        f"one replica: {1 / min(ours):.0f} updates/s, torch {1 / min(theirs):.0f}, "
        f"ratio {min(theirs) / min(ours):.2f}"
    )


if __name__ == "__main__":
    main()
