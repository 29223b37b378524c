"""Tables and figures of what benchmarks/policies.py found.

results/policies.md from policies.jsonl; the study in docs/lbrac_v.md from
lbrac_study.jsonl (its table is printed, its figure written).
Usage: python benchmarks/policy_tables.py
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path("results/policies.jsonl")
STUDY = Path("results/lbrac_study.jsonl")
TASKS = ["halfcheetah", "hopper", "walker2d"]
COLUMNS = {
    "bc": "BC",
    "brac_v": "BRAC-v",
    "clone": "clone of the best",
    "lbrac_v-paper": "LBRAC-v, `--preset paper`",
    "default": "LBRAC-v",
}
# Of LBRAC-v on data of the same kind from other agents: the best of K = 1, 5, ..., 20.
PRINTED = {
    "halfcheetah": {1: 1.0244, 3: 0.9709, 5: 0.8856},
    "hopper": {1: 0.9618, 3: 1.0669, 5: 1.1354},
    "walker2d": {1: 1.0556, 3: 0.8779, 5: 1.0113},
}
LINES = {  # in the figure: variant, weight of Q
    "as printed": ("printed", None),
    "Q in units of its size": ("printed+mean", None),
    "... exact D, log b held still": ("joint", None),
    "... networks of its own": ("own", 2.5),
    "... no Q at all": ("own", 0.0),
    "held to the best behavior": ("best", 2.5),
}


def results() -> str:
    """Relative returns, mean and deviation over seeds."""
    rows = [json.loads(line) for line in RESULTS.open()]
    steps, seeds = rows[0]["steps"], sorted({row["seed"] for row in rows})
    lines = [
        "# Policies learnt from several sources",
        "",
        f"Relative return after {steps:,} updates (1 is the mean of the agents that",
        "made the data), mean ± standard deviation of seeds "
        f"{seeds[0]} to {seeds[-1]}, {rows[0]['episodes']} episodes",
        "each, by the mode. Written by `python benchmarks/policy_tables.py` from",
        "policies.jsonl. Cells without numbers have not been measured.",
        "",
        f"| data | {' | '.join(COLUMNS.values())} | the paper's best K |",
        "|---|" + "---|" * (len(COLUMNS) + 1),
    ]
    for task in TASKS:
        for k, printed in PRINTED[task].items():
            cells = [cell(rows, f"{task}-heterogeneous-{k}/{v}") for v in COLUMNS]
            shown = " | ".join([f"{task}-heterogeneous-{k}", *cells, f"{printed:.2f}"])
            lines.append(f"| {shown} |")
    return "\n".join(lines) + "\n"


def cell(rows: list[dict[str, Any]], case: str) -> str:
    found = [row["relative"] for row in rows if row["case"] == case]
    return f"{np.mean(found):.2f} ± {np.std(found):.2f}" if found else ""


# The study in docs/lbrac_v.md


def study_rows() -> list[dict]:
    """Of the first part of the study, in which all start from the same sets."""
    rows = [json.loads(line) for line in STUDY.open()]
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
    RESULTS.with_suffix(".md").write_text(results())
    study_table()
    figure(Path("docs/figures/lbrac_study.png"))
