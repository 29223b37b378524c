"""manyhands demo"""

from dataclasses import dataclass
from pathlib import Path

from manyhands import datasets
from manyhands.cli.console import out
from manyhands.cli.data import print_card
from manyhands.data.card import card


@dataclass(frozen=True)
class Demo:
    """Make a data set of several demonstrators, show its card and draw it."""

    out: Path = Path("demo")
    """The directory to write to."""
    seed: int = 0
    """The same seed gives the same demo."""

    def run(self) -> None:
        from manyhands.report import figures  # matplotlib: when needed

        data = datasets.make("fork-3", seed=self.seed)
        datasets.save(data, self.out / "fork-3.hdf5")
        print_card(card(data))
        picture = figures.save(figures.fork(data), self.out / "fork-3.png")
        out.print(
            "\nThree demonstrators pass the obstacle, each in a way of its own; their "
            f"average hits it.\nThe picture: {picture}, the data: fork-3.hdf5 beside."
        )
