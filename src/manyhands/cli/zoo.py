"""manyhands zoo train | export | check"""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from manyhands.cli.console import out, progress, training_progress
from manyhands.errors import UserError
from manyhands.options import choose, overrides
from manyhands.training.planned import Planned
from manyhands.zoo.options import PRESETS
from manyhands.zoo.tasks import data_sets

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

        from manyhands.zoo.train import train  # JAX: when needed

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
    """What `zoo train` wrote."""
    out: Path
    """The folder: a manifest, and one file for every task."""
    workers: int | None = None
    """Processes that step environments (as many as there are cores)."""

    def run(self) -> None:
        if (self.out / "manifest.json").exists():
            raise UserError(f"{self.out}: holds policies; choose another directory")

        from manyhands.zoo import policies
        from manyhands.zoo.export import Trained, export

        total = Trained(self.run_directory).expected()
        command = shlex.join(["manyhands", *sys.argv[1:]])
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
    """Make small versions of the zoo's data sets: are they what they were?"""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Data sets; all of them if none is given."""
    write: bool = False
    """Register what is found, with this kind of machine."""

    def run(self) -> None:
        from manyhands.zoo import registry

        known = list(data_sets())
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
