"""Why embed first? The printed start and the default, side by side.

Fits fork-3 with K = 3 from the printed random start (at the paper's learning rate, and
at the default's), and with the default, which embeds trajectories before it divides
them. Draws agreement with the true sources over training, and the final embeddings.
Usage: python examples/embed_first.py OUT.png   (about five minutes on two cores)
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

import manyhands as mh
from manyhands.behavior import vq
from manyhands.report.figures import blank, save
from manyhands.runs import Run

STEPS = 20_000
SETTINGS = {
    "printed start, rate 5e-5": dict(preset="paper", values=False),
    "printed start, rate 3e-4, embeddings 3e-3": dict(init="random", merge=False),
    "embed first (default)": {},
}


def main(picture: Path, scratch: str) -> None:
    data = mh.make("fork-3")
    figure = blank(14, 3.6)
    panels = figure.subplots(1, 1 + len(SETTINGS))
    for i, (name, options) in enumerate(SETTINGS.items()):
        folder = Path(scratch) / str(i)
        fitted = mh.fit(data, k=3, steps=STEPS, out=folder, **options)
        rows = [row for row in Run(folder).metrics() if "ari" in row]
        panels[0].plot(
            [row["step"] for row in rows], [row["ari"] for row in rows], label=name
        )
        W = np.asarray(vq.normalize(fitted.model.W))
        places = PCA(2).fit_transform(W)
        panels[1 + i].scatter(*places.T, c=data.sources, s=6, cmap="tab10", vmax=9)
        ari = fitted.summary["behavior"]["ari"]
        panels[1 + i].set(title=f"{name}\nARI {ari:.2f}", xticks=[], yticks=[])
        panels[1 + i].title.set_fontsize(8)
        heldout = fitted.summary["behavior"]["heldout_log_prob"]
        print(f"{name}: ARI {ari:.3f}, held-out {heldout:.3f} nats", flush=True)
    panels[0].set(xlabel="updates", ylabel="ARI", ylim=(-0.05, 1.05), xlim=(0, STEPS))
    panels[0].legend(fontsize=7, loc=(0.03, 0.17))
    panels[0].grid(alpha=0.3)
    save(figure, picture)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]), folder)
