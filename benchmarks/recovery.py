"""How well are sources found, and how well are held-out actions predicted?

Fits every data set with the default options, with K true and with K auto.
Prints a table and writes results/recovery.json; rows of other data sets stay there.
Usage: python benchmarks/recovery.py [--data fork-2 FILE ...] [--seeds 0 1] [--steps N]
"""

import argparse
import json
from pathlib import Path

import numpy as np

import manyhands as mh
from manyhands.behavior.problem import prepare
from manyhands.runs import environment

FORKS = [f"fork-{k}" for k in range(1, 6)]


def true_heldout(data: mh.Trajectories) -> float | None:
    """The sources' own log-probability of the very steps that `fit` holds out."""
    if data.log_probs is None:
        return None
    problem = prepare(data, 0.1, standardise=True, seed=0)
    known = {
        (m, *action.tolist()): value
        for m, action, value in zip(data.trajectory, data.actions, data.log_probs)
    }
    table = problem.test
    rows = zip(table.trajectory, table.actions)
    return float(np.mean([known[(m, *action.tolist())] for m, action in rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=FORKS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("results/recovery.json"))
    options = parser.parse_args()
    rows, others = [], []
    if options.out.exists():
        others = json.loads(options.out.read_text())["rows"]
    print("data  k  seed  codes  ARI  NMI  held-out  true  one Gaussian  seconds")
    for name in options.data:
        path = Path(name)
        data = mh.load(path, clip=True) if path.exists() else mh.make(name)
        true = true_heldout(data)
        for k in (len(data.source_names) or 3, "auto"):
            for seed in options.seeds:
                about = {} if options.steps is None else {"steps": options.steps}
                fitted = mh.fit(data, k=k, seed=seed, compare=True, **about)
                summary = fitted.summary["behavior"]
                seconds = fitted.summary["timing"]["seconds"]
                row = {
                    "data": data.name,
                    "k": k,
                    "seed": seed,
                    "steps": fitted.options.steps,
                    "codes_used": summary["codes_used"],
                    "ari": summary.get("ari"),
                    "nmi": summary.get("nmi"),
                    "heldout": summary["heldout_log_prob"],
                    "true": true,
                    "gaussian": summary["single_gaussian_heldout_log_prob"],
                    "calibration": summary.get("calibration"),
                    "seconds": seconds,
                }
                rows.append(row)
                numbers = [
                    row[key] for key in ("ari", "nmi", "heldout", "true", "gaussian")
                ]
                shown = "  ".join("-" if x is None else f"{x:.3f}" for x in numbers)
                first = f"{data.name}  {k}  {seed}  {row['codes_used']}"
                print(f"{first}  {shown}  {seconds:.0f}", flush=True)
                options.out.parent.mkdir(parents=True, exist_ok=True)
                kept = [r for r in others if r["data"] not in {r["data"] for r in rows}]
                content = {"environment": environment(), "rows": kept + rows}
                options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
