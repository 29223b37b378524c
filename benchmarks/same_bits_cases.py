"""The cases of `same_bits.py`: small runs whose results must stay the same.

They use what users use and nothing else: `import manyhands as mh`, the command line,
and the files of run directories. A group of cases runs in a process of its own:
`python benchmarks/same_bits_cases.py GROUP RESULTS NAME...` adds a line of JSON to
RESULTS for every case named.

What is expected to change has "(may change)" in its name. Of entries, "words" are what
people read, and "not compared" is recorded to be looked at only.
"""

import json
import subprocess
import sys
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGKILL
from typing import Any

import same_bits_commands as commands
import same_bits_files as files
import same_bits_learning as learning
from same_bits_files import Entries
from same_bits_learning import PLAYED, TINY, Case, small

# Interrupted and continued: children that end themselves, by a real signal

PROGRAM = """
import json, os, sys
from pathlib import Path
import manyhands as mh
asked = json.loads(sys.argv[1])
out, place = Path(asked["out"]), asked["place"]

def progress(done, shown):
    if place is not None and (out / place / "checkpoints").exists():
        os.kill(os.getpid(), asked["signal"])

getattr(mh, asked["call"])(
    mh.make("fork-2", 600), asked["what"], out=out, checkpoint_seconds=0.0,
    progress=progress, **asked["options"])
"""
# Where in the run there is to be a checkpoint, and by what it is then stopped.
Stops = list[tuple[str, int]]


def begin(request: dict[str, Any], out: Path, place: str | None, sign: int) -> int:
    asked = request | {"out": str(out), "place": place, "signal": sign}
    words = [sys.executable, "-c", PROGRAM, json.dumps(asked)]
    ended = subprocess.run(words, capture_output=True, text=True)
    finished = (out / "summary.json").exists()
    if finished != (place is None):
        raise RuntimeError(f"{place}: finished: {finished}; {ended.stderr[-2000:]}")
    return ended.returncode


def interrupted(request: dict[str, Any], stops: Stops, folder: Path) -> Entries:
    """The run that was interrupted, and where it is not what a straight one is."""
    straight, out = folder / "straight", folder / "run"
    begin(request, straight, None, 0)
    codes = [begin(request, out, place, sign) for place, sign in stops]
    begin(request, out, None, 0)
    found = files.read(out)
    other = files.differences(files.read(straight), found)
    return {"exit codes": codes, "unlike the straight run": sorted(other), **found}


def interruptions() -> list[Case]:
    fitted = TINY | dict(k=2, seed=[0, 1], values=True)
    printed = small("lbrac_v", preset="paper", seed=[0, 1])
    modelled = small("mopo", model_steps=750)
    played = small("td3_bc", seed=[0, 1], **PLAYED)
    pairs: list[tuple[str, str, str, dict[str, Any], Stops]] = [
        ("fit vq", "fit", "vq", fitted, [("", SIGKILL), ("", SIGINT)]),
        (
            "train lbrac_v printed, its set first",
            "train",
            "lbrac_v",
            printed,
            [("behavior", SIGKILL), ("", SIGKILL)],
        ),
        (
            "train mopo, its dynamics first",
            "train",
            "mopo",
            modelled,
            [("dynamics", SIGINT), ("", SIGKILL)],
        ),
        ("train td3_bc", "train", "td3_bc", played, [("", SIGINT), ("", SIGKILL)]),
    ]
    return [
        Case(
            f"interrupted {name}",
            partial(interrupted, dict(call=call, what=what, options=options), stops),
        )
        for name, call, what, options, stops in pairs
    ]


DATA = learning.fork, learning.three, learning.wide, learning.hopper
GROUPS: dict[str, list[Case]] = {
    "data": [
        Case(f"data: {make.__name__}", partial(learning.data_set, make))
        for make in DATA
    ],
    **{f"train {algo}": learning.learner(algo) for algo in learning.LEARNERS},
    "train lbrac_v": learning.lbrac_v(),
    "train": learning.of_other_kinds(),
    "dynamics": learning.dynamics(),
    "fit vq": learning.fits_vq(),
    **{f"fit {one}": learning.fits_of_one(one) for one in learning.OF_ONE},
    "interrupted": interruptions(),
    "zoo": commands.zoos(),
    "cli": commands.sessions(),
    "help": commands.helps(),
    "refused": commands.refusals(),
    "benchmark": commands.benchmark(),
}


def main() -> None:
    group, results, *names = sys.argv[1:]
    for case in GROUPS[group]:
        if case.name not in names:
            continue
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = {"entries": case.run(Path(folder))}
            except Exception:
                found = {"failed": traceback.format_exc()}
        found |= {"name": case.name, "seconds": time.perf_counter() - started}
        with Path(results).open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
