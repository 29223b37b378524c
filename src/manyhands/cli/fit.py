"""manyhands fit"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from manyhands.behavior.options import Overrides, resolve
from manyhands.cli.console import out, training_progress
from manyhands.cli.data import Reading, load, origin
from manyhands.cli.metrics import logged
from manyhands.data.formats import ReadOptions
from manyhands.errors import UserError
from manyhands.runs import Run
from manyhands.training.planned import Planned
from manyhands.wording import counted


@dataclass(frozen=True)
class Fit:
    """Estimate which behaviors made a data set, and which trajectory each one made."""

    data: tyro.conf.Positional[str]
    """A path, or format:where (d4rl, minari, robomimic, lerobot, npz, fork, zoo)."""
    out: Path
    """The run directory. A run that was interrupted there is continued."""
    method: str = "vq"
    """vq: a set of behaviors. gaussian: one policy for all. mixture, vae: one each that
    may have several modes."""
    k: tuple[str, ...] = ()
    """How many behaviors there are at most, or auto; several train together. Else 10,
    or as many as there are trajectories."""
    seeds: tuple[int, ...] = (0,)
    """Several train together."""
    preset: str = "default"
    """default; large, for much data and a GPU; paper, as printed."""
    compare: bool = True
    """Fit a single Gaussian too, to compare held-out log-probabilities with."""
    figures: bool = True
    """Draw figures/*.png."""
    log: tuple[str, ...] = ()
    """Hand metrics on while they come: tensorboard, wandb, mlflow."""
    options: Annotated[Overrides, tyro.conf.OmitArgPrefixes] = field(
        default_factory=Overrides  # type: ignore
    )
    """Hyper-parameters; those not given are the preset's."""
    reading: Reading = field(default_factory=ReadOptions)

    def run(self) -> None:
        changes = {k: v for k, v in vars(self.options).items() if v is not None}
        resolve(self.preset, changes, 0)  # complain before any work is done
        ks = [number_or_auto(k) for k in self.k] or None
        if (self.out / "summary.json").exists():
            raise UserError(
                f"{self.out}: holds a finished run; choose another directory"
            )
        data = load(self.data, self.reading)

        from manyhands.behavior.fit import fit  # JAX: when needed

        steps = resolve(self.preset, changes, data.transitions).steps
        stages = [Planned("fit", "", steps)]
        with (
            training_progress(f"fitting {data.name}", stages) as bar,
            logged(bar, self.out, self.log) as show,
        ):
            fitted = fit(
                data,
                self.method,
                k=ks,
                seed=self.seeds,
                preset=self.preset,
                out=self.out,
                compare=self.compare,
                progress=show,
                **changes,
            )
        assert isinstance(fitted, list)
        Run(self.out).note(loaded_from=origin(self.data, self.reading))
        if self.figures:
            from manyhands.report import behavior_figures

            behavior_figures.draw(Run(self.out), data)
        print_summary(Run(self.out).read_json("summary.json"))
        out.print(f"wrote {self.out}")


def number_or_auto(k: str) -> int | str:
    if k == "auto":
        return k
    try:
        return int(k)
    except ValueError:
        raise UserError(f"k: expected a number or auto, got {k}") from None


def print_summary(summary: dict[str, Any]) -> None:
    about = summary["behavior"]
    known = any("sources" in row for row in summary["codes"])
    table = Table(title=f"{summary['data']['name']}: behaviors", title_justify="left")
    for column in ("code", "trajectories", "share", "return", "log-prob"):
        table.add_column(column, justify="right")
    if known:
        table.add_column("sources")
    for row in summary["codes"]:
        cells = [
            str(row["code"]),
            f"{row['trajectories']:,}",
            f"{row['share']:.1%}",
            f"{row['return_mean']:.2f}",
            f"{row['log_prob']:.3f}",
        ]
        if known:
            mix = sorted(row["sources"].items(), key=lambda item: -item[1])
            cells.append(", ".join(f"{name} {count}" for name, count in mix))
        table.add_row(*cells)
    out.print(table)
    words = [f"held-out log-probability {about['heldout_log_prob']:.3f} nats"]
    if about.get("single_gaussian_heldout_log_prob") is not None:
        words.append(f"one Gaussian {about['single_gaussian_heldout_log_prob']:.3f}")
    if "ari" in about:
        words.append(f"agreement with the sources (ARI) {about['ari']:.3f}")
    timing = summary["timing"]
    words.append(f"{timing['updates_per_second']:.0f} updates/s on {timing['device']}")
    out.print("; ".join(words))
    for r, replica in enumerate(summary.get("replicas", [])):
        ari = f", ARI {replica['ari']:.3f}" if "ari" in replica else ""
        out.print(
            f"replica {r}: k {replica['k']}, seed {replica['seed']}: "
            f"{counted(replica['codes_used'], 'code')}, held-out "
            f"{replica['heldout_log_prob']:.3f}{ari}"
        )
