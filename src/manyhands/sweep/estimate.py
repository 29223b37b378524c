"""How long fleets will take here, and how much memory: before any of them begins.

python -m manyhands.sweep.estimate DIR, a process of its own, so that a GPU's memory is
free again when fleets begin: reads an `Asked` from its standard input, and writes an
`Estimate`.
"""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import jax

from manyhands.envs.processes import program
from manyhands.errors import UserError
from manyhands.runs import environment
from manyhands.sweep import memory
from manyhands.sweep.cost import Cost, Costs
from manyhands.sweep.plan import Fleet, joined, parts

# Runs of one program that keep a GPU busy: launches are then a quarter of its time.
RUNS_TOGETHER = 24
REFUSED = 3  # exit code


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
                how = "first updates" if cost.measured else "operations"
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
            most = size(max(cost.memory for cost in known))
            lines.append(
                f"all on this device ({self.device}), one after another: roughly "
                f"{total}, the longest {longest}; at most {most} of "
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
        program("manyhands.sweep.estimate", [str(folder)]),
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
    together = jax.default_backend() != "cpu"
    limit = memory.available(asked.jobs)
    costs = Costs(folder, together)
    chosen: list[Fleet] = []
    found: list[Cost | None] = []

    def fits(fleet: Fleet) -> bool:
        return costs.memory(fleet) <= limit

    def most(fleet: Fleet) -> int:
        if asked.together is not None:
            return asked.together
        return RUNS_TOGETHER // len(fleet.keys) if together else 1

    for fleet in joined(asked.fleets, costs.kind, most):
        if not costs.knows(fleet):  # the fleet itself will say why
            chosen, found = [*chosen, fleet], [*found, None]
            continue
        mine = parts(fleet, fits) if asked.split else [fleet]
        if not mine:
            one = replace(
                fleet, data=fleet.data[:1], k=fleet.k[:1], seeds=fleet.seeds[:1]
            )
            needed = costs.memory(one) / 1e9
            raise UserError(
                f"{fleet.name}: one run needs {needed:.1f} GB of memory and may use "
                f"{limit / 1e9:.1f}; use fewer transitions or a smaller "
                "batch_size, fewer --jobs, or another device"
            )
        chosen += mine
        found += [costs.cost(part) for part in mine]
    return Estimate(environment()["device"], limit, chosen, found)


def size(bytes: float) -> str:
    return f"{bytes / 1e9:.1f} GB" if bytes >= 1e9 else f"{bytes / 1e6:.0f} MB"


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
