"""Figures of a benchmark, from its results alone."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyhands.report.figures import blank, save
from manyhands.sweep.maps import BINS
from manyhands.sweep.plan import safe
from manyhands.sweep.scores import Scores, natural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNITS = {
    "relative": "relative return",
    "normalized": "normalised score",
    "return_mean": "return",
}
COLUMNS = 4  # of histograms
HETEROGENEOUS = re.compile(r"(?:zoo:)?(\w+)-heterogeneous-(\d+)")


def heterogeneous(rows: list[dict[str, Any]]) -> "Figure | None":
    """Relative return against the number of agents that made the data, a line for each
    algorithm (the best K), a band of one standard deviation; None without such data for
    at least two numbers of agents."""
    scores = Scores(rows)
    found: dict[str, dict[int, str]] = {}
    for data in scores.data:
        if match := HETEROGENEOUS.fullmatch(data):
            found.setdefault(match[1], {})[int(match[2])] = data
    if max(map(len, found.values()), default=0) < 2:
        return None
    figure = blank(4 * len(found) + 1, 3.4)
    axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axis, (task, sets) in zip(axes, found.items()):
        for number, label in enumerate(scores.labels):
            runs = {k: scores.best(data, label)[0] for k, data in sets.items()}
            ks = sorted(k for k in runs if len(runs[k]) and np.isfinite(runs[k]).all())
            mean = np.array([runs[k].mean() for k in ks])
            std = np.array([runs[k].std() for k in ks])
            color, marker = f"C{number}", "osD^vPX*<>h"[number % 11]
            name = f"{label}, best K" if len(scores.ks(label)) > 1 else label
            axis.plot(ks, mean, marker=marker, ms=4, color=color, label=name)
            axis.fill_between(ks, mean - std, mean + std, color=color, alpha=0.15)
        axis.axhline(1.0, color="0.7", lw=0.8, zorder=0)
        axis.set_xticks(sorted(sets))
        axis.set_title(task)
        axis.set_xlabel("agents that made the data")
    units = {scores.units[data] for sets in found.values() for data in sets.values()}
    axes[0].set_ylabel(" or ".join(sorted(UNITS[one] for one in units)))
    lines = axes[-1].get_legend_handles_labels()
    figure.legend(*lines, fontsize=7, loc="outside right center")
    return figure


def returns(rows: list[dict[str, Any]]) -> "Figure | None":
    """How returns are spread in every data set, by source where that is known."""
    found = {row["data"]: row["histogram"] for row in rows if row.get("histogram")}
    found = {data: found[data] for data in sorted(found, key=natural)}
    if not found:
        return None
    wide = min(COLUMNS, len(found))
    high = -(-len(found) // wide)
    figure = blank(3.2 * wide, 2.2 * high)
    axes = list(figure.subplots(high, wide, squeeze=False).flat)
    for axis, (data, about) in zip(axes, found.items()):
        low, top = about["low"], about["high"]
        edges = np.linspace(low, top if top > low else low + 1, BINS + 1)
        middles, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
        below = np.zeros(BINS)
        names = about["sources"] or [None]
        for number, (name, counts) in enumerate(zip(names, about["counts"])):
            axis.bar(middles, counts, width, below, color=f"C{number}", label=name)
            below += counts
        if about["sources"]:
            axis.legend(fontsize=5)
        axis.set_title(data, fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes[len(found) :]:
        axis.set_axis_off()
    figure.supxlabel("return of a trajectory", fontsize=8)
    figure.supylabel("trajectories", fontsize=8)
    return figure


def maps(rows: list[dict[str, Any]]) -> "Figure | None":
    """Embeddings of trajectories (dots, by their return; last by their code), of
    behaviors (crosses) and of the policy (a star, once there is one): a row for every
    K, a column for every time of the fit and of policy learning."""
    # Not as they came: what was added later, or ran in parts, may have ended first.
    rows = [row for row in rows if row.get("maps")]
    rows.sort(key=lambda row: (natural(str(row["k"])), row["seed"]))
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["k"], row["maps"])
    if not found:
        return None
    policies = {k: _of_policy(about) for k, about in found.items()}
    fits = max(len(about["points"]) for about in found.values())
    learnt = max(map(len, policies.values()))
    figure = blank(2.4 * (fits + learnt + 1), 2.4 * len(found))
    grid = figure.subplots(len(found), fits + learnt + 1, squeeze=False)
    for axis in grid.flat:
        axis.set_axis_off()
    for axes, (k, about) in zip(grid, found.items()):
        # The ends of both stand in the same columns in all rows.
        fit, policy = axes[:fits], axes[fits:-1]
        points = list(zip(fit[fits - len(about["points"]) :], about["points"]))
        points += zip(policy[learnt - len(policies[k]) :], policies[k])
        for axis, point in points:
            _map(axis, point, about["percentile"], "viridis", 100)
            axis.set_title(_when(point), fontsize=7)
        last = about["points"][-1]
        _map(axes[-1], last, [code % 20 for code in about["codes"]], "tab20", 19)
        axes[-1].set_title("by code", fontsize=7)
        points[0][0].set_ylabel(f"K = {k}", fontsize=8)
    star = ", policy (star)" if learnt else ""
    first = rows[0]
    figure.suptitle(
        f"{first['data']}, {first['label']}, seed {first['seed']}: trajectories by "
        f"return percentile (dark: low), behaviors (crosses){star}; share of variance "
        "shown",
        fontsize=8,
    )
    return figure


def _of_policy(about: dict[str, Any]) -> list[dict[str, Any]]:
    """Along policy learning, and after it."""
    learnt = [about["learnt"]] if "learnt" in about else []
    return [*about.get("learning", []), *learnt]


def _when(point: dict[str, Any]) -> str:
    when = f"{point['step']:,} updates" if "step" in point else "after policy learning"
    of = " of the policy" if "step" in point and "policy" in point else ""
    return f"{when}{of}, {point['variance']:.0%}"


def _map(axis: "Axes", point: dict[str, Any], colors: Any, name: str, most: int):
    axis.scatter(*point["xy"], c=colors, s=6, cmap=name, vmin=0, vmax=most, alpha=0.7)
    axis.scatter(*point["behaviors"], marker="x", c="black", s=30, lw=1.2)
    if "policy" in point:
        axis.scatter(*point["policy"], marker="*", c="red", s=90, zorder=3)
    axis.set_axis_on()
    axis.set(xticks=[], yticks=[])


def write(rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    drawn = {"heterogeneous": heterogeneous(rows), "returns": returns(rows)}
    by_fleet: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        by_fleet.setdefault((row["data"], row["label"]), []).append(row)
    for (data, label), mine in by_fleet.items():
        drawn[f"embeddings-{safe(data)}-{safe(label)}"] = maps(mine)
    return [save(f, folder / f"{name}.png") for name, f in drawn.items() if f]
