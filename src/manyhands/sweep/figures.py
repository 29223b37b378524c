"""Figures of a benchmark, from its results alone."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyhands.report.figures import blank, save
from manyhands.sweep.tables import Scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HETEROGENEOUS = re.compile(r"(?:zoo:)?(\w+)-heterogeneous-(\d+)")


def heterogeneous(rows: list[dict[str, Any]]) -> "Figure | None":
    """Relative return against the number of agents that made the data, a line for each
    algorithm (the best K), a band of one standard deviation; None without such data."""
    scores = Scores(rows)
    found: dict[str, dict[int, str]] = {}
    for data in scores.data:
        if match := HETEROGENEOUS.fullmatch(data):
            found.setdefault(match[1], {})[int(match[2])] = data
    if not found:
        return None
    figure = blank(4 * len(found), 3.4)
    axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axis, (task, sets) in zip(axes, found.items()):
        for number, label in enumerate(scores.labels):
            runs = {k: scores.best(data, label)[0] for k, data in sets.items()}
            ks = sorted(k for k in runs if len(runs[k]))
            mean = np.array([runs[k].mean() for k in ks])
            std = np.array([runs[k].std() for k in ks])
            color, marker = f"C{number}", "osD^vPX*<>h"[number % 11]
            axis.plot(ks, mean, marker=marker, ms=4, color=color, label=label)
            axis.fill_between(ks, mean - std, mean + std, color=color, alpha=0.15)
        axis.axhline(1.0, color="0.7", lw=0.8, zorder=0)
        axis.set_xticks(sorted(sets))
        axis.set_title(task)
        axis.set_xlabel("agents that made the data")
    axes[0].set_ylabel("relative return")
    axes[-1].legend(fontsize=7)
    return figure


def write(rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    figure = heterogeneous(rows)
    return [save(figure, folder / "heterogeneous.png")] if figure else []
