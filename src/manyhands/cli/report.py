"""manyhands report"""

from dataclasses import dataclass, field
from pathlib import Path

import tyro

from manyhands.cli.benchmark import show_results
from manyhands.cli.console import out
from manyhands.cli.data import Reading, load
from manyhands.data.formats import ReadOptions
from manyhands.errors import UserError


@dataclass(frozen=True)
class Report:
    """Write one HTML page about a run, or comparing several, or about a benchmark; it
    opens from disk. Of a benchmark also tables (Markdown, CSV, LaTeX) and figures."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """What `manyhands fit` or `manyhands train` has written, or one benchmark."""
    out: Path | None = None
    """The file; by default report.html in the run or benchmark, if there is one."""
    data: str | None = None
    """What the runs were made from, where they do not find it themselves."""
    reading: Reading = field(default_factory=ReadOptions)

    def run(self) -> None:
        for run in self.runs:
            if (run / "results.jsonl").exists():
                self._of_a_benchmark(run)
                return
        from manyhands.report.html_page import write_report  # JAX: when needed

        data = None if self.data is None else load(self.data, self.reading)
        page = write_report(self.runs, self.out, data)
        size = page.stat().st_size / 1e6
        words = f"wrote {page} ({size:.1f} MB): open it in a browser"
        out.print(words, soft_wrap=True)

    def _of_a_benchmark(self, folder: Path) -> None:
        if len(self.runs) > 1:
            raise UserError(
                f"{folder}: is a benchmark; expected it alone, got {len(self.runs)} "
                "directories"
            )
        if self.data is not None or self.reading != ReadOptions():
            raise UserError(
                "data and how to read it: only for runs; a benchmark's results say all"
            )
        if self.out is not None and self.out.is_dir():
            raise UserError(f"{self.out}: expected a file to write to, got a directory")
        show_results(folder, self.out)
