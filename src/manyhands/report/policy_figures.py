"""Pictures of learnt policies, from what their run directory holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyhands.report.curves import curves, groups
from manyhands.report.figures import blank, save
from manyhands.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RETURN = "evaluation/return_mean"
COLUMNS = 3  # of training.png


def draw(run: Run, folder: Path | None = None) -> None:
    """training.png, and returns.png where there were evaluations along the way.

    Args:
        folder: where to; by default the run's own figures/.
    """
    found, several = curves(run.metrics()), groups(run.read_json("config.json"))
    folder = folder or run.path / "figures"
    if RETURN in found:
        save(returns(found[RETURN], several), folder / "returns.png")
    learnt = {n: c for n, c in found.items() if not n.startswith("evaluation/")}
    if learnt:
        save(training(learnt, several), folder / "training.png")


def returns(curve: dict[str, Any], several: list[dict[str, Any]]) -> "Figure":
    figure = blank(6, 3.6)
    axes = figure.subplots()
    _plot(axes, curve, several)
    axes.set(xlabel="updates", ylabel="return")
    axes.legend(fontsize=7)
    return figure


def training(found: dict[str, Any], several: list[dict[str, Any]]) -> "Figure":
    """Every metric that was logged, a small picture each."""
    rows = -(-len(found) // COLUMNS)
    figure = blank(3 * COLUMNS, 2.2 * rows)
    places = figure.subplots(rows, COLUMNS, squeeze=False).flat
    for axes, (name, curve) in zip(places, found.items()):
        _plot(axes, curve, several)
        axes.set_title(name, fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in places[len(found) :]:
        axes.set_visible(False)
    if len(several) > 1:
        places[0].legend(fontsize=6)
    figure.supxlabel("updates", fontsize=8)
    return figure


def _plot(axes: "Axes", curve: dict[str, Any], several: list[dict[str, Any]]) -> None:
    """The mean of replicas that differ by their seed, and from lowest to highest."""
    values = np.array(curve["values"], float)
    for g, group in enumerate(several):
        mine = values[group["replicas"]]
        axes.plot(
            curve["steps"],
            mine.mean(axis=0),
            color=f"C{g}",
            ls=("-", "--", ":")[g % 3],
            label=group["label"],
        )
        low, high = mine.min(axis=0), mine.max(axis=0)
        axes.fill_between(curve["steps"], low, high, color=f"C{g}", alpha=0.2, lw=0)
    axes.grid(alpha=0.3)
