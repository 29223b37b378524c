"""Seconds and memory of fleets.

Times are counted, not measured: operations of each update by the speed of the device,
and what a process and a compilation take. Expect them to be off by a factor of two;
where a folder holds results of the same algorithm on the same device, its times correct
the count.
"""

import functools
import os
from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyhands.algos.registry import algorithm
from manyhands.behavior.options import resolve
from manyhands.dynamics.termination import rule_of
from manyhands.errors import UserError
from manyhands.sweep.data_sizes import asked_for, sizes_in, sizes_of
from manyhands.sweep.device_speed import Speed
from manyhands.sweep.plan import Fleet
from manyhands.sweep.programs import Program, Sizes, Work, programs
from manyhands.sweep.results import Results

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


class Cost(NamedTuple):
    seconds: float
    memory: float  # bytes, the most at any time
    measured: bool  # corrected by results of the same algorithm


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
        found = [self._sizes[data] for data in fleet.data]
        return [sizes_in(sizes, fleet.env) for sizes in found] if fleet.env else found

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
            try:
                counted = self.seconds(fleet)
            except UserError:  # its data is gone, or its options are an older version's
                continue
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
        env=one.get("env"),
    )
