"""Pictures of a fitted behavior set, from what its run directory holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata
from sklearn.decomposition import PCA

from manyhands.data.trajectories import Trajectories
from manyhands.report.figures import blank, save
from manyhands.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# As on the page: Okabe and Ito's colors, and shapes for who cannot tell them apart.
COLORS = "#0072B2 #E69F00 #009E73 #D55E00 #CC79A7 #56B4E9 #A89F00 #8C8C8C".split()
MARKERS = "os^DvpP"


def _look(i: int) -> dict[str, Any]:
    return {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)]}


def draw(run: Run, data: Trajectories, folder: Path | None = None) -> None:
    """embeddings.png, training.png and, where K was searched, k.png.

    Args:
        folder: where to; by default the run's own figures/.
    """
    summary = run.read_json("summary.json")
    folder = folder or run.path / "figures"
    # One trajectory has no directions in which it differs from others.
    there = run.embeddings()
    if there and len(data) > 1:
        codes = np.array([int(row["code"]) for row in run.assignments()])
        drawn = embeddings(there["W"], there["E"], codes, data)
        save(drawn, folder / "embeddings.png")
    save(training(run.metrics()), folder / "training.png")
    if summary["behavior"]["k_curve"]:
        save(k_curve(summary["behavior"]), folder / "k.png")


def embeddings(
    W: np.ndarray, E: np.ndarray, codes: np.ndarray, data: Trajectories
) -> "Figure":
    """Trajectories by the first two principal components of W, with the codes E."""
    pca = PCA(n_components=2)
    places, centers = pca.fit_transform(W), pca.transform(E)
    percentile = 100 * rankdata(data.returns) / len(data)
    panels: list[tuple[str, Any]] = [("return percentile", percentile), ("code", codes)]
    if data.sources is not None:
        panels.append(("source", data.sources))
    figure = blank(4 * len(panels), 3.8)
    for axes, (title, color) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels
    ):
        if title == "return percentile":
            scale: dict[str, Any] = dict(cmap="viridis", vmin=0, vmax=100)
            dots = axes.scatter(*places.T, c=color, s=9, alpha=0.7, **scale)
            figure.colorbar(dots, ax=axes, shrink=0.8)
        else:
            for value in np.unique(color):
                mine = places[color == value]
                axes.scatter(*mine.T, s=9, alpha=0.7, lw=0, **_look(int(value)))
        axes.scatter(*centers.T, marker="x", c="black", s=50, lw=1.5)
        axes.set(title=title, xticks=[], yticks=[])
        if title == "source":
            _source_legend(axes, data.source_names)
    share = pca.explained_variance_ratio_.sum()
    figure.suptitle(
        f"{data.name}: trajectory embeddings W (dots), behaviors E (crosses); "
        f"{share:.0%} of the variance shown",
        fontsize=9,
    )
    return figure


def _source_legend(axes: "Axes", names: tuple[str, ...]) -> None:
    if len(names) > 12:
        return
    for code, name in enumerate(names):
        axes.scatter([], [], s=15, label=name, **_look(code))
    axes.legend(fontsize=7, loc="best")


def training(metrics: list[dict[str, Any]]) -> "Figure":
    """Log-probability while training, on held-out steps and on those learned from."""
    figure = blank(6, 3.6)
    axes = figure.subplots()
    # What has diverged is null in the file.
    metrics = [{k: np.nan if v is None else v for k, v in m.items()} for m in metrics]
    replicas = sorted({row["replica"] for row in metrics})
    for r in replicas:
        rows = [row for row in metrics if row["replica"] == r]
        steps = [row["step"] for row in rows]
        name = f"seed {rows[0]['seed']}" if len(replicas) > 1 else "held out"
        axes.plot(
            steps, [row["heldout_log_prob"] for row in rows], color=f"C{r}", label=name
        )
        for key in ("behavior/log_prob", "behavior/log_prob_of_trajectory"):
            pairs = [(row["step"], row[key]) for row in rows if key in row]
            label = f"learned from, by {'trajectory' if 'of' in key else 'code'}"
            axes.plot(
                *zip(*pairs),
                color=f"C{r}" if len(replicas) > 1 else f"C{1 + ('of' in key)}",
                ls=":" if "of" in key else "--",
                lw=1,
                label=label if len(replicas) == 1 else None,
            ) if pairs else None
    held_out = [row["heldout_log_prob"] for row in metrics]
    learned = [row.get("behavior/log_prob_of_trajectory", np.nan) for row in metrics]
    axes.set(xlabel="updates", ylabel="log-probability (nats a transition)")
    if np.isfinite(held_out).any():
        low = np.nanquantile(held_out, 0.1)
        axes.set(ylim=(low - 0.5, np.nanmax([held_out, learned]) + 0.3))
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    return figure


def k_curve(behavior: dict[str, Any]) -> "Figure":
    """What merging down to K codes costs on held-out steps, and the K chosen."""
    from manyhands.behavior.merging import SAME

    path = behavior["k_curve"]
    figure = blank(7, 3.4)
    left, right = figure.subplots(1, 2)
    ks = [step["codes"] for step in path]
    left.plot(ks, [step["heldout"] for step in path], marker="o", ms=3)
    left.set(xlabel="codes", ylabel="held-out log-probability (nats)")
    # What speaks against going from K + 1 codes to K, shown at the K + 1.
    evidence = [max(step["evidence"], 1e-3) for step in path]
    right.plot([k + 1 for k in ks], evidence, "o", ms=3)
    right.axhline(SAME, color="0.5", ls="--", lw=1)
    right.set(xlabel="codes", ylabel="evidence for the last one (nats)", yscale="log")
    for axes in (left, right):
        axes.axvline(behavior["codes_used"], color="C3", lw=1)
        axes.grid(alpha=0.3)
    return figure
