"""manyhands benchmark"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from manyhands.cli.console import err, out
from manyhands.errors import UserError
from manyhands.files import check_inside
from manyhands.interrupts import sigterm_as_ctrl_c
from manyhands.wording import counted

if TYPE_CHECKING:
    from manyhands.sweep.plan import Fleet


@dataclass(frozen=True)
class Benchmark:
    """Train and evaluate a whole table: data sets x algorithms x K x seeds. Every
    finished run is a line of results.jsonl; killed, it goes on with --resume."""

    preset: tyro.conf.Positional[str]
    """smoke, baselines, model-based, heterogeneous, varying-k, paper-heterogeneous,
    paper-d4rl-style, or a TOML file."""
    out: Path
    """The directory for everything."""
    resume: bool = False
    """Go on with what is missing or failed."""
    only: tuple[str, ...] = ()
    """Only where DATA/ALGORITHM contains one of these words, or is as a pattern such as
    '*/bc' has it."""
    engine: Literal["local", "ray"] = "local"
    """local: processes on this machine. ray: the cluster that RAY_ADDRESS names."""
    jobs: int = 1
    """Processes at a time (local)."""
    together: int | None = None
    """Data sets of the same shape that train in one program. Default: on a GPU of this
    machine as many as make 24 runs, else 1."""
    gpus_per_fleet: float | None = None
    """GPUs of a fleet, or a part of one (ray). Default: 1, where there are any."""
    cpus_per_fleet: int | None = None
    """Cores of a fleet (ray). Default: 1 with a GPU, up to 4 without."""
    plan: bool = False
    """Show what is left to run, how long and with how much memory, and do nothing."""

    def run(self) -> None:
        from manyhands.sweep import preset as presets  # JAX: when needed
        from manyhands.sweep.benchmark import benchmark
        from manyhands.sweep.continuing import look
        from manyhands.sweep.plan import fleets
        from manyhands.sweep.results import Results

        if self.jobs < 1:
            raise UserError(f"jobs: expected at least 1, got {self.jobs}")
        if self.together is not None and self.together < 1:
            raise UserError(f"together: expected at least 1, got {self.together}")
        preset = presets.load(self.preset)
        chosen = fleets(preset, self.only)
        runs = sum(len(fleet.keys) for fleet in chosen)
        of = {
            "data set": preset.data,
            "algorithm": preset.entries,
            "seed": preset.seeds,
        }
        table = ", ".join(counted(len(some), thing) for thing, some in of.items())
        all_of_it = f"{counted(runs, 'run')} in {counted(len(chosen), 'fleet')}"
        about = f"{preset.about}\n" if preset.about else ""
        out.print(f"{about}{table}: {all_of_it}", soft_wrap=True)
        engine = self._engine()
        if self.plan:
            held = look(self.out, preset, self.only)
            if held.todo:
                self._estimated(held.todo)
            else:
                out.print("nothing is left to run")
            return
        started = time.monotonic()

        def show(done: int, of: int, words: str) -> None:
            minutes = (time.monotonic() - started) / 60
            err.print(f"{done} of {of}, {minutes:.1f} min: {words}", soft_wrap=True)

        with sigterm_as_ctrl_c():
            failed = benchmark(
                preset,
                self.out,
                engine,
                resume=self.resume,
                only=self.only,
                prepare=self._estimated,
                progress=show,
            )
        try:
            if Results(self.out).rows():
                show_results(self.out)
        except UserError as error:
            if not failed:
                raise
            err.print(f"no tables: {error}", soft_wrap=True)
        if failed:
            names = ", ".join(outcome.fleet.name for outcome in failed)
            raise UserError(
                f"{counted(len(failed), 'fleet')} failed: {names}; see log.txt in "
                f"{self.out / 'runs'}, and try again with --resume"
            )

    def _estimated(self, todo: list["Fleet"]) -> list["Fleet"]:
        """Say what it will take; fleets come back joined, or in parts if too large."""
        from manyhands.sweep.estimate import Asked, ask
        from manyhands.sweep.local import environ

        here = self.engine == "local"
        # Nodes of a cluster have memory of their own, and each may take a fleet.
        together = self.together if here else self.together or 1
        asked = Asked(todo, self.jobs, split=here, together=together)
        try:
            found = ask(self.out, asked, environ(self.jobs))
        except RuntimeError as error:  # no reason not to try
            err.print(f"no estimate of time and memory: {error}", soft_wrap=True)
            return todo
        if self.jobs > 1 or not here:
            found = found.longest_first()
        out.print(found.table(), soft_wrap=True)
        return found.fleets

    def _engine(self):
        share = {"gpus": self.gpus_per_fleet, "cpus": self.cpus_per_fleet}
        if self.engine == "ray":
            if self.jobs != 1:
                raise UserError("jobs: only with --engine local; --cpus-per-fleet N")
            from manyhands.sweep.ray_engine import Ray

            return Ray(**share)
        for name, given in share.items():
            if given is not None:
                raise UserError(f"{name} per fleet: only with --engine ray; --jobs N")
        from manyhands.sweep.local import Local

        return Local(self.jobs)


def show_results(folder: Path, page: Path | None = None) -> None:
    """Tables, figures and a page from results.jsonl alone; the main table is printed.

    Args:
        page: where to; report.html in the folder if None.
    """
    from manyhands.sweep import figures, results, tables
    from manyhands.sweep import page as pages

    rows = results.read(folder)
    for name in ("tables", "figures"):
        check_inside(folder, folder / name)
    made = tables.tables(rows)
    written = [
        tables.write(made, folder / "tables"),
        tables.write_cells(rows, folder / "tables" / "cells.csv"),
    ]
    written += figures.write(rows, folder / "figures")
    name = folder.resolve().name
    written.append(pages.write(rows, name, page or folder / "report.html"))
    out.print(made[0].markdown(), soft_wrap=True)
    for path in written:
        out.print(f"wrote {path}", soft_wrap=True)
