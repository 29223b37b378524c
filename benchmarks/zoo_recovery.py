"""How well are the sources of the MuJoCo data found, and how well its probabilities?

Cases, for each task (`hopper/k5`):
  k2 to k5             the first k agents: K given, and K auto
  k2-paper ...         the same with the paper's preset, at fewer updates
  stages               fifteen stages of one agent's training as sources
  n50, n20, n10, n5, n1  so many trajectories of each of five agents
  cut200, cut50, cut20   a stretch of so many steps out of each trajectory
  rare                 the fifth agent has 1% of the trajectories
  probs-...            five agents, K given: other options, to predict actions better
Each case is a process of its own, several at a time; results are lines of
results/zoo_recovery.jsonl, and cases that are there are not run again. A GPU is
expected. Data is made first and kept in --data. Tables of all that is there are
written beside the results, as Markdown.
Usage: python benchmarks/zoo_recovery.py [--jobs 8] [--cases hopper/k5 ...] [--tables]
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import manyhands as mh
from manyhands.envs.processes import cores
from manyhands.runs import environment
from manyhands.zoo import policies
from manyhands.zoo.build import Roles, record
from manyhands.zoo.tasks import TASKS

SEEDS = [0, 1, 2]
PAPER_STEPS = 25_000  # of the preset's 500,000
PROBABILITIES: dict[str, dict[str, Any]] = {
    "probs-gaussian": dict(method="gaussian", steps=60_000),
    "probs-paper": dict(preset="paper", k=5, steps=60_000),
    "probs-steps": dict(k=5, steps=60_000),
    "probs-batch": dict(k=5, steps=60_000, batch_size=2048),
    "probs-rate": dict(k=5, steps=60_000, batch_size=2048, policy_rate=1e-3),
    "probs-width": dict(
        k=5, steps=60_000, batch_size=2048, policy_rate=1e-3, policy_width=400
    ),
}
HARD = ["stages", "n50", "n20", "n10", "n5", "n1", "cut200", "cut50", "cut20", "rare"]
KINDS = [
    *(f"k{k}" for k in range(2, 6)),
    *HARD,
    *(f"k{k}-paper" for k in range(2, 6)),
    *PROBABILITIES,
]
CASES = [f"{task}/{kind}" for kind in KINDS for task in TASKS]


# Data


SETS = [f"{task}-{what}" for what in ("agents", "stages") for task in TASKS]


def make(name: str, folder: Path, transitions: int, workers: int) -> None:
    """The five agents of a task, or fifteen stages of its best agent's training."""
    task, what = name.split("-")
    roles = Roles.of(task, policies.STORED)
    chosen = {f"agent-{a.seed}": a for a in roles.finals}
    if what == "stages":
        seed = roles.expert.seed
        mine = [a for a in policies.manifest() if (a.task, a.seed) == (task, seed)]
        chosen = {f"step-{a.step}": a for a in mine}
    hands = {source: policies.load(about).layers for source, about in chosen.items()}
    env_id = TASKS[task].env_id
    data = record(name, env_id, hands, transitions, workers=workers)
    folder.mkdir(parents=True, exist_ok=True)
    mh.save(data, folder / f"{name}.npz")


def data_of(case: str, folder: Path) -> mh.Trajectories:
    task, kind = case.split("/")
    what = "stages" if kind == "stages" else "agents"
    data = mh.load(folder / f"{task}-{what}.npz")
    assert data.sources is not None
    kind = kind.removesuffix("-paper")
    if kind.startswith("k"):
        return data[data.sources < int(kind[1:])].renumbered()
    if kind.startswith("n"):
        order = [np.flatnonzero(data.sources == s)[: int(kind[1:])] for s in range(5)]
        return data[np.sort(np.concatenate(order))].renumbered()
    if kind.startswith("cut"):
        return cut(data, int(kind[3:]))
    if kind == "rare":
        fifth = np.flatnonzero(data.sources == 4)
        others = np.flatnonzero(data.sources < 4)
        few = fifth[: max(2, round(len(others) / 99))]
        return data[np.sort(np.concatenate([others, few]))].renumbered()
    return data


def cut(data: mh.Trajectories, steps: int) -> mh.Trajectories:
    """A stretch out of every trajectory that is long enough, from anywhere in it."""
    rng = np.random.default_rng(0)
    long = np.flatnonzero(data.lengths >= steps)
    first = data.offsets[long] + rng.integers(0, data.lengths[long] - steps + 1)
    rows = (first[:, None] + np.arange(steps)).ravel()
    assert data.sources is not None
    assert data.log_probs is not None
    return mh.Trajectories.from_arrays(
        observations=data.observations[rows],
        actions=data.actions[rows],
        rewards=data.rewards[rows],
        next_observations=data.next_observations[rows],
        log_probs=data.log_probs[rows],
        terminals=data.terminals[rows],
        timeouts=data.timeouts[rows],
        trajectory=np.repeat(np.arange(len(long)), steps),
        source=data.sources[long],
        source_names=list(data.source_names),
        env_id=data.env_id,
        name=f"{data.name}-cut{steps}",
    )


# Cases


def sources(data: mh.Trajectories) -> int:
    return len(np.unique(data.sources))  # type: ignore


def options_of(kind: str, data: mh.Trajectories, steps: int | None) -> dict[str, Any]:
    if kind in PROBABILITIES:
        chosen = dict(PROBABILITIES[kind]) | {"seed": [0]}
    elif kind.endswith("-paper"):
        chosen = dict(preset="paper", k=sources(data), steps=PAPER_STEPS)
    else:
        chosen = dict(k=[sources(data), "auto"])
    return {"seed": SEEDS, **chosen} | ({"steps": steps} if steps else {})


def run_case(case: str, folder: Path, steps: int | None) -> list[dict[str, Any]]:
    started = time.perf_counter()
    data = data_of(case, folder)
    options = options_of(case.split("/")[1], data, steps)
    fitted = mh.fit(data, **options)
    assert data.log_probs is not None
    rows = []
    for behavior in fitted:
        about = dict(behavior.summary["behavior"])
        about.pop("k_curve")
        rows.append(
            {
                "case": case,
                "trajectories": len(data),
                "transitions": data.transitions,
                "sources": sources(data),
                **about,
                "codes": [
                    [row["trajectories"], row["sources"]]
                    for row in behavior.summary["codes"]
                ],
                "true_log_prob": float(np.mean(data.log_probs, dtype=np.float64)),
                "options": {k: v for k, v in options.items() if k != "seed"},
                "steps": behavior.options.steps,
                "seconds": time.perf_counter() - started,
                "device": environment()["device"],
            }
        )
    return rows


# Tables


def tables(rows: list[dict[str, Any]]) -> str:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["case"], str(row["k"])), []).append(row)

    def cell(case: str, k: str, key: str = "ari", form: str = ".2f") -> str:
        values = found.get((case, k))
        return " ".join(f"{row[key]:{form}}" for row in values) if values else ""

    lines = [
        "# Sources and probabilities on MuJoCo data",
        "",
        "Written by `python benchmarks/zoo_recovery.py --tables` from",
        "zoo_recovery.jsonl, which has options, sizes and devices. Cells without",
        "numbers have not been measured.",
        "",
        "## Who made which trajectory",
        "",
        "ARI of the seeds, with K given and with auto, codes with auto.",
        "",
        "| case | sources | trajectories | ARI at K | ARI with auto | codes | "
        "ARI, paper's preset |",
        "|---|---:|---:|---|---|---|---|",
    ]
    for kind in [f"k{k}" for k in range(2, 6)] + HARD:
        for task in TASKS:
            case = f"{task}/{kind}"
            about = next((r for r in rows if r["case"] == case), None)
            if about is None:
                continue
            many = about["sources"]
            lines.append(
                f"| {case} | {many} | {about['trajectories']:,} | "
                f"{cell(case, str(many))} | {cell(case, 'auto')} | "
                f"{cell(case, 'auto', 'codes_used', 'd')} | "
                f"{cell(case + '-paper', str(many))} |"
            )
    lines += [
        "",
        "## How probable their actions were",
        "",
        "Five agents; nats a transition, of held-out steps. In brackets: the mean",
        "error over all steps, most of which were learnt from.",
        "",
        "| options | " + " | ".join(TASKS) + " |",
        "|---|" + "---|" * len(TASKS),
    ]
    true = [
        next((r["true_log_prob"] for r in rows if r["case"] == f"{task}/k5"), np.nan)
        for task in TASKS
    ]
    lines.append("| exact | " + " | ".join(f"{value:.2f}" for value in true) + " |")
    for kind in ["k5", *PROBABILITIES]:
        shown = []
        for task in TASKS:
            mine = [r for r in rows if r["case"] == f"{task}/{kind}"]
            if not mine:
                shown.append("")
                continue
            held = np.mean([row["heldout_log_prob"] for row in mine])
            bias = np.mean([row["calibration"]["bias"] for row in mine])
            shown.append(f"{held:.2f} ({bias:+.2f})")
        what = PROBABILITIES.get(kind, "default")
        if any(shown):
            lines.append(f"| {what} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


# All of it


def run_all(given: argparse.Namespace) -> None:
    started = time.perf_counter()
    again = [sys.executable, __file__, "--data", str(given.data)]
    size = ["--transitions", str(given.transitions)]
    missing = [name for name in SETS if not (given.data / f"{name}.npz").exists()]
    makers = [subprocess.Popen([*again, "--make", name, *size]) for name in missing]
    if any(maker.wait() for maker in makers):
        sys.exit("making data failed")
    print(f"data after {time.perf_counter() - started:.0f} s", flush=True)
    done = {row["case"] for row in read(given.out)}

    def one(case: str) -> None:
        if time.perf_counter() - started > given.limit:
            return
        words = [*again, "--one", case]
        if given.steps:
            words += ["--steps", str(given.steps)]
        process = subprocess.run(words, capture_output=True, text=True)
        if process.returncode:
            print(case, "failed:", process.stderr[-500:], flush=True)
            return
        rows = json.loads(process.stdout.splitlines()[-1])
        given.out.parent.mkdir(parents=True, exist_ok=True)
        with given.out.open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        for row in rows:
            print(
                f"{time.perf_counter() - started:.0f} s  {case}  k={row['k']}  "
                f"seed {row['seed']}  codes {row['codes_used']}  "
                f"ARI {row.get('ari', 0):.3f}  held-out {row['heldout_log_prob']:.3f}  "
                f"true {row['true_log_prob']:.3f}  {row['seconds']:.0f} s",
                flush=True,
            )

    with ThreadPoolExecutor(given.jobs) as threads:
        list(threads.map(one, [case for case in given.cases if case not in done]))


def read(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--data", type=Path, default=Path("/tmp/manyhands-zoo"))
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, help="of every fit, to try things out")
    parser.add_argument("--limit", type=float, default=np.inf, help="start none later")
    parser.add_argument("--out", type=Path, default=Path("results/zoo_recovery.jsonl"))
    parser.add_argument("--tables", action="store_true", help="and nothing else")
    # A data set, or a case, in this process.
    parser.add_argument("--make", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        workers = max(1, cores() // len(SETS))
        make(given.make, given.data, given.transitions, workers)
    elif given.one:
        print(json.dumps(run_case(given.one, given.data, given.steps)))
    else:
        if not given.tables:
            run_all(given)
        given.out.with_suffix(".md").write_text(tables(read(given.out)))


if __name__ == "__main__":
    main()
