"""Seconds and memory of fleets, from the stages that they will train.

The stages are those of the fleet's own request, on random data of the same sizes. XLA
counts the operations of their updates. The first chunk of each program is made and
timed, for as long as there is time for it; the others go by their operations.
"""

import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyhands import fleet as fleets
from manyhands.algos import request as requests
from manyhands.algos.policy import Policy
from manyhands.algos.request import Request
from manyhands.algos.train import carry_out
from manyhands.envs.pool import Pool
from manyhands.envs.processes import cores
from manyhands.errors import UserError
from manyhands.sweep.data_sizes import Sizes, size_to_make, sizes_in, sizes_of
from manyhands.sweep.plan import Fleet
from manyhands.training.loop import Chunk, Stage, collecting
from manyhands.training.replicas import take

UPDATES = 20  # of a chunk that is timed
PATIENCE = 60.0  # seconds for all measurements
# Where the device is the host: the data as it is read, scaled, packed, and joined.
HOST_COPIES = 4
# Of a state: itself, the one that is evaluated or the best so far, and its gradients.
COPIES = 3
PLAYED = 100  # steps of an environment that are timed


class Cost(NamedTuple):
    seconds: float
    memory: float  # bytes, the most at any time
    measured: bool  # by first chunks; else by operations


@dataclass
class Program:
    """`steps` updates of a stage, by one function."""

    stage: Stage
    chunk: Chunk
    steps: int

    @property
    def replicas(self) -> int:
        return len(self.chunk.replicas)

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """Of the update of one replica: shapes."""
        chunk, replicas = self.chunk, self.chunk.replicas
        rows = jnp.zeros((chunk.batch_size, chunk.data.rows.shape[1]))
        sizes = chunk.data.observation_size, chunk.data.action_size
        batch = fleets.unpack(rows, *sizes)
        own = take((self.stage.state, replicas.config, replicas.fitted), 0)
        state, config, fitted = own
        return state, batch, jax.random.key(0), config, fitted

    @cached_property
    def flops(self) -> float:
        """Of an update of one replica, before XLA has simplified it."""
        lowered = jax.jit(self.chunk.update).lower(*self.arguments)
        return float((lowered.cost_analysis() or {}).get("flops", 0.0))

    @property
    def state_bytes(self) -> int:
        """Of one replica: what changes, and what stays."""
        leaves = jax.tree.leaves((self.arguments[0], self.arguments[4]))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    @property
    def batch_bytes(self) -> int:
        """Of what an update keeps for its gradients, roughly: a few layers' results."""
        widest = max((leaf.shape[-1] for leaf in self._matrices), default=1)
        return 4 * self.chunk.batch_size * widest * 4 * len(self._matrices)

    @property
    def _matrices(self) -> list[Any]:
        leaves = jax.tree.leaves(self.arguments[0])
        return [leaf for leaf in leaves if leaf.ndim > 1]

    def measure(self) -> tuple[float, float]:
        """Seconds of an update of all replicas, and of compiling."""
        state, times = self.stage.state, []
        for _ in range(3):
            state = jax.tree.map(jnp.copy, state)
            began = time.perf_counter()
            after = fleets.advance(
                self.chunk.update,
                state,
                self.chunk.replicas,
                self.chunk.data,
                0,
                UPDATES,
                self.chunk.batch_size,
            )
            jax.block_until_ready(after)
            times.append(time.perf_counter() - began)
        return min(times[1:]) / UPDATES, max(0.0, times[0] - times[1])


def programs(stage: Stage) -> list[Program]:
    """The programs of a stage, in the order in which they run."""
    found: dict[Callable, Program] = {}
    step = 0
    while step < stage.steps:
        chunk = stage.chunk(step)
        if chunk.update not in found:
            found[chunk.update] = Program(stage, chunk, 0)
        found[chunk.update].steps += chunk.steps
        step += chunk.steps
    return list(found.values())


def request_of(fleet: Fleet, sizes: list[Sizes]) -> Request:
    """The fleet's request, on random data of these sizes."""
    sets = [one.stand_in() for one in sizes]
    found = requests.resolve(
        sets,
        fleet.algo,
        k=list(fleet.k) or None,
        seed=list(fleet.seeds),
        preset=fleet.preset,
        episodes=0,
        **fleet.options,
    )
    return replace(found, transitions=max(one.transitions for one in sizes))


def rehearse(request: Request) -> tuple[list[Stage], list[Policy]]:
    """The stages of a request, ready to begin, and policies that learnt nothing."""
    with collecting() as stages:
        policies = carry_out(request)
    return stages, policies


class Costs:
    """Remembers what it has found: data sets of one task are alike."""

    def __init__(self, folder: Path, together: bool):
        self.folder, self.together = folder, together
        self.left = PATIENCE
        self._sizes: dict[tuple[str, int | None], Sizes] = {}
        self._programs: dict[tuple, list[Program]] = {}
        self._measured: dict[tuple, list[tuple[float, float]]] = {}
        self._rates: list[float] = []  # seconds for each operation
        self._played: dict[str, float] = {}

    def sizes(self, fleet: Fleet) -> list[Sizes]:
        """Of each of its data sets."""
        for data in fleet.data:
            key = data, fleet.transitions
            if key not in self._sizes:
                self._sizes[key] = sizes_of(self.folder, *key)
        found = [self._sizes[data, fleet.transitions] for data in fleet.data]
        return [sizes_in(sizes, fleet.env) for sizes in found] if fleet.env else found

    def knows(self, fleet: Fleet) -> bool:
        try:
            self.sizes(fleet)
        except UserError:
            return False
        return True

    def kind(self, fleet: Fleet) -> Any:
        """What data sets of one program have in common; None: it trains alone."""
        if not self.knows(fleet):
            return None
        ((data,), (sizes,)) = fleet.data, self.sizes(fleet)
        # By the size that was asked for: there is a little more when it is made.
        size = size_to_make(data, fleet.transitions) or sizes.transitions
        most = max(sizes.trajectories, *map(_k, fleet.k), 1)
        about = sizes._replace(trajectories=most)
        request = replace(request_of(fleet, [about]), transitions=size)
        options = request.options[0][0]
        if getattr(options, "ending", None) == "learned":
            return None  # each set decides for itself whether its world ends
        structure = jax.tree.structure(options)
        shape = sizes.observations, sizes.actions
        return (*shape, tuple(request.stages), structure)

    # Memory

    def memory(self, fleet: Fleet) -> float:
        """Bytes: the data, all states, what updates make."""
        every = self.sizes(fleet)
        table = sum(sizes.table for sizes in every)
        most, many = 0.0, len(fleet.keys)
        for program in self.programs(_alone(fleet), self._largest(fleet)):
            at_work = many if self.together else 1
            states = many * COPIES * program.state_bytes
            most = max(most, states + at_work * program.batch_bytes)
        if self.together:
            return table + most
        return HOST_COPIES * table + most + _process()

    def programs(self, fleet: Fleet, sizes: Sizes) -> list[Program]:
        key = _key(fleet, sizes)
        if key not in self._programs:
            stages, _ = rehearse(request_of(fleet, [sizes]))
            self._programs[key] = [p for stage in stages for p in programs(stage)]
        return self._programs[key]

    def _largest(self, fleet: Fleet) -> Sizes:
        return max(self.sizes(fleet), key=lambda sizes: sizes.trajectories)

    # Seconds

    def cost(self, fleet: Fleet) -> Cost:
        # On a GPU replicas share launches; on a CPU one runs after the other.
        one = _as_one(fleet) if self.together else _alone(fleet)
        largest = self._largest(fleet)
        found = self.programs(one, largest)
        times = self._times(_key(one, largest), found)
        rate = float(np.median(self._rates)) if self._rates else math.nan
        total = 0.0
        for n, program in enumerate(found):
            share = len(fleet.keys) / program.replicas
            if times:
                each, compiling = times[n]
            else:
                each, compiling = rate * program.flops * program.replicas, 0.0
            total += share * each * program.steps + compiling
        total += self._playing(fleet)
        return Cost(total, self.memory(fleet), measured=bool(times))

    def _times(
        self, key: tuple, found: list[Program]
    ) -> list[tuple[float, float]] | None:
        if key not in self._measured and self.left > 0:
            began = time.perf_counter()
            self._measured[key] = [program.measure() for program in found]
            self.left -= time.perf_counter() - began
            for (seconds, _), program in zip(self._measured[key], found):
                if program.flops:
                    self._rates.append(seconds / (program.flops * program.replicas))
        return self._measured.get(key)

    def _playing(self, fleet: Fleet) -> float:
        """Seconds of all evaluations, none of them beside the training."""
        every, total = self.sizes(fleet), 0.0
        runs = len(fleet.keys) // len(every)
        for sizes in every:
            if sizes.env and fleet.episodes:
                steps = runs * fleet.episodes * sizes.episode
                total += steps * (fleet.evaluations + 1) * self._step(sizes.env)
        return total

    def _step(self, env: str) -> float:
        """Seconds of a step with all cores at work; 0 where it cannot be made."""
        if env not in self._played:
            try:
                self._played[env] = _time_steps(env)
            except UserError:
                self._played[env] = 0.0
        return self._played[env]


def _time_steps(env: str) -> float:
    many = 4 * cores()
    slots = np.arange(many)
    with Pool([env] * many) as pool:
        pool.reset(slots, slots)
        pool.exchange()
        began = time.perf_counter()
        for _ in range(PLAYED):
            pool.step(slots, np.zeros((many, pool.actions), np.float32))
            pool.exchange()
        return (time.perf_counter() - began) / (PLAYED * many)


def _process() -> float:
    """Bytes of a process that has compiled such programs: of this one."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _k(k: int | str) -> int:
    return 1 if k == "auto" else int(k)


def _alone(fleet: Fleet) -> Fleet:
    """Its largest replica."""
    k = tuple(sorted(fleet.k, key=_k)[-1:])
    return replace(fleet, data=fleet.data[:1], k=k, seeds=fleet.seeds[:1])


def _as_one(fleet: Fleet) -> Fleet:
    """As many replicas on one data set."""
    many = len(fleet.keys)
    return replace(_alone(fleet), seeds=tuple(range(many)))


def _key(fleet: Fleet, sizes: Sizes) -> tuple:
    # Numbers of trajectories hardly matter for an update.
    shape = sizes.observations, sizes.actions, sizes.env, sizes.terminals
    about = fleet.algo, fleet.preset, fleet.k, len(fleet.seeds), str(fleet.options)
    return (*about, *shape, sizes.transitions)
