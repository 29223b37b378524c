"""Pictures of learnt policies, from what their run directory holds."""

from typing import TYPE_CHECKING, Any

import numpy as np

from manyhands.report.curves import curves, groups
from manyhands.report.figures import blank, save
from manyhands.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RETURN = "evaluation/return_mean"


def draw(run: Run) -> None:
    """figures/returns.png, where the policies were evaluated along the way."""
    curve = curves(run.metrics()).get(RETURN)
    if curve is not None:
        figure = returns(curve, groups(run.read_json("config.json")))
        save(figure, run.path / "figures" / "returns.png")


def returns(curve: dict[str, Any], found: list[dict[str, Any]]) -> "Figure":
    """The mean of replicas that differ by their seed, and from lowest to highest."""
    figure = blank(6, 3.6)
    axes = figure.subplots()
    values = np.array(curve["values"], float)
    for g, group in enumerate(found):
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
    axes.set(xlabel="updates", ylabel="return")
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    return figure
