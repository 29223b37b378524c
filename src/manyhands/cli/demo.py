"""manyhands demo"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from manyhands import datasets
from manyhands.cli.console import out, training_progress
from manyhands.cli.data import print_card
from manyhands.cli.fit import print_summary
from manyhands.data.card import card
from manyhands.runs import Run
from manyhands.training.planned import Planned

if TYPE_CHECKING:
    from manyhands.behavior.estimate import Behavior
    from manyhands.data.trajectories import Trajectories

STEPS = 4000
EPISODES = 100


@dataclass(frozen=True)
class Demo:
    """The whole story on built-in data: make it, look at it, find out who did what,
    and learn from it."""

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
        run = Run(_empty(self.out / "fit"))
        with training_progress("fitting fork-3", [Planned("fit", "", STEPS)]) as show:
            found = fit(
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
        self.policies(data, found)

    def policies(self, data: "Trajectories", behavior: "Behavior") -> None:
        from manyhands.algos.evaluate import evaluate  # JAX: when needed
        from manyhands.algos.request import resolve
        from manyhands.algos.train import carry_out
        from manyhands.report.html_page import write_report

        out.print(
            "\nNow learn a policy from them, without an environment: held to one "
            "estimate for all (BRAC-v), and to the best of the behaviors (LBRAC-v):\n"
        )
        table = Table()
        for column in ("algorithm", "reaches the goal", "return"):
            table.add_column(column, justify="right")
        changes: dict[str, dict[str, Any]] = {
            "brac_v": dict(behavior_steps=1000, steps=600, warm_up=300),
            "lbrac_v": dict(behavior=behavior, steps=500, warm_up=300),
        }
        runs = [self.out / "fit"]
        for algo, options in changes.items():
            runs.append(_empty(self.out / algo))
            request = resolve(
                data, algo, seed=self.seed, evaluations=4, critic_width=64, **options
            )
            with training_progress(f"training {algo}", request.stages) as show:
                (policy,) = carry_out(request, runs[-1], progress=show)
            returns = evaluate(policy, episodes=EPISODES).returns
            # Who hits the obstacle or wanders about gets less than 1.
            reached = f"{(returns > 1).mean():.0%}"
            table.add_row(algo, reached, f"{returns.mean():.2f} ± {returns.std():.2f}")
        own = [
            f"{name} {data.returns[data.sources == s].mean():.2f}"
            for s, name in enumerate(data.source_names)
        ]
        out.print(table)
        out.print(f"The demonstrators' own returns: {', '.join(own)}")
        page = write_report(runs, self.out / "report.html", data)
        out.print(
            f"\nAll of it on one page, to look at in a browser: {page.resolve()}",
            soft_wrap=True,
        )


def _empty(path: Path) -> Path:
    """Without what an earlier demo left there."""
    if (path / "config.json").exists():
        shutil.rmtree(path)
    return path
