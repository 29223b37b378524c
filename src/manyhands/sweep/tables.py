"""Tables of a benchmark, from its results alone: Markdown, CSV, LaTeX."""

import csv
import io
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyhands.files import atomic_file
from manyhands.sweep.scores import Scores, together
from manyhands.sweep.statistics import Interval
from manyhands.wording import counted

OURS = re.compile(r"(main|data|sources|varying-k-.+|together-.+)\.(md|csv|tex)")
UNITS = "normalised, or plain where nobody has fixed a reference"


class Table(NamedTuple):
    name: str
    caption: str
    columns: list[str]
    rows: list[list[str]]
    best: frozenset[tuple[int, int]] = frozenset()  # row, column: in bold

    def markdown(self) -> str:
        head = [f"| {' | '.join(self.columns)} |", "|---|" + "---:|" * self.width]
        body = [f"| {' | '.join(row)} |" for row in self._marked("**{}**", str)]
        return "\n".join([f"## {self.caption}", "", *head, *body]) + "\n"

    @property
    def width(self) -> int:
        return len(self.columns) - 1

    def _marked(self, bold: str, form: Callable[[str], str]) -> list[list[str]]:
        return [
            [
                bold.replace("{}", form(cell)) if (r, c) in self.best else form(cell)
                for c, cell in enumerate(row)
            ]
            for r, row in enumerate(self.rows)
        ]

    def csv(self) -> str:
        return _csv([self.columns, *self.rows])

    def latex(self) -> str:
        lines = [
            r"% \usepackage{booktabs, adjustbox}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(self.caption)}}}",
            r"\begin{adjustbox}{max width=\linewidth}",
            rf"\begin{{tabular}}{{l{'r' * self.width}}}",
            r"\toprule",
            " & ".join(map(_tex, self.columns)) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in self._marked(r"\textbf{{}}", _tex)),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


TEX = {character: rf"\{character}" for character in "&%_#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
}


def _tex(text: str) -> str:
    return text.translate(str.maketrans(TEX))


def tables(rows: list[dict[str, Any]]) -> list[Table]:
    scores = Scores(rows)
    several = [label for label in scores.labels if len(scores.ks(label)) > 1]
    made = [_main(scores, several), _data(scores), *_sources(scores)]
    made += [_varying_k(scores, label) for label in several]
    return [*made, *_together(scores)]


def _digits(value: float) -> int:
    return 1 if abs(value) >= 10 else 2


def _cell(runs: np.ndarray) -> str:
    if not len(runs):
        return ""
    lost = int((~np.isfinite(runs)).sum())
    if lost:
        return f"{lost} of {len(runs)} diverged"
    digits = _digits(runs.mean())
    # A single run has no deviation.
    spread = f" ± {runs.std():.{digits}f}" if len(runs) > 1 else ""
    return f"{runs.mean():.{digits}f}{spread}"


def _highest(runs: list[list[np.ndarray]]) -> frozenset[tuple[int, int]]:
    """Where the highest mean of every row stands, if there is another to compare it
    with, behind the name of the row."""
    found = set()
    for r, row in enumerate(runs):
        means = {c + 1: one.mean() for c, one in enumerate(row) if len(one)}
        best = max(means, key=lambda c: means[c], default=0)
        if len(means) > 1 and np.isfinite(means[best]):
            found.add((r, best))
    return frozenset(found)


def _seeds(runs: list[list[np.ndarray]]) -> str:
    """Of how many runs the cells of a table are."""
    found = {len(one) for row in runs for one in row if len(one)}
    few, many = min(found, default=0), max(found, default=0)
    return counted(many, "seed") if few == many else f"{few} to {many} seeds"


def _main(scores: Scores, several: list[str]) -> Table:
    rows, all_runs = [], []
    for data in scores.data:
        best = [scores.best(data, label) for label in scores.labels]
        cells = [
            _cell(runs) + (f" (K = {k})" if label in several and len(runs) else "")
            for label, (runs, k) in zip(scores.labels, best)
        ]
        rows.append([data, *cells])
        all_runs.append([runs for runs, _ in best])
    note = "; with several K, the best one on average" if several else ""
    caption = f"Scores, mean ± standard deviation over {_seeds(all_runs)}{note}"
    columns = ["data", *scores.labels]
    return Table("main", caption, columns, rows, _highest(all_runs))


def _varying_k(scores: Scores, label: str) -> Table:
    ks = scores.ks(label)
    runs = [[scores.of(data, label, k) for k in ks] for data in scores.data]
    rows = [[data, *map(_cell, mine)] for data, mine in zip(scores.data, runs)]
    columns = ["data", *(f"K = {k}" for k in ks)]
    name, caption = f"varying-k-{label}", f"{label} for every K, over {_seeds(runs)}"
    return Table(name, caption, columns, rows, _highest(runs))


def _data(scores: Scores) -> Table:
    rows = []
    for data in scores.data:
        about = next(row for row in scores.rows if row["data"] == data)
        sizes = [f"{about[what]:,}" for what in ("trajectories", "transitions")]
        means = [_mean(about[what]) for what in ("data_score", "behaviors")]
        what = scores.units[data].removesuffix("_mean")
        rows.append([data, *sizes, *means, what])
    columns = ["trajectories", "transitions", "mean return", "behaviors' score"]
    caption = f"Data sets; returns are {UNITS}"
    return Table("data", caption, ["data", *columns, "scores are"], rows)


def _sources(scores: Scores) -> list[Table]:
    """Who made the data, where that is known."""
    found = {
        row["data"]: list(row["source_scores"].values())
        for row in scores.rows
        if row["source_scores"]
    }
    if not found:
        return []
    most = max(map(len, found.values()))
    rows = [
        [data, *map(_mean, found[data]), *[""] * (most - len(found[data]))]
        for data in scores.data
        if data in found
    ]
    columns = ["data", *(f"source {n + 1}" for n in range(most))]
    caption = f"Mean returns of those who made the data, {UNITS}"
    return [Table("sources", caption, columns, rows)]


def _mean(score: float | None) -> str:
    return "" if score is None else f"{score:.{_digits(score)}f}"


def _together(scores: Scores) -> list[Table]:
    """Over all data sets, by kind of score."""
    made = []
    for found in together(scores):
        rows = []
        for name, middle, better in zip(found.names, found.middle, found.better):
            cells = ["" if other is None else _interval(other) for other in better]
            rows.append([name, _interval(middle), *cells])
        columns = ["algorithm", "IQM", *(f"better than {name}" for name in found.names)]
        sets = "one data set" if found.sets == 1 else f"{found.sets} data sets"
        caption = (
            f"{found.kind.capitalize()} returns on {sets}: interquartile mean, and how "
            "probably a run is better than one of another, with 95% intervals"
        )
        made.append(Table(f"together-{found.kind}", caption, columns, rows))
    return made


def _interval(found: Interval) -> str:
    if found.low is None:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def write(made: list[Table], folder: Path) -> Path:
    """In three formats each, and one page with all of them."""
    forms = {"md": Table.markdown, "csv": Table.csv, "tex": Table.latex}
    files = {
        f"{table.name}.{suffix}": form(table)
        for table in made
        for suffix, form in forms.items()
    }
    for path in folder.iterdir() if folder.is_dir() else []:
        # Of results that are others now.
        if path.name not in files and OURS.fullmatch(path.name):
            path.unlink()
    for name, text in files.items():
        _write(folder / name, text)
    page = folder / "tables.md"
    _write(page, "# Results\n\n" + "\n".join(table.markdown() for table in made))
    return page


def write_cells(rows: list[dict[str, Any]], path: Path) -> Path:
    """For other programs: a line for every cell, numbers in full."""
    scores = Scores(rows)
    lines = [["data", "algorithm", "k", "units", "runs", "diverged", "mean", "std"]]
    for data, label in itertools.product(scores.data, scores.labels):
        for k in scores.ks(label):
            runs = scores.of(data, label, k)
            if not len(runs):
                continue
            lost = int((~np.isfinite(runs)).sum())
            numbers = ["", ""] if lost else [float(runs.mean()), float(runs.std())]
            units = scores.units[data].removesuffix("_mean")
            counts = [len(runs), lost]
            lines.append([data, label, k or "", units, *map(str, counts + numbers)])
    _write(path, _csv(lines))
    return path


def _csv(lines: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text)
