"""manyhands report"""

from dataclasses import dataclass, field
from pathlib import Path

import tyro

from manyhands.cli.benchmark import show_results
from manyhands.cli.console import out
from manyhands.cli.data import Reading, load
from manyhands.data.formats import ReadOptions


@dataclass(frozen=True)
class Report:
    """Write one HTML page about a run, or comparing several, which opens from disk; of
    a benchmark its tables (Markdown, CSV, LaTeX) and figures."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """What `manyhands fit` or `manyhands train` has written, or one benchmark."""
    out: Path | None = None
    """The file; by default report.html in the run, if there is one run."""
    data: str | None = None
    """What the runs were made from, where they do not find it themselves."""
    reading: Reading = field(default_factory=ReadOptions)

    def run(self) -> None:
        if len(self.runs) == 1 and (self.runs[0] / "results.jsonl").exists():
            show_results(self.runs[0])
            return
        from manyhands.report.html_page import write_report  # JAX: when needed

        data = None if self.data is None else load(self.data, self.reading)
        page = write_report(self.runs, self.out, data)
        size = page.stat().st_size / 1e6
        words = f"wrote {page} ({size:.1f} MB): open it in a browser"
        out.print(words, soft_wrap=True)
