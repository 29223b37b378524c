"""manyhands demo"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from manyhands import datasets
from manyhands.cli.console import out, training_progress
from manyhands.cli.data import print_card
from manyhands.cli.fit import print_summary
from manyhands.data.card import card
from manyhands.runs import Run

STEPS = 4000


@dataclass(frozen=True)
class Demo:
    """The whole story on built-in data: make it, look at it, find out who did what."""

    out: Path = Path("demo")
    """The directory to write to."""
    seed: int = 0
    """The same seed gives the same demo."""

    def run(self) -> None:
        from manyhands.behavior.fit import fit  # JAX and matplotlib: when needed
        from manyhands.report import behavior_figures, figures

        data = datasets.make("fork-3", seed=self.seed)
        datasets.save(data, self.out / "fork-3.hdf5")
        print_card(card(data))
        picture = figures.save(figures.fork(data), self.out / "fork-3.png")
        out.print(
            "\nThree demonstrators pass the obstacle, each in a way of its own; their "
            f"average hits it: {picture}\n\n"
            "Who made which trajectory, and how many were there? Forget the labels, "
            "and find out:\n"
        )
        run = Run(self.out / "fit")
        if (run.path / "config.json").exists():  # of an earlier demo
            shutil.rmtree(run.path)
        with training_progress("fitting fork-3", STEPS) as show:
            fit(
                data,
                k="auto",
                steps=STEPS,
                seed=self.seed,
                compare=True,
                out=run.path,
                progress=show,
            )
        behavior_figures.draw(run, data)
        print_summary(run.read_json("summary.json"))
        out.print(f"\nThe figures: {run.path / 'figures'}")
