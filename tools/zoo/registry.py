"""Fingerprints of small versions of all data sets, to notice when they change.

A new simulator, a new policy or another way to draw noise makes other data. So do other
processors in the last bits, and chaos enlarges them: every kind of machine has
fingerprints of its own, and where none are registered there is nothing to compare.
"""

import json
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from manyhands.agents.data_sets import make
from manyhands.files import atomic_file

TRANSITIONS = 10_000
REGISTRY = Path(__file__).parent / "fingerprints.json"


class Check(NamedTuple):
    name: str
    expected: str | None  # none: not registered on this kind of machine
    found: str

    @property
    def same(self) -> bool:
        return self.expected == self.found


def check(which: Iterable[str], path: Path = REGISTRY) -> Iterator[Check]:
    """Make the small versions, and compare."""
    known = _read(path).get(machine(), {})
    for name in which:
        found = make(name, TRANSITIONS).fingerprint
        yield Check(name, known.get(name), found)


def write(checks: Iterable[Check], path: Path = REGISTRY) -> None:
    """Register these fingerprints for this kind of machine."""
    found = {check.name: check.found for check in checks}
    with atomic_file(path) as temporary:
        content = _read(path) | {machine(): found}
        temporary.write_text(json.dumps(content, indent=1) + "\n")


def machines(path: Path = REGISTRY) -> list[str]:
    """The kinds of machines that have registered fingerprints."""
    return list(_read(path))


def machine() -> str:
    """Processor and C library: what numerical libraries choose their kernels by."""
    about = f"{platform.machine()} {''.join(platform.libc_ver())}"
    cpus = Path("/proc/cpuinfo")
    if not cpus.exists():
        return f"{platform.system()} {about}"
    rows = [line.split(":") for line in cpus.read_text().split("\n\n")[0].splitlines()]
    facts = {row[0].strip(): row[1].strip() for row in rows if len(row) == 2}
    wide = "avx512" if "avx512f" in facts.get("flags", "") else "no avx512"
    parts = (facts.get(key, "?") for key in ("vendor_id", "cpu family", "model"))
    return f"{about} {' '.join(parts)} {wide}"


def _read(path: Path) -> dict[str, dict[str, str]]:
    """Fingerprints by machine and data set."""
    return json.loads(path.read_text()) if path.exists() else {}
