"""Who made which trajectory: agreement with the true sources on a folder of archives.

Every NPZ file of the folder needs `source`; `group`, `context_columns` and
`discrete_actions` are used where a file has them. K is given. Prints a table (adjusted
Rand index, least to most over seeds, beside K-means on plain statistics) and writes it
in markdown and JSON.

Usage: python benchmarks/who.py FOLDER [--seeds 0 1 2] [--only WORD] [--groups]
           [--without PART ...] [--out results/who]
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from manyhands.assign import Inputs, fit_who, prepare
from manyhands.assign.clustering import kmeans


def read(path: Path, groups: bool) -> tuple[Inputs, np.ndarray, np.ndarray | None]:
    """Inputs, the source of each trajectory, and the groups if they are to be used."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if "trajectory" in arrays:
        ends = np.flatnonzero(np.diff(arrays["trajectory"])) + 1
    else:
        ends = np.flatnonzero(arrays["terminals"] | arrays["timeouts"])[:-1] + 1
    offsets = np.concatenate([[0], ends, [len(arrays["actions"])]])
    source = arrays["source"]
    if len(source) != len(offsets) - 1:
        source = source[offsets[:-1]]
    group = arrays.get("group") if groups else None
    inputs = prepare(
        arrays["observations"],
        arrays["actions"],
        offsets,
        context_columns=arrays.get("context_columns"),
        group=group,
        choices=arrays.get("discrete_actions"),
    )
    return inputs, source, group


def statistics(inputs: Inputs) -> np.ndarray:
    """[M, F]: means and deviations, quantiles of speed and turning, length."""
    speed = np.linalg.norm(inputs.actions, axis=1)
    change = inputs.actions - inputs.lag(inputs.actions, 1)
    turning = np.linalg.norm(change, axis=1)
    rows = []
    for start, stop in zip(inputs.offsets[:-1], inputs.offsets[1:]):
        steps = slice(start, stop)
        both = np.concatenate([inputs.observations[steps], inputs.actions[steps]], 1)
        levels = (0.1, 0.25, 0.5, 0.75, 0.9)
        quantiles = [np.quantile(x[steps], levels) for x in (speed, turning)]
        means = [both.mean(0), both.std(0), change[steps].mean(0)]
        rows.append(np.concatenate([*means, *quantiles, [np.log(stop - start)]]))
    table = np.array(rows)
    table = (table - table.mean(0)) / np.maximum(table.std(0), 1e-9)
    return PCA(0.95).fit_transform(table)


def agreement(source, codes, group) -> float:
    """Adjusted Rand index over trajectories, or over groups where these are used."""
    first = slice(None) if group is None else np.unique(group, return_index=True)[1]
    return float(adjusted_rand_score(source[first], codes[first]))


def measure(path: Path, options: argparse.Namespace) -> dict:
    inputs, source, group = read(path, options.groups)
    k = len(np.unique(source))
    row = {"set": path.stem, "k": k, "trajectories": len(inputs), "ours": []}
    started = time.process_time()
    fits = [fit_who(inputs, k, s, without=options.without) for s in options.seeds]
    for found in fits:
        row["ours"].append(round(agreement(source, found.codes, group), 3))
    used = (time.process_time() - started) / len(options.seeds)
    found = fits[-1]
    row |= {"how": found.how, "evidence": found.evidence, "seconds": round(used, 2)}
    if options.groups:
        row["over_trajectories"] = round(agreement(source, found.codes, None), 3)
    table = statistics(inputs)
    plain = kmeans(table, k, 0, 10)
    row["kmeans"] = round(agreement(source, plain, None), 3)
    print(line(row), flush=True)
    return row


HEADER = (
    "| set | K | trajectories | ours | K-means | how | seconds |\n" + "|---" * 7 + "|"
)


def line(row: dict) -> str:
    ours = row["ours"]
    spread = f"**{np.mean(ours):.2f}** ({min(ours):.2f}-{max(ours):.2f})"
    cells = [row["set"], row["k"], row["trajectories"], spread, f"{row['kmeans']:.2f}"]
    return "| " + " | ".join(map(str, [*cells, row["how"], row["seconds"]])) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", default="", help="files with this word in their name")
    parser.add_argument("--groups", action="store_true", help="use declared groups")
    parser.add_argument("--without", nargs="+", default=[], help="parts to leave out")
    parser.add_argument("--out", type=Path, default=Path("results/who"))
    options = parser.parse_args()
    files = [p for p in sorted(options.folder.glob("*.npz")) if options.only in p.stem]
    if options.groups:
        files = [p for p in files if "group" in np.load(p).files]
    print(HEADER)
    rows = [measure(path, options) for path in files]
    mean = np.mean([np.mean(row["ours"]) for row in rows])
    summary = f"Mean over {len(rows)} sets: {mean:.3f}"
    print(summary)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join([HEADER, *map(line, rows), "", summary, ""])
    options.out.with_suffix(".md").write_text(text)
    about = {"groups": options.groups, "without": options.without, "mean": mean}
    options.out.with_suffix(".json").write_text(
        json.dumps({**about, "rows": rows}, indent=1)
    )


if __name__ == "__main__":
    main()
