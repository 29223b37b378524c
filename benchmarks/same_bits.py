"""Does everything still give the same bits? For changes that must not change results.

`record` runs some hundred small cases with the code as it is (every learner and
estimator alone and several together, interrupted and continued runs, the zoo, a
benchmark, the command line) and writes what came out to a file. `compare` runs them
again with today's code and says, a line for each case, whether all is the same:

same    all of it
OTHER   numbers, arrays or files differ, or it failed
change  they do, where that is expected: "(may change)" in the case's name
words   only what people read differs; the differences follow

It exits with 1 if there is any OTHER. Both must run on the same machine, and take some
ten minutes of one core; with a folder in JAX_COMPILATION_CACHE_DIR that is kept, less
the second time. Programs are compiled with few optimizations, as in the tests (but the
benchmark's as ever); `record --optimized` has all of them.

Usage: python benchmarks/same_bits.py record FILE.json [--only WORD ...]
       python benchmarks/same_bits.py compare FILE.json [--only WORD ...] [--all]
       python benchmarks/same_bits.py compare FILE.json --with LATER.json
"""

import argparse
import difflib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from same_bits_cases import GROUPS
from same_bits_files import ABSENT, differences, leaves

import manyhands as mh

CASES = [case.name for cases in GROUPS.values() for case in cases]
PATIENCE = 1200  # seconds that a group of cases may take
SHOWN = 3  # differences of a case, unless all are asked for
CACHE = "JAX_COMPILATION_CACHE_DIR"
MAY_CHANGE, WORDS, NOT_COMPARED = "(may change)", "words", "not compared"
Found = dict[str, Any]  # of a case: its entries, or how it failed


def environ(optimized: bool) -> dict[str, str]:
    """All that may decide bits or words: pinned before JAX is imported."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    cache = {CACHE: os.environ[CACHE]} if CACHE in os.environ else {}
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {
        **given,
        **cache,
        **dict.fromkeys(threads, "1"),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": str(int(not optimized)),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "agg",
        "COLUMNS": "88",
        "LINES": "40",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


def machine(optimized: bool) -> dict[str, Any]:
    packages = ("jax", "jaxlib", "numpy", "scikit-learn", "mujoco", "gymnasium")
    return {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        "optimized": optimized,
    }


# Running


def chosen(names: Iterable[str], only: list[str]) -> list[str]:
    return [n for n in names if not only or any(word in n for word in only)]


def run(wanted: Container[str], optimized: bool) -> Iterator[tuple[str, Found]]:
    """Every group in a process of its own, in a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="same-bits-") as folder:
        pinned = {CACHE: str(Path(folder) / "compiled")} | environ(optimized)
        for number, (group, cases) in enumerate(GROUPS.items()):
            names = [case.name for case in cases if case.name in wanted]
            if not names:
                continue
            place = Path(folder) / str(number)
            place.mkdir()
            yield from run_group(group, names, place, pinned | {"TMPDIR": str(place)})


def run_group(
    group: str, names: list[str], folder: Path, pinned: dict[str, str]
) -> Iterator[tuple[str, Found]]:
    results = folder / "results.jsonl"
    program = Path(__file__).with_name("same_bits_cases.py")
    words = [sys.executable, str(program), group, str(results), *names]
    with (folder / "log.txt").open("w+") as log:
        try:
            how = dict(env=pinned, cwd=folder, stdout=log, stderr=log)
            subprocess.run(words, timeout=PATIENCE, **how)  # pyright: ignore
        except subprocess.TimeoutExpired:
            log.write(f"still running after {PATIENCE} seconds")
        log.seek(0)
        said = log.read()[-2000:]
    lines = results.read_text().splitlines() if results.exists() else []
    found = {one.pop("name"): one for one in map(json.loads, lines)}
    for name in names:
        yield name, found.get(name, {"failed": f"the process ended: {said}"})


def record(file: Path, only: list[str], optimized: bool) -> bool:
    started, cases = time.perf_counter(), {}
    for name, found in run(chosen(CASES, only), optimized):
        cases[name] = found
        said = found.get("failed") or f"{len(leaves(found['entries']))} entries"
        print(f"{found.get('seconds', 0):6.1f} s  {name}: {said}", flush=True)
    seconds = time.perf_counter() - started
    written = {"made by": machine(optimized), "seconds": seconds, "cases": cases}
    file.write_text(json.dumps(written, indent=1) + "\n")
    failed = [name for name in cases if "failed" in cases[name]]
    print(f"{len(cases)} cases in {seconds:.0f} s, {len(failed)} failed; wrote {file}")
    return not failed


# Comparing


def compare(file: Path, only: list[str], other: Path | None, everything: bool) -> bool:
    before = json.loads(file.read_text())
    optimized = before["made by"]["optimized"]
    if other:
        later = json.loads(other.read_text())
        made_by, cases = later["made by"], iter(later["cases"].items())
    else:
        made_by = machine(optimized)
        cases = run(chosen(before["cases"], only), optimized)
    for name, (was, now) in differences(before["made by"], made_by).items():
        print(f"note: {name} was {was}, is {now}")
    missing, counts = chosen(before["cases"], only), Counter()
    for name, now in cases:
        if name in missing:
            missing.remove(name)
            counts[judge(name, before["cases"][name], now, everything)] += 1
    for name in missing:
        print(f"OTHER   {name}: no longer there")
        counts["OTHER"] += 1
    print(", ".join(f"{many} {verdict}" for verdict, many in counts.items()))
    return not counts["OTHER"]


def judge(name: str, was: Found, now: Found, everything: bool) -> str:
    """Print what there is to say of a case."""
    failed = now.get("failed") or was.get("failed")
    if failed:
        print(f"OTHER   {name}: failed\n{failed}", flush=True)
        return "OTHER"
    found = differences(was["entries"], now["entries"])
    parts = {key: key.split(" > ") for key in found}
    texts = {key: pair for key, pair in found.items() if WORDS in parts[key]}
    rest = {
        key: pair
        for key, pair in found.items()
        if key not in texts and NOT_COMPARED not in parts[key]
    }
    verdict, many = "same", len(leaves(was["entries"]))
    if rest:
        verdict = "change" if MAY_CHANGE in name else "OTHER"
    elif texts:
        verdict = "words"
    print(f"{verdict:8}{name}: {summary(rest, texts, many)}", flush=True)
    named = renamed(rest)
    for key, name in named.items():
        print(f"            {key}: the same array is now {name}")
    others = [key for key in rest if key not in {*named, *named.values()}]
    for key in others[: None if everything else SHOWN]:
        one, other = rest[key]
        print(f"            {key}: {short(one)} -> {short(other)}")
    for key, (one, other) in texts.items():
        lines = one.splitlines(), other.splitlines()
        names = f"{key}, before", "now"
        for line in difflib.unified_diff(*lines, *names, lineterm=""):
            print(f"            {line}")
    return verdict


def renamed(found: dict[str, tuple[Any, Any]]) -> dict[str, str]:
    """Arrays that are still there, by another name: what it was and what it is."""

    def arrays(side: int) -> dict[str, str]:
        """Those on one side only, by their fingerprint."""
        return {
            pair[side]: key
            for key, pair in found.items()
            if pair[1 - side] == ABSENT and "] " in str(pair[side])
        }

    before, now = arrays(0), arrays(1)
    return {before[one]: now[one] for one in before if one in now}


def summary(rest: dict[str, Any], texts: dict[str, Any], many: int) -> str:
    if not rest and not texts:
        return f"{many} entries"
    places: dict[str, int] = {}
    for key in rest:
        place = key.split(" > ")[0]
        places[place] = places.get(place, 0) + 1
    words = [f"{count} in {place}" for place, count in places.items()]
    words += [f"{len(texts)} of words"] if texts else []
    return f"{len(rest)} of {many} entries differ: " + ", ".join(words)


def short(value: Any) -> str:
    said = json.dumps(value)
    return said if len(said) < 100 else f"{said[:60]} ... {said[-30:]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording, comparing = map(commands.add_parser, ("record", "compare"))
    for one in (recording, comparing):
        one.add_argument("file", type=Path)
        one.add_argument("--only", nargs="+", default=[], metavar="WORD")
    recording.add_argument(
        "--optimized", action="store_true", help="compile as users do; takes longer"
    )
    comparing.add_argument("--with", type=Path, dest="other", metavar="LATER")
    comparing.add_argument("--all", action="store_true", help="show every difference")
    args = parser.parse_args()
    print(f"manyhands of {Path(mh.__file__).parent}", flush=True)
    if args.command == "record":
        good = record(args.file, args.only, args.optimized)
    else:
        good = compare(args.file, args.only, args.other, args.all)
    sys.exit(not good)


if __name__ == "__main__":
    main()
