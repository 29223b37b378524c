"""How long fleets will take here, and how much memory: before any of them begins.

python -m manyhands.sweep.estimate DIR, a process of its own, so that a GPU's memory is
free again when fleets begin: reads an `Asked` from its standard input, and writes an
`Estimate`.

Times are counted, not measured: operations of each update by the speed of the device,
and what a process and a compilation take. Expect them to be off by a factor of two;
where DIR holds results of the same algorithm on the same device, its times correct the
count.
"""

import functools
import json
import math
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyhands import datasets
from manyhands.algos.registry import algorithm
from manyhands.behavior.options import resolve
from manyhands.dynamics.termination import rule_of
from manyhands.envs import fork
from manyhands.errors import UserError
from manyhands.runs import environment
from manyhands.sweep.making import data_file, made_here
from manyhands.sweep.plan import Fleet, joined, parts
from manyhands.sweep.programs import Program, Sizes, Work, programs
from manyhands.sweep.results import Results
from manyhands.zoo.tasks import TASKS

# Fitted to thirty times measured on one NVIDIA H200, jax 0.11: ten learners with 8 to
# 66 products and 0.07 to 14 GFLOP, 1, 5 and 25 replicas (results/algos_speed.md).
GPU_PRODUCT = 6e-6  # seconds for each product and what is around it
GPU_RATE = 57e12  # FLOP/s beyond that
# Of `smoke` on two cores: what an update reaches of a plain product's rate.
CPU_SHARE = 0.5
CPU_PRODUCT = 10e-6
PROCESS = 5.0  # seconds: imports, reading the data, starting environments
COMPILE = 5.0  # seconds for each program, and the small ones around it
PLAYED = 4000  # steps a second of MuJoCo's tasks on each core, with a policy's acting
CHUNK = 1000  # updates whose batches are drawn together
# Copies of a state in memory: itself, the one that is evaluated or the best so far, and
# gradients with what an update makes before it lets go of the old.
COPIES = 3
# Where the device is the host: copies of the data, and a process with its compilers
# (0.6 to 1.3 GB for fleets of `smoke`).
HOST_COPIES = 4
HOST_PROCESS = 1.3e9
# Runs of one program that keep a GPU busy: launches are then a quarter of its time.
RUNS_TOGETHER = 24
REFUSED = 3  # exit code


class Speed(NamedTuple):
    device: str
    memory: float  # bytes that a fleet may use
    rate: float  # FLOP/s
    product: float  # seconds
    together: bool  # replicas share the time that a product takes

    @staticmethod
    def here(jobs: int) -> "Speed":
        device = environment()["device"]
        if jax.default_backend() == "cpu":
            memory = math.inf
            if hasattr(os, "sysconf"):  # not on Windows
                memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / jobs
            rate = CPU_SHARE * matmul_rate()
            return Speed(device, memory, rate, CPU_PRODUCT, together=False)
        stats = jax.devices()[0].memory_stats() or {}
        limit = float(stats.get("bytes_limit", math.inf))
        return Speed(device, limit, GPU_RATE, GPU_PRODUCT, together=True)


def matmul_rate() -> float:
    """FLOP/s of a product as learners have them, the best of some."""
    rows, width, times = 256, 300, 100
    matrix = jnp.full((width, width), 1 / width)

    @jax.jit
    def several(x):
        return jax.lax.fori_loop(0, times, lambda _, x: x @ matrix, x)

    x, best = jnp.ones((rows, width)), math.inf
    several(x).block_until_ready()
    for _ in range(5):
        started = time.perf_counter()
        several(x).block_until_ready()
        best = min(best, time.perf_counter() - started)
    return 2 * rows * width * width * times / best


class Cost(NamedTuple):
    seconds: float
    memory: float  # bytes, the most at any time
    measured: bool  # corrected by results of the same algorithm


# What is asked, and answered


class Asked(NamedTuple):
    fleets: list[Fleet]
    jobs: int = 1
    split: bool = True  # fleets that memory is too small for
    # Data sets of the same shape in one fleet; None: as many as serve the device.
    together: int | None = 1

    def to_json(self) -> str:
        fleets = [asdict(fleet) for fleet in self.fleets]
        return json.dumps(self._asdict() | {"fleets": fleets})

    @staticmethod
    def from_json(text: str) -> "Asked":
        content = json.loads(text)
        content["fleets"] = [Fleet.from_json(json.dumps(f)) for f in content["fleets"]]
        return Asked(**content)


class Estimate(NamedTuple):
    device: str
    memory: float  # bytes that a fleet may use
    fleets: list[Fleet]  # those asked for, or parts of them
    costs: list[Cost | None]  # None: nobody knows, for its data cannot be read

    def longest_first(self) -> "Estimate":
        """What begins last should be short where several run at a time, or one is at
        work while the others have ended. Unknown ones fail soon: they come last."""
        pairs = list(zip(self.fleets, self.costs))
        pairs.sort(key=lambda pair: -(pair[1].seconds if pair[1] else 0.0))
        fleets, costs = map(list, zip(*pairs))
        return self._replace(fleets=fleets, costs=costs)

    def table(self) -> str:
        """For people: a line for each fleet, and one for all."""
        rows = [["fleet", "runs", "time", "memory", "time from"]]
        for fleet, cost in zip(self.fleets, self.costs):
            known = ["?", "?", "its data cannot be read"]
            if cost:
                how = "results" if cost.measured else "count"
                known = [duration(cost.seconds), size(cost.memory), how]
            rows.append([fleet.name, str(len(fleet.keys)), *known])
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            "  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])])
            for name, *cells in rows
        ]
        known = [cost for cost in self.costs if cost]
        if known:
            total = duration(sum(cost.seconds for cost in known))
            longest = duration(max(cost.seconds for cost in known))
            memory = size(max(cost.memory for cost in known))
            lines.append(
                f"all on this device ({self.device}), one after another: roughly "
                f"{total}, the longest {longest}; at most {memory} of "
                f"{size(self.memory)} memory"
            )
        return "\n".join(lines)

    def to_json(self) -> str:
        fleets = [asdict(fleet) for fleet in self.fleets]
        return json.dumps([self.device, self.memory, fleets, self.costs])

    @staticmethod
    def from_json(text: str) -> "Estimate":
        device, memory, fleets, costs = json.loads(text)
        fleets = [Fleet.from_json(json.dumps(fleet)) for fleet in fleets]
        return Estimate(device, memory, fleets, [c and Cost(*c) for c in costs])


def ask(folder: Path, asked: Asked, environ: dict[str, str] | None = None) -> Estimate:
    """By a process that gives back the device when it ends.

    Raises UserError where a fleet is too large, RuntimeError where nothing is known.
    """
    done = subprocess.run(
        [sys.executable, "-m", "manyhands.sweep.estimate", str(folder)],
        input=asked.to_json(),
        capture_output=True,
        text=True,
        env=environ,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        refused = UserError if done.returncode == REFUSED else RuntimeError
        raise refused(lines[-1] if lines else f"exit code {done.returncode}")
    return Estimate.from_json(done.stdout.splitlines()[-1])


def answer(folder: Path, asked: Asked) -> Estimate:
    speed = Speed.here(asked.jobs)
    counter = Counter(folder, speed)
    chosen, costs = [], []

    def fits(fleet: Fleet) -> bool:
        return counter.memory(fleet) <= speed.memory

    def most(fleet: Fleet) -> int:
        if asked.together is not None:
            return asked.together
        return RUNS_TOGETHER // len(fleet.keys) if speed.together else 1

    for fleet in joined(asked.fleets, counter.kind, most):
        if not counter.knows(fleet):  # the fleet itself will say why
            chosen, costs = [*chosen, fleet], [*costs, None]
            continue
        mine = parts(fleet, fits) if asked.split else [fleet]
        if not mine:
            one = replace(
                fleet, data=fleet.data[:1], k=fleet.k[:1], seeds=fleet.seeds[:1]
            )
            needed = counter.memory(one) / 1e9
            raise UserError(
                f"{fleet.name}: one run needs {needed:.1f} GB of memory and may use "
                f"{speed.memory / 1e9:.1f}; use fewer transitions or a smaller "
                "batch_size, fewer --jobs, or another device"
            )
        chosen += mine
        costs += [counter.cost(part) for part in mine]
    return Estimate(speed.device, speed.memory, chosen, costs)


class Counter:
    """Remembers what it has counted: data sets of one task are alike."""

    def __init__(self, folder: Path, speed: Speed):
        self.folder, self.speed = folder, speed
        self._sizes: dict[str, Sizes] = {}
        self._work: dict[tuple, Work] = {}

    def sizes(self, fleet: Fleet) -> list[Sizes]:
        """Of each of its data sets."""
        for data in fleet.data:
            if data not in self._sizes:
                alone = sizes_of(self.folder, data, fleet.transitions)
                self._sizes[data] = alone
        return [self._sizes[data] for data in fleet.data]

    def knows(self, fleet: Fleet) -> bool:
        try:
            self.sizes(fleet)
        except UserError:
            return False
        return True

    def kind(self, fleet: Fleet) -> Hashable | None:
        """What data sets of one program have in common."""
        if not self.knows(fleet):
            return None
        ((data,), (sizes,)) = fleet.data, self.sizes(fleet)
        ends = rule_of(sizes.env) if algorithm(fleet.algo).before else "as it does"
        if ends is None:
            return None  # a learnt world: each set decides for itself whether it ends
        # By the size that was asked for: there is a little more when it is made.
        size = asked_for(data, fleet.transitions) or sizes.transitions
        fitted_for = resolve("default", {}, size).steps
        return sizes.observations, sizes.actions, fitted_for, ends

    def cost(self, fleet: Fleet) -> Cost:
        seconds, factor = self.seconds(fleet), self.correction.get(fleet.label)
        memory = self.memory(fleet)
        return Cost(seconds * (factor or 1), memory, measured=factor is not None)

    def memory(self, fleet: Fleet) -> float:
        """Bytes: the data, all states, results of products for gradients."""
        every, largest, speed = *self._both(fleet), self.speed
        table = sum(4 * sizes.transitions * sizes.columns for sizes in every)
        if not speed.together:
            table = HOST_COPIES * table + HOST_PROCESS
        most = 0.0
        for program in programs(fleet, largest):
            many = program.replicas
            drawn = 4 * CHUNK * program.batch_size
            at_work = many if speed.together else 1
            state = many * COPIES * program.state_bytes
            work = self.work(fleet, largest, program)
            most = max(most, state + at_work * (drawn + work.saved))
        return table + most

    def seconds(self, fleet: Fleet) -> float:
        every, largest = self._both(fleet)
        speed, total, updating = self.speed, PROCESS, 0.0
        for program in programs(fleet, largest):
            work, many = self.work(fleet, largest, program), program.replicas
            launches = work.products * speed.product * (1 if speed.together else many)
            each = launches + many * work.flops / speed.rate
            updating += program.steps * each
            total += COMPILE
        each = len(fleet.keys) // len(every) * fleet.episodes
        steps = each * sum(sizes.episode for sizes in every if sizes.env)
        # Beside a GPU that goes on learning, but for the last one.
        playing = steps / (PLAYED * (os.cpu_count() or 1))
        along = fleet.evaluations * playing
        both = max(updating, along) if speed.together else updating + along
        return total + both + playing

    def _both(self, fleet: Fleet) -> tuple[list[Sizes], Sizes]:
        """Of each data set, and of the largest."""
        every = self.sizes(fleet)
        return every, max(every, key=lambda sizes: sizes.trajectories)

    def work(self, fleet: Fleet, sizes: Sizes, program: Program) -> Work:
        # Trajectories and K hardly matter for it, and counting takes a while.
        key = (
            fleet.label,
            program.name,
            program.update,
            program.batch_size,
            sizes.observations,
            sizes.actions,
        )
        if key not in self._work:
            self._work[key] = program.work()
        return self._work[key]

    @functools.cached_property
    def correction(self) -> dict[str, float]:
        """By label: seconds that fleets took here, in units of what was counted."""
        found: dict[str, dict[tuple, float]] = defaultdict(dict)
        together: dict[tuple, list[dict[str, Any]]] = defaultdict(list)
        for row in Results(self.folder).rows():
            whole = not row.get("fleet_resumed", True)
            if whole and row["environment"]["device"] == self.speed.device:
                key = row["label"], row["fleet_seconds"]
                together[key].append(row)
        for (label, seconds), rows in together.items():
            fleet = _fleet_of(rows)
            counted = self.seconds(fleet)
            found[label][fleet.data, fleet.seeds, fleet.k] = seconds / counted
        return {k: float(np.median(list(v.values()))) for k, v in found.items()}


def _fleet_of(rows: list[dict[str, Any]]) -> Fleet:
    """That left these results."""
    one = rows[0]
    ks = dict.fromkeys(row["k"] for row in rows if row["k"] is not None)
    return Fleet(
        data=tuple(dict.fromkeys(row["data"] for row in rows)),
        label=one["label"],
        algo=one["algo"],
        preset=one["preset"],
        k=tuple(k if k == "auto" else int(k) for k in ks),
        seeds=tuple(dict.fromkeys(row["seed"] for row in rows)),
        episodes=one.get("episodes") or 0,
        evaluations=max(0, len(one["curve"])),
        transitions=one["transitions"],
        options=one["options"],
    )


# Data sets


def sizes_of(folder: Path, data: str, transitions: int | None) -> Sizes:
    """By its file, or by its name where it is still to be made."""
    place = data_file(folder, data)
    if not made_here(data):
        return _with_episode(Sizes.of(datasets.load(data)))
    if place.exists():
        return _with_episode(Sizes.of(datasets.load(place)))
    size = asked_for(data, transitions)
    assert size is not None
    maker, _, name = data.partition(":")
    if maker == "fork":
        shape = fork.OBSERVATION_SIZE, fork.ACTION_SIZE
        env = fork.COURSES[name.partition("-")[0]].env_id
        return _with_episode(Sizes(*shape, size, -(-size // fork.HORIZON), env))
    task = TASKS[name.partition("-")[0]]
    shape = task.observations, task.actions
    return Sizes(*shape, size, -(-size // 1000), task.env_id)


def asked_for(data: str, transitions: int | None) -> int | None:
    """Transitions of a data set that is made here."""
    if not made_here(data):
        return None
    usual = datasets.usual_size(data.partition(":")[2])  # knows what names there are
    return transitions or usual


def _with_episode(sizes: Sizes) -> Sizes:
    ours = sizes.env in {course.env_id for course in fork.COURSES.values()}
    return sizes._replace(episode=fork.HORIZON) if ours else sizes


def size(memory: float) -> str:
    return f"{memory / 1e9:.1f} GB" if memory >= 1e9 else f"{memory / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def main() -> None:
    asked = Asked.from_json(sys.stdin.read())
    try:
        print(answer(Path(sys.argv[1]), asked).to_json())
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
