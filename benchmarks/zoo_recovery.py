"""How well are the sources of the MuJoCo data found, and how well its probabilities?

Cases, for each task (`hopper/k5`):
  k2 to k5             the first k agents: K given, and K auto
  k2-paper ...         the same with the paper's preset
  stages               fifteen stages of one agent's training as sources
  n50, n20, n10, n5, n1  so many trajectories of each of five agents
  cut200, cut50, cut20   a stretch of so many steps out of each trajectory
  rare                 the fifth agent has 1% of the trajectories
  probs-...            five agents, K given: other options, to predict actions better
Each case is a process of its own, several at a time; results are lines of
results/zoo_recovery.jsonl, and cases that are there are not run again. A GPU is
expected. Data is made first and kept in --data, as are the runs: a case that was killed
goes on where it stopped. Tables of all that is there are written
beside the results, as Markdown, and a figure into docs/figures.
Usage: python benchmarks/zoo_recovery.py [--jobs 8] [--cases hopper/k5 ...] [--tables]
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

import manyhands as mh
from manyhands.agents import policies
from manyhands.agents.data_sets import Roles, record
from manyhands.agents.tasks import TASKS
from manyhands.envs.processes import cores
from manyhands.report.figures import blank, save

SEEDS = [0, 1, 2]
LARGE: dict[str, Any] = dict(
    k=5, steps=60_000, batch_size=2048, policy_rate=1e-3, policy_width=400
)
PROBABILITIES: dict[str, dict[str, Any]] = {
    "probs-gaussian": dict(method="gaussian", seed=SEEDS),
    "probs-batch": dict(k=5, steps=60_000, batch_size=2048),
    "probs-width": LARGE,
    "probs-decay": LARGE | dict(weight_decay=200_000, seed=SEEDS),
    "probs-decay5": LARGE | dict(weight_decay=1_000_000),
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


def set_of(case: str) -> str:
    task, kind = case.split("/")
    return f"{task}-{'stages' if kind == 'stages' else 'agents'}"


def data_of(case: str, folder: Path) -> mh.Trajectories:
    kind = case.split("/")[1]
    data = mh.load(folder / f"{set_of(case)}.npz")
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
        chosen = {"seed": [0]} | PROBABILITIES[kind]
    elif kind.endswith("-paper"):
        chosen = dict(preset="paper", k=sources(data))
    else:
        chosen = dict(k=[sources(data), "auto"])
    return {"seed": SEEDS, **chosen} | ({"steps": steps} if steps else {})


def run_case(case: str, folder: Path, steps: int | None) -> list[dict[str, Any]]:
    started = time.perf_counter()
    data = data_of(case, folder)
    options = options_of(case.split("/")[1], data, steps)
    fitted = mh.fit(data, out=folder / "runs" / case, **options)
    assert data.log_probs is not None
    rows = []
    for behavior, errors in zip(fitted, heldout_errors(data, fitted)):
        about = dict(behavior.summary["behavior"])
        about.pop("k_curve")
        rows.append(
            {
                "case": case,
                "trajectories": len(data),
                "transitions": data.transitions,
                "sources": sources(data),
                **about,
                **errors,
                "codes": [
                    [row["trajectories"], row["sources"]]
                    for row in behavior.summary["codes"]
                ],
                "true_log_prob": float(np.mean(data.log_probs, dtype=np.float64)),
                "options": {k: v for k, v in options.items() if k != "seed"},
                "steps": behavior.options.steps,
                "seconds": time.perf_counter() - started,
                "timing": behavior.summary["timing"],
            }
        )
    return rows


def heldout_errors(
    data: mh.Trajectories, fitted: list[mh.Behavior]
) -> list[dict[str, float]]:
    """Log-probability less the exact one, mean over all the steps held out: of each,
    and of the mean density of all that had the same K."""
    held = data.renumbered().split_within(fitted[0].options.holdout, seed=0)[1]
    assert held.log_probs is not None
    found = [b.log_prob(held, b.codes[held.ids]).astype(np.float64) for b in fitted]
    ks = [str(b.summary["behavior"]["k"]) for b in fitted]
    rows = []
    for mine, k in zip(found, ks):
        alike = [other for other, its in zip(found, ks) if its == k]
        together = np.logaddexp.reduce(alike) - np.log(len(alike))
        rows.append(
            {
                "heldout_error": float(np.mean(mine - held.log_probs)),
                "ensemble_error": float(np.mean(together - held.log_probs)),
            }
        )
    return rows


# Tables


class Rows:
    """All results, to be asked for by case and K."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def of(self, case: str, k: str | int | None = None) -> list[dict[str, Any]]:
        mine = [row for row in self.rows if row["case"] == case]
        k = mine[0]["sources"] if mine and k == "given" else k
        return [row for row in mine if k is None or str(row["k"]) == str(k)]

    def cell(self, case: str, k: str, key: str = "ari", form: str = ".2f") -> str:
        cells = [f"{row[key]:{form}}" for row in self.of(case, k)]
        return " ".join(cells).replace("-0.00", "0.00")


def tables(rows: list[dict[str, Any]]) -> str:
    found = Rows(rows)
    lines = [
        "# Sources and probabilities on MuJoCo data",
        "",
        "Written by `python benchmarks/zoo_recovery.py --tables` from",
        "zoo_recovery.jsonl, which has options, sizes and devices. Cells without",
        "numbers have not been measured.",
        "",
        "## Who made which trajectory",
        "",
        "ARI of the seeds, with K given and with auto, and their codes; and that of",
        "the paper's preset (500,000 updates) at K.",
        "",
        "| case | sources | trajectories | updates | ARI at K | codes | "
        "ARI with auto | codes | ARI, paper's preset |",
        "|---|---:|---:|---:|---|---|---|---|---|",
    ]
    for kind in [f"k{k}" for k in range(2, 6)] + HARD:
        for task in TASKS:
            case = f"{task}/{kind}"
            if not found.of(case):
                continue
            about = found.of(case)[0]
            cells = [
                case,
                about["sources"],
                f"{about['trajectories']:,}",
                f"{about['steps']:,}",
                found.cell(case, "given"),
                found.cell(case, "given", "codes_used", "d"),
                found.cell(case, "auto"),
                found.cell(case, "auto", "codes_used", "d"),
                found.cell(f"{case}-paper", "given"),
            ]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "Stages without the trajectories of the untrained one, at K and with auto:",
        "",
    ]
    for task in TASKS:
        shown = [
            " ".join(f"{trained_ari(row):.2f}" for row in found.of(f"{task}/stages", k))
            for k in ("given", "auto")
        ]
        if all(shown):
            lines.append(f"- {task}: {shown[0]}; {shown[1]}")
    lines += [
        "",
        "## How probable their actions were",
        "",
        "Five agents. Log-probability of held-out steps, nats a transition, less the",
        "exact one; the mean of the seeds, and that of their mean density. In",
        "brackets: the same over all steps, most of which were learnt from.",
        "",
        f"| options | seeds | {' | '.join(TASKS)} |",
        "|---|---:|" + "---|" * len(TASKS),
    ]
    exact = [
        found.of(f"{task}/k5")[0]["true_log_prob"] if found.of(f"{task}/k5") else np.nan
        for task in TASKS
    ]
    lines.append("| exact | | " + " | ".join(f"{value:.2f}" for value in exact) + " |")
    named = {"k5-paper": "paper's preset", "k5": "default"}
    for kind in ["k5-paper", "k5", *PROBABILITIES]:
        cells, many = [], 0
        for task in TASKS:
            k = 1 if kind == "probs-gaussian" else "given"
            mine = found.of(f"{task}/{kind}", k)
            cells.append(probability_cell(mine))
            many = max(many, len(mine))
        if any(cells):
            what = named.get(kind) or f"`{kind}`: {options_text(kind)}"
            lines.append(f"| {what} | {many} | {' | '.join(cells)} |")
    lines += [
        "",
        "The default by the amount of data: held-out error, mean of the seeds.",
        "",
        "| trajectories of each | " + " | ".join(TASKS) + " |",
        "|---|" + "---|" * len(TASKS),
    ]
    for kind in ("n5", "n10", "n20", "n50", "k5"):
        cells = []
        for task in TASKS:
            if mine := found.of(f"{task}/{kind}", "given"):
                error = np.mean([row["heldout_error"] for row in mine])
                sizes = (
                    f"{mine[0]['transitions']:,} steps, {mine[0]['steps']:,} updates"
                )
                cells.append(f"{error:+.2f} ({sizes})")
        if cells:
            name = "all" if kind == "k5" else kind[1:]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def probability_cell(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    # The first results had no errors row by row.
    error = np.mean(
        [
            row.get("heldout_error", row["heldout_log_prob"] - row["true_log_prob"])
            for row in rows
        ]
    )
    bias = np.mean([row["calibration"]["bias"] for row in rows])
    together = f", {rows[0]['ensemble_error']:+.2f}" if len(rows) > 1 else ""
    return f"{error:+.2f}{together} ({bias:+.2f})"


def options_text(kind: str) -> str:
    left_out = ("k", "seed", "method")
    given = {k: v for k, v in PROBABILITIES[kind].items() if k not in left_out}
    return ", ".join(f"{k} {v:,}" for k, v in given.items()) or "one Gaussian"


def trained_ari(row: dict[str, Any]) -> float:
    """Agreement on all trajectories but those of the stage before training."""
    codes, truth = [], []
    for code, (_, counts) in enumerate(row["codes"]):
        for source, many in counts.items():
            if source != "step-0":
                codes += [code] * many
                truth += [source] * many
    return float(adjusted_rand_score(truth, codes))


# The figure


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Where recovery ends: ARI against the amount of data."""
    found = Rows(rows)
    figure = blank(10, 3.2)
    axes = figure.subplots(1, 3, sharey=True)
    kinds = [
        ["n1", "n5", "n10", "n20", "n50", "k5"],
        ["cut20", "cut50", "cut200", "k5"],
        ["rare", "stages", "stages "],
    ]
    names = [
        ["1", "5", "10", "20", "50", "all"],
        ["20", "50", "200", "all"],
        ["one agent\nhas 1%", "15 stages", "14 stages:\nthe trained"],
    ]
    titles = ["trajectories of each agent", "steps of each trajectory", "other sources"]
    for panel, kinds_, names_, title in zip(axes, kinds, names, titles):
        for number, task in enumerate(TASKS):
            at = np.arange(len(kinds_)) + 0.1 * (number - 1)
            for k, style in (("given", "--"), ("auto", "-")):
                points = [scores(found, task, kind, k) for kind in kinds_]
                if panel is not axes[2]:
                    means = [np.mean(p) if p else np.nan for p in points]
                    panel.plot(at, means, style, color=f"C{number}", lw=1)
                x = np.repeat(at, [len(p) for p in points])
                filled = f"C{number}" if k == "auto" else "none"
                label = f"{task}, K {k}" if k == "given" else f"{task}, auto"
                panel.scatter(
                    x + (0.03 if k == "auto" else -0.03),
                    np.concatenate(points),
                    s=16,
                    facecolors=filled,
                    edgecolors=f"C{number}",
                    linewidths=0.8,
                    label=label,
                )
        panel.set_xticks(range(len(names_)), names_)
        panel.set_xlabel(title)
        panel.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("agreement with the sources (ARI)")
    axes[2].legend(fontsize=7, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)


def scores(found: Rows, task: str, kind: str, k: str) -> list[float]:
    rows = found.of(f"{task}/{kind.strip()}", k)
    if kind.endswith(" "):
        return [trained_ari(row) for row in rows]
    return [row["ari"] for row in rows]


# All of it


def run_all(given: argparse.Namespace) -> None:
    started = time.perf_counter()
    again = [sys.executable, __file__, "--data", str(given.data)]
    todo = {name: threading.Event() for name in SETS}

    def make_data() -> None:
        for what in ("agents", "stages"):
            names = [name for name in needed if name.endswith(what)]
            size = ["--transitions", str(given.transitions)]
            size += ["--workers", str(max(1, cores() // max(1, len(names))))]
            makers = [subprocess.Popen([*again, "--make", n, *size]) for n in names]
            for name, maker in zip(names, makers):
                if maker.wait():
                    print(name, "could not be made", flush=True)
            print(f"{what} after {time.perf_counter() - started:.0f} s", flush=True)
            for name in SETS:
                if name.endswith(what):
                    todo[name].set()

    done = {row["case"] for row in read(given.out)}
    cases = [case for case in given.cases if case not in done]
    needed = {
        name for name in map(set_of, cases) if not (given.data / f"{name}.npz").exists()
    }

    def one(case: str) -> None:
        todo[set_of(case)].wait()
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

    threading.Thread(target=make_data).start()
    with ThreadPoolExecutor(given.jobs) as threads:
        list(threads.map(one, cases))


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
    parser.add_argument(
        "--figure", type=Path, default=Path("docs/figures/zoo_recovery.png")
    )
    parser.add_argument("--tables", action="store_true", help="and nothing else")
    # A data set, or a case, in this process.
    parser.add_argument("--make", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        make(given.make, given.data, given.transitions, given.workers)
    elif given.one:
        print(json.dumps(run_case(given.one, given.data, given.steps)))
    else:
        if not given.tables:
            run_all(given)
        rows = read(given.out)
        given.out.with_suffix(".md").write_text(tables(rows))
        draw(rows, given.figure)


if __name__ == "__main__":
    main()
