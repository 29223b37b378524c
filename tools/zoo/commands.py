"""The commands: python tools/zoo train | export | check"""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from manyhands.agents.tasks import data_set_sizes
from manyhands.cli import main as program
from manyhands.cli.console import out, progress, training_progress
from manyhands.errors import UserError
from manyhands.options import choose, overrides
from manyhands.training.planned import Planned
from zoo.options import PRESETS

if TYPE_CHECKING:
    Overrides = Any
else:
    Overrides = overrides(PRESETS)


@dataclass(frozen=True)
class Train:
    """Train behavior policies (SAC), all of them in one program.

    Run the same command again to continue a run that was interrupted."""

    tasks: tyro.conf.Positional[tuple[str, ...]]
    """hopper, halfcheetah, walker2d."""
    out: Path
    """The run directory."""
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """One agent for every task and seed."""
    workers: int | None = None
    """Processes that step environments (as many as there are cores)."""
    options: Annotated[Overrides, tyro.conf.OmitArgPrefixes] = field(
        default_factory=Overrides  # type: ignore
    )
    """Hyper-parameters; the defaults are rlkit's."""

    def run(self) -> None:
        changes = {k: v for k, v in vars(self.options).items() if v is not None}
        steps = choose(PRESETS, "default", changes).steps
        if (self.out / "summary.json").exists():
            raise UserError(
                f"{self.out}: holds a finished run; choose another directory"
            )

        from zoo.train import train  # JAX: when needed

        agents = len(self.tasks) * len(self.seeds)
        what = f"training {agents} agent{'s' if agents != 1 else ''}"
        with training_progress(what, [Planned("agents", "", steps)]) as show:
            train(
                self.tasks,
                self.seeds,
                self.out,
                workers=self.workers,
                progress=show,
                **changes,
            )
        out.print(f"wrote {self.out}")


@dataclass(frozen=True)
class Export:
    """Choose policies of a finished run, play them, and store them."""

    run_directory: tyro.conf.Positional[Path]
    """What `train` wrote."""
    out: Path
    """The folder: a manifest, and one file for every task."""
    workers: int | None = None
    """Processes that step environments (as many as there are cores)."""

    def run(self) -> None:
        if (self.out / "manifest.json").exists():
            raise UserError(f"{self.out}: holds policies; choose another directory")

        from manyhands.agents import policies
        from zoo.export import Trained, export

        total = Trained(self.run_directory).expected()
        command = shlex.join(["python", "tools/zoo", *sys.argv[1:]])
        with progress("playing policies", total) as show:
            export(
                self.run_directory,
                self.out,
                command=command,
                workers=self.workers,
                progress=show,
            )
        for about in policies.manifest(self.out):
            out.print(
                f"{about.name}  return {about.return_mean:.0f} ± {about.return_std:.0f}"
                f"  by the mode {about.mode_return_mean:.0f}"
                f" ± {about.mode_return_std:.0f}  score {about.normalized:.1f}"
            )
        out.print(f"wrote {self.out}")


@dataclass(frozen=True)
class Check:
    """Make small versions of all data sets; compare with registered fingerprints."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Data sets; all of them if none is given."""
    write: bool = False
    """Register the fingerprints for this kind of machine."""

    def run(self) -> None:
        from zoo import registry

        known = list(data_set_sizes())
        for name in self.names:
            if name not in known:
                raise UserError(f"{name}: expected one of {', '.join(known)}")
        if self.write and self.names:
            raise UserError("names, --write: all data sets are registered together")
        chosen, checks = self.names or known, []
        with progress("making data sets", len(chosen)) as show:
            for number, found in enumerate(registry.check(chosen), 1):
                checks.append(found)
                show(number)
        if self.write:
            registry.write(checks)
            out.print(f"wrote {len(checks)} fingerprints of {registry.machine()}")
            return
        if registry.machine() not in registry.machines():
            for found in checks:
                out.print(f"{found.name}  {found.found}")
            there = ", ".join(registry.machines())
            out.print(
                f"nothing to compare with: this is {registry.machine()}, registered "
                f"are {there}",
                soft_wrap=True,
            )
            return
        for found in checks:
            out.print(f"{found.name}  {'same' if found.same else 'other'} data")
        if not all(found.same for found in checks):
            raise UserError(
                "expected the registered data sets, found others: the simulator, "
                "the policies or the noise have changed"
            )


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Check, tyro.conf.subcommand("check")]
)
ZOO = program.Program(
    name="python tools/zoo",
    description="Train, choose and check the stored agents that make the data sets.",
    commands=lambda arguments: Command,
)


def main() -> None:
    program.main(program=ZOO)
