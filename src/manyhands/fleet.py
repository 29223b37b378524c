"""The training loop: many replicas of one learner in one compiled program.

A learner is a pure function `update(state, batch, key, config, fitted) -> (state,
metrics)`. The fleet draws the batches on the device, scans over steps and maps over
replicas, which differ in seed, in traced hyper-parameters, in what was fitted before,
and in the range of the data they draw from: several data sets may lie side by side. It
knows no learner by name.

Every random number comes from (seed, step): a replica does not feel which others train
beside it, and a run that stopped at any step goes on to the same bits.
"""

import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from manyhands.data.trajectories import Trajectories
from manyhands.types import Batch, Key, Metrics, Pytree

ROUNDING = 1e-5  # of a state, in units of its deviation

# state, batch, key, config, fitted -> state, metrics
Update = Callable[[Pytree, Batch, Key, Pytree, Pytree], tuple[Pytree, Metrics]]


class Replicas(NamedTuple):
    """What differs between replicas; every leaf has a leading replica axis."""

    seed: UInt[Array, " replica"]
    start: Int[Array, " replica"]  # the range of rows that it draws from
    size: Int[Array, " replica"]
    config: Pytree
    fitted: Pytree

    def __len__(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.seed.shape[0]


class Packed(NamedTuple):
    """All transitions as one matrix, so that a batch is one gather."""

    rows: Float[Array, "transition column"]
    observation_size: int
    action_size: int

    @staticmethod
    def of(data: Trajectories) -> "Packed":
        """Trajectories go by their ids, also where some of them are left out."""
        # Numbers are exact in float32 up to 2^24.
        assert data.ids.max() < 2**24
        columns = [
            data.observations,
            data.actions,
            data.rewards[:, None],
            data.next_observations,
            data.terminals[:, None],
            data.ids[data.trajectory][:, None],
            _next_actions(data),
        ]
        rows = np.concatenate([c.astype(np.float32) for c in columns], axis=1)
        return Packed(jnp.asarray(rows), data.observation_size, data.action_size)

    @staticmethod
    def join(parts: "list[Packed]") -> "tuple[Packed, list[range]]":
        """Several of the same shape as one, and where each of them lies in it."""
        ends = np.cumsum([0, *(part.rows.shape[0] for part in parts)]).tolist()
        ranges = [range(first, end) for first, end in itertools.pairwise(ends)]
        if len(parts) == 1:
            return parts[0], ranges
        # By NumPy: the device then holds the rows once.
        rows = np.concatenate([np.asarray(part.rows) for part in parts])
        return parts[0]._replace(rows=jnp.asarray(rows)), ranges

    def batch(self, index: Int[Array, " batch"]) -> Batch:
        return unpack(self.rows[index], self.observation_size, self.action_size)


def unpack(rows: Float[Array, "*lead column"], states: int, actions: int) -> Batch:
    """Columns by name. (Views, for the compiler to fuse into whatever reads them.)"""
    ends = np.cumsum([states, actions, 1, states, 1, 1])
    s, a, r, following, terminal, trajectory, then = jnp.split(rows, ends, axis=-1)
    return Batch(
        s,
        a,
        r[..., 0],
        following,
        terminal[..., 0],
        trajectory[..., 0].astype(int),
        then if then.shape[-1] else None,
    )


def _next_actions(data: Trajectories) -> np.ndarray:
    """Not a number where the next row does not go on from this one."""
    found = np.full_like(data.actions, np.nan)
    # Files may have rounded the two copies of a state differently.
    apart = np.abs(data.next_observations[:-1] - data.observations[1:])
    goes_on = (apart <= ROUNDING * data.observations.std(axis=0)).all(axis=1)
    goes_on &= data.trajectory[:-1] == data.trajectory[1:]
    found[:-1][goes_on] = data.actions[1:][goes_on]
    return found


def keys_at(seed: UInt[Array, ""], step: Int[Array, ""]) -> tuple[Key, Key]:
    """One key to draw the batch with, one for the update."""
    first, second = jax.random.split(jax.random.fold_in(jax.random.key(seed), step))
    return first, second


def advance(
    update: Update,
    state: Pytree,
    replicas: Replicas,
    data: Packed,
    first_step: int,
    steps: int,
    batch_size: int,
    together: bool | None = None,
) -> tuple[Pytree, dict[str, Float[Array, " replica"]]]:
    """Train every replica for some steps; metrics are means over them, per replica.

    Args:
        update: the learner; a module-level function or a partial that compares equal,
            or every call compiles anew.
        state: leaves with a leading replica axis; given up to the new state.
        first_step: how many steps were made before.
        together: vmap the replicas, or run one after another (None: the faster).
    """
    if together is None:
        together = jax.default_backend() != "cpu"
    if steps == 0:
        return state, {}
    rest = (
        data.rows,
        jnp.asarray(first_step, jnp.int32),
        steps,
        batch_size,
        (data.observation_size, data.action_size),
    )
    if together:
        return _together(update, state, replicas, *rest)
    # In a loop of ours: one program, compiled once, serves any number of replicas.
    ended = [
        _alone(update, *_row((state, replicas), r), *rest) for r in range(len(replicas))
    ]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *ended)


def _row(tree: Pytree, r: int) -> Pytree:
    # By NumPy, which compiles nothing.
    return jax.tree.map(lambda leaf: np.asarray(leaf)[r], tree)


STATIC = ("update", "steps", "batch_size", "sizes")
# On a GPU, kernels that do not need each other's results run at the same time: updates
# are many small ones. XLA_FLAGS may choose otherwise.
_MODE = "xla_gpu_command_buffer_scheduling_mode"
AT_ONCE = {} if _MODE in os.environ.get("XLA_FLAGS", "") else {_MODE: "CONCURRENT"}


@partial(
    jax.jit,
    static_argnames=STATIC,
    donate_argnames="state",
    compiler_options=AT_ONCE,  # pyright: ignore[reportArgumentType]
)
def _together(update, state, replicas, rows, first_step, steps, batch_size, sizes):
    def one(state, replica):
        return _steps(
            update, state, replica, rows, first_step, steps, batch_size, sizes
        )

    return jax.vmap(one)(state, replicas)


@partial(jax.jit, static_argnames=STATIC)
def _alone(update, state, replica, rows, first_step, steps, batch_size, sizes):
    return _steps(update, state, replica, rows, first_step, steps, batch_size, sizes)


def _steps(update, state, replica, rows, first_step, steps, batch_size, sizes):
    """Of one replica."""

    def draw(step: Array) -> tuple[Key, Array]:
        key_batch, key_update = keys_at(replica.seed, step)
        index = jax.random.randint(key_batch, (batch_size,), 0, replica.size)
        return key_update, replica.start + index

    def one_step(state: Pytree, drawn: tuple[Key, Array]):
        key, index = drawn
        batch = unpack(rows[index], *sizes)
        state, metrics = update(state, batch, key, replica.config, replica.fitted)
        names.update(dict.fromkeys(metrics))
        # As one vector: a handful of kernels less.
        return state, jnp.stack(list(metrics.values()))

    # All at once, before the loop; each depends on its step alone.
    drawn = jax.vmap(draw)(first_step + jnp.arange(steps, dtype=jnp.int32))
    names: dict[str, None] = {}
    state, metrics = jax.lax.scan(one_step, state, drawn)
    return state, dict(zip(names, metrics.mean(axis=0)))
