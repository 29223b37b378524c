"""Policies learnt from data of several sources: which variants hold, and how well.

A case is a data set and a variant of a learner (`hopper-heterogeneous-5/default`), a
process of its own; several run at a time, on one GPU. A case of several data sets of
one task (`hopper-medium+hopper-heterogeneous-5/weights`) is one program. First the data
sets are made and the behavior sets that several variants start from are fitted
(`--data` keeps both).
Results are lines of --out, one per replica, with all evaluations along the way; cases
that are there are not run again. Tables: benchmarks/policy_tables.py.
Usage: python benchmarks/policies.py --cases CASE ... [--steps 100000] [--jobs 12]
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import manyhands as mh
from manyhands.runs import environment

# The printed objective, from a behavior set that was fitted the default way, after the
# critics have warmed up.
PRINTED = dict(joint=True, pull=True, divergence="sampled", value_scale="none") | dict(
    held_to="own"
)
MEAN, EXACT = dict(value_scale="mean"), dict(divergence="exact")
STILL = dict(pull=False)
# How LBRAC-v may differ from it.
LBRAC: dict[str, dict[str, Any]] = {
    "printed": PRINTED,
    "printed+mean": PRINTED | MEAN,
    "printed+exact": PRINTED | EXACT,
    "printed+still": PRINTED | STILL,
    "printed+mean+still": PRINTED | MEAN | STILL,
    "joint": PRINTED | MEAN | EXACT | STILL,
    "own": dict(held_to="own", value_weight=[0.0, 0.5, 2.5, 10.0]),
    "best": dict(held_to="best", value_weight=[0.0, 0.5, 2.5, 10.0]),
    "own-high": dict(held_to="own", value_weight=[50.0, 400.0]),
    "best-high": dict(
        held_to="best", value_weight=[25.0, 100.0, 400.0], policy_rate=[5e-5, 3e-4]
    ),
    # Trust in Q, and how much leaving the behavior costs in what Q is trained on.
    "trust": dict(value_weight=[10.0, 50.0, 200.0], value_penalty=[1.0, 10.0, 100.0]),
    "default": {},
    # Their Q-functions begin anew.
    "own-fresh": dict(held_to="own"),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", {}),
    "clone": ("clone", {}),
    "brac_v": ("brac_v", {}),
    "brac_v-paper": ("brac_v", dict(preset="paper", beta=[1.0, 10.0, 100.0])),
    "lbrac_v-paper": ("lbrac_v", dict(preset="paper")),
    "lbrac_v": ("lbrac_v", {}),  # the default, with fits of its own
    # How much Q has to teach, of mediocre agents and of good ones.
    "weights": ("lbrac_v", dict(value_weight=[25.0, 100.0, 400.0])),
    "brac_v-weights": ("brac_v", dict(value_weight=[25.0, 100.0, 400.0])),
}


def data_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npz"


def set_folder(folder: Path, name: str) -> Path:
    return folder / f"{name}-set"


def make(name: str, folder: Path, transitions: int) -> None:
    if not data_file(folder, name).exists():
        data = mh.make(name, transitions)
        mh.save(data, data_file(folder, name))


def fit(name: str, folder: Path, args: argparse.Namespace) -> None:
    """The behavior sets that variants start from."""
    if (set_folder(folder, name) / "summary.json").exists():
        return
    data = mh.load(data_file(folder, name))
    mh.fit(
        data,
        k=args.k,
        seed=args.seeds,
        steps=args.fit_steps,
        values=args.values,
        out=set_folder(folder, name),
    )


def parts(case: str) -> tuple[list[str], str]:
    """The names of its data sets, and its variant."""
    names, variant = case.split("/")
    return names.split("+"), variant


def starts_from_a_set(variant: str) -> bool:
    return variant in LBRAC or variant == "clone"


def run_case(case: str, folder: Path, args: argparse.Namespace) -> list[dict]:
    names, variant = parts(case)
    data = [mh.load(data_file(folder, name)) for name in names]
    options: dict[str, Any] = dict(seed=args.seeds, evaluations=args.evaluations)
    if variant in LBRAC:
        algo, changes = "lbrac_v", LBRAC[variant]
    else:
        algo, changes = OTHERS[variant]
    if starts_from_a_set(variant):
        places = [
            set_folder(folder, n) / f"replica-{r}" for n in names for r in args.seeds
        ]
        sets = [mh.Behavior.load(place) for place in places]
        if variant.endswith("fresh"):
            sets = [replace(one, values=None) for one in sets]
        options["behavior"] = sets
    else:
        if algo != "bc":
            options["behavior_steps"] = args.behavior_steps
        if algo == "lbrac_v":
            options["k"] = args.k
    if algo != "clone":
        options["steps"] = args.steps
    run = Path(args.data) / "runs" / case.replace("/", "-")
    started = time.perf_counter()
    found = mh.train(
        data,
        algo,
        out=run,
        episodes=args.episodes,
        workers=args.workers,
        **options | changes,
    )
    seconds = time.perf_counter() - started
    each = len(found) // len(data)
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    rows = []
    for r, policy in enumerate(found):
        mine = [m for m in metrics if m["replica"] == r]
        curve = [
            [m["step"], m["evaluation/return_mean"], m["evaluation/relative"]]
            for m in mine
            if "evaluation/return_mean" in m
        ]
        last = next((m for m in reversed(mine) if "critic/loss" in m), {})
        grid = {k: getattr(policy.options, k) for k in changes if k != "preset"}
        about = policy.summary["policy"]
        rows.append(
            {"case": f"{names[r // each]}/{variant}", "seed": about["seed"]}
            | {"steps": args.steps, "options": grid}
            | {k: about[k] for k in ("return_mean", "return_std", "episodes")}
            | {k: about[k] for k in ("normalized", "relative")}
            | {"curve": curve, "last": {k: v for k, v in last.items() if "/" in k}}
            | {"timing": policy.summary["timing"], "case_seconds": seconds}
            | {"device": environment()["device"]}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--out", default="results/policies.jsonl")
    parser.add_argument("--data", default="/tmp/manyhands-policies")
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--behavior-steps", type=int, default=100_000)
    parser.add_argument("--fit-steps", type=int, default=None)
    parser.add_argument("--values", action="store_true", help="fit Q-functions too")
    parser.add_argument("--workers", type=int, help="processes that evaluate a case")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds to begin in")
    parser.add_argument("--one", help="(internal) make:NAME, fit:NAME or a case")
    args = parser.parse_args()
    folder = Path(args.data)
    folder.mkdir(parents=True, exist_ok=True)
    if args.one:
        what, _, name = args.one.partition(":")
        if what == "make":
            make(name, folder, args.transitions)
        elif what == "fit":
            fit(name, folder, args)
        else:
            with Path(args.out).open("a") as file:
                for row in run_case(args.one, folder, args):
                    file.write(json.dumps(row) + "\n")
        return
    out = Path(args.out)
    done = {json.loads(line)["case"] for line in out.open()} if out.exists() else set()
    pairs = {
        case: [(n, v) for ns, v in [parts(case)] for n in ns] for case in args.cases
    }
    cases = [c for c in args.cases if any(f"{n}/{v}" not in done for n, v in pairs[c])]
    needed = [pair for case in cases for pair in pairs[case]]
    names = dict.fromkeys(name for name, _ in needed)
    fitted = dict.fromkeys(name for name, v in needed if starts_from_a_set(v))
    started = time.monotonic()

    def begin(what: str) -> None:
        if time.monotonic() - started > args.limit:
            print("no time for", what, flush=True)
            return
        before = time.monotonic()
        command = [sys.executable, __file__, *sys.argv[1:], "--one", what]
        process = subprocess.run(command, capture_output=True, text=True)
        took = time.monotonic() - before
        print(f"{what}: {took:.0f} s, at {time.monotonic() - started:.0f}", flush=True)
        if process.returncode:
            print("\n".join(process.stderr.strip().splitlines()[-4:]), flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(begin, [f"make:{name}" for name in names]))
        list(pool.map(begin, [f"fit:{name}" for name in fitted]))
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(begin, cases))
    table(out)


def table(out: Path) -> None:
    for line in out.open():
        row = json.loads(line)
        relative = row["relative"]
        curve = " ".join(f"{c[2]:.2f}" for c in row["curve"] if c[2] is not None)
        shown = "-" if relative is None else f"{relative:.3f}"
        print(row["case"], row["seed"], row["options"], "|", curve, "|", shown)


if __name__ == "__main__":
    main()
