"""Tables and figures of what benchmarks/policies.py found.

results/policies.md from policies.jsonl and lbrac_weights.jsonl, and from heterogeneous/
and baselines/results.jsonl, which `manyhands benchmark` wrote; the study in
docs/lbrac_v.md from lbrac_study.jsonl (its table is printed, its figure written).
Usage: python benchmarks/policy_tables.py
"""

import json
from pathlib import Path

import numpy as np

RESULTS = Path("results/policies.jsonl")
WHOLE = Path("results/heterogeneous/results.jsonl")
OTHERS = Path("results/baselines/results.jsonl")
WEIGHTS = Path("results/lbrac_weights.jsonl")
STUDY = Path("results/lbrac_study.jsonl")
TASKS = ["halfcheetah", "hopper", "walker2d"]
COLUMNS = {
    "bc": "BC",
    "brac_v": "BRAC-v",
    "clone": "clone of the best",
    "lbrac_v-paper": "LBRAC-v, `--preset paper`",
    "default": "LBRAC-v, weight 2.5",
}
# Of LBRAC-v on data of the same kind from other agents, for one agent to five: with
# K = 10, and the best of K = 1, 5, ..., 20.
PRINTED = {
    "halfcheetah": [
        (1.0244, 1.0244),
        (0.9914, 1.0106),
        (0.9608, 0.9709),
        (0.9643, 0.9761),
        (0.8856, 0.8856),
    ],
    "hopper": [
        (0.9352, 0.9618),
        (0.9472, 0.9914),
        (1.0630, 1.0669),
        (1.1072, 1.1168),
        (1.1354, 1.1354),
    ],
    "walker2d": [
        (1.0524, 1.0556),
        (1.0392, 1.0392),
        (0.7664, 0.8779),
        (0.8268, 0.9442),
        (0.8709, 1.0113),
    ],
}
LINES = {  # in the figure: variant, weight of Q
    "as printed": ("printed", None),
    "Q in units of its size": ("printed+mean", None),
    "... exact D, log b held still": ("joint", None),
    "... networks of its own": ("own", 2.5),
    "... no Q at all": ("own", 0.0),
    "held to the best behavior": ("best", 2.5),
}


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def results() -> str:
    """Relative returns, mean and deviation over seeds."""
    rows = lines_of(RESULTS)
    steps, seeds = rows[0]["steps"], sorted({row["seed"] for row in rows})
    lines = [
        "# Policies learnt from several sources",
        "",
        f"Relative return after {steps:,} updates (1 is the mean of the agents that",
        "made the data), mean ± standard deviation of seeds "
        f"{seeds[0]} to {seeds[-1]}, {rows[0]['episodes']} episodes",
        "each, by the mode. Written by `python benchmarks/policy_tables.py` from",
        "policies.jsonl. LBRAC-v and the clone: after a fit of 60,000 updates.",
        "",
        f"| data | {' | '.join(COLUMNS.values())} | the paper's best K |",
        "|---|" + "---|" * (len(COLUMNS) + 1),
    ]
    for task in TASKS:
        for k in (1, 3, 5):
            name = f"{task}-heterogeneous-{k}"
            cells = [
                shown([r["relative"] for r in rows if r["case"] == f"{name}/{column}"])
                for column in COLUMNS
            ]
            best = f"{PRINTED[task][k - 1][1]:.2f}"
            lines.append(f"| {' | '.join([name, *cells, best])} |")
    return "\n".join(lines) + "\n"


def whole() -> str:
    """All fifteen data sets, with a fit as long as the training."""
    rows = lines_of(WHOLE)
    lines = [
        "## After a fit of 200,000 updates",
        "",
        "All fifteen data sets, `manyhands benchmark heterogeneous`, the same seeds",
        "and episodes. The clone is what LBRAC-v starts from.",
        "",
        "| data | BRAC-v | clone of the best | LBRAC-v | LBRAC-v, weight 2.5 "
        "| the paper's K = 10 | the paper's best K |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for k, printed in enumerate(PRINTED[task], start=1):
            name = f"{task}-heterogeneous-{k}"
            of_it = [row for row in rows if row["data"] == f"zoo:{name}"]
            by = {row["label"]: [] for row in of_it}
            for row in of_it:
                by[row["label"]].append(row["relative"])
            start = [r["curve"][0][-1] for r in of_it if r["label"] == "lbrac_v"]
            cells = [by["brac_v"], start, by["lbrac_v"], by["lbrac_v-2.5"]]
            theirs = [f"{figure:.2f}" for figure in printed]
            lines.append(f"| {' | '.join([name, *map(shown, cells), *theirs])} |")
    return "\n".join(lines) + "\n"


def weights() -> str:
    """Of Q, whatever the share of the best; the clone and the default beside them."""
    rows, before = lines_of(WEIGHTS), lines_of(WHOLE) + lines_of(OTHERS)
    lines = [
        "## How much Q counts",
        "",
        "The same updates, fits, seeds and episodes, for data of one agent and of",
        "five; normalised scores where an agent is mediocre. D is what pi with a",
        "weight of 100 has come to, in nats. None of the four is multiplied by the",
        "share of the best; the default is 400 times that, with a reach of 0.5, and",
        "started from clones of its own.",
        "",
        "| data | clone of the best | 2.5 | 25 | 100 | 400 | D | clone | the default |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for kind in ("medium", "heterogeneous-1", "heterogeneous-5"):
            name = f"{task}-{kind}"
            mine = [row for row in rows if row["case"] == f"{name}/weights"]
            field = "normalized" if kind == "medium" else "relative"
            # Of a curve relative returns are known.
            ratio = mine[0][field] / mine[0]["relative"]
            found = {2.5: _once(before, name, "lbrac_v-2.5")}
            for row in mine:
                found.setdefault(row["options"]["value_weight"], []).append(row)
            seeds = len(found[100.0])
            cells = [[row["curve"][0][2] * ratio for row in mine[:seeds]]]
            cells += [[row[field] for row in found[w]] for w in sorted(found)]
            apart = np.mean([row["last"]["actor/divergence"] for row in found[100.0]])
            digits = 1 if kind == "medium" else 2
            texts = [shown(cell, digits) for cell in cells]
            default = [row for row in rows if row["case"] == f"{name}/lbrac_v"]
            default = default or _once(before, name, "lbrac_v")
            start = shown([row["curve"][0][2] * ratio for row in default], digits)
            last = shown([row[field] for row in default], digits)
            texts += [f"{apart:.3f}", start, last]
            lines.append(f"| {' | '.join([name, *texts])} |")
    return "\n".join(lines) + "\n"


def _once(rows: list[dict], name: str, label: str) -> list[dict]:
    """Those of the first table that has some."""
    some = [r for r in rows if r["data"] == f"zoo:{name}" and r["label"] == label]
    return some[: len({row["seed"] for row in some})]


def shown(found: list[float], digits: int = 2) -> str:
    if not found:
        return ""
    return f"{np.mean(found):.{digits}f} ± {np.std(found):.{digits}f}"


# The study in docs/lbrac_v.md


def study_rows() -> list[dict]:
    """Of the first part of the study, in which all start from the same sets."""
    rows = lines_of(STUDY)
    return [row for row in rows if row["set"] == {"steps": 40000, "values": True}]


def chosen(rows: list[dict], task: str, variant: str, weight: float | None):
    case = f"{task}-heterogeneous-5/{variant}"
    return [
        row
        for row in rows
        if row["case"] == case
        and (weight is None or row["options"].get("value_weight") == weight)
    ]


def figure(path: Path) -> None:
    import matplotlib.pyplot as plt

    rows = study_rows()
    shown, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
    for axis, task in zip(axes, ("halfcheetah", "hopper", "walker2d")):
        for label, (variant, weight) in LINES.items():
            curves = [r["curve"] for r in chosen(rows, task, variant, weight)]
            steps = [point[0] / 1000 for point in curves[0]]
            mean = np.mean([[point[2] for point in curve] for curve in curves], axis=0)
            axis.plot(steps, mean, label=label)
        axis.set_title(f"{task}-heterogeneous-5")
        axis.set_xlabel("updates (thousands)")
        axis.axvline(10, color="0.8", zorder=0)
    axes[0].set_ylabel("relative return")
    axes[0].set_ylim(0, 1.4)
    shown.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=3)
    shown.tight_layout(rect=(0, 0.17, 1, 1))
    shown.savefig(path, dpi=110)


def study_table() -> None:
    """Means over two seeds and the last five evaluations, the final one included."""
    rows = study_rows()
    for row in rows:
        row["late"] = np.mean(
            [point[2] for point in row["curve"][-4:]] + [row["relative"]]
        )
    keys = dict.fromkeys(
        (row["case"].split("/")[1], row["options"].get("value_weight")) for row in rows
    )
    print("| variant | halfcheetah | hopper | walker2d |\n|---|---|---|---|")
    for variant, weight in keys:
        cells = []
        for task in ("halfcheetah", "hopper", "walker2d"):
            late = [r["late"] for r in chosen(rows, task, variant, weight)]
            cells.append(f"{np.mean(late):.2f}" if late else "")
        name = variant if weight is None else f"{variant}, weight {weight:g}"
        print("|", " | ".join([name, *cells]), "|")


if __name__ == "__main__":
    RESULTS.with_suffix(".md").write_text(f"{results()}\n{whole()}\n{weights()}")
    study_table()
    figure(Path("docs/figures/lbrac_study.png"))
