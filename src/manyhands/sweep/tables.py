"""Tables of a benchmark, from its results alone: Markdown, CSV, LaTeX."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyhands.errors import UserError
from manyhands.files import atomic_file
from manyhands.sweep.statistics import improvement, iqm_interval
from manyhands.wording import counted

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
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

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


def natural(name: str) -> list[str | int]:
    """heterogeneous-2 comes before heterogeneous-10."""
    parts = re.split(r"(\d+)", name)
    return [int(part) if part.isdecimal() else part for part in parts]


class Scores:
    """Results by data set and algorithm."""

    def __init__(self, rows: list[dict[str, Any]]):
        _check_data(rows)
        # Not as they came: which fleet ends first is chance.
        rows = sorted(rows, key=lambda row: row["seed"])
        self.rows = [row for row in rows if row["return_mean"] is not None]
        self.data = sorted({row["data"] for row in self.rows}, key=natural)
        self.labels = sorted({row["label"] for row in self.rows}, key=natural)
        self._found: dict[tuple, list[float]] = defaultdict(list)
        for row in self.rows:
            key = row["data"], row["label"], row["k"]
            self._found[key].append(row[measure(row["data"], self.rows)])

    def of(self, data: str, label: str, k: str | None) -> np.ndarray:
        return np.array(self._found.get((data, label, k), []))

    def ks(self, label: str) -> list[str | None]:
        found = {k for _, other, k in self._found if other == label}
        return sorted(found, key=lambda k: natural(str(k)))

    def best(self, data: str, label: str) -> tuple[np.ndarray, str | None]:
        """With the best K on average, as the paper reports it, and which that is."""
        tried = [(self.of(data, label, k), k) for k in self.ks(label)]
        tried = [(runs, k) for runs, k in tried if len(runs)]
        if not tried:
            return np.array([]), None
        return max(tried, key=lambda one: one[0].mean())


def _check_data(rows: list[dict[str, Any]]) -> None:
    """A mean over runs on different data would be none of either."""
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = first.setdefault(row["data"], row)
        if one.get("fingerprint") != row.get("fingerprint"):
            raise UserError(
                f"{row['data']}: expected results of one data set, got some of "
                f"{one['transitions']:,} transitions (fingerprint "
                f"{one.get('fingerprint')}) and some of {row['transitions']:,} "
                f"({row.get('fingerprint')})"
            )


def measure(data: str, rows: list[dict[str, Any]]) -> str:
    """Relative returns where several agents made the data, as in the paper; else
    normalised ones; else, without a reference, plain ones."""
    mine = [row for row in rows if row["data"] == data]
    names = ["normalized", "return_mean"]
    if "heterogeneous" in data:
        names.insert(0, "relative")
    return next(n for n in names if all(row[n] is not None for row in mine))


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
    digits = _digits(runs.mean())
    return f"{runs.mean():.{digits}f} ± {runs.std():.{digits}f}"


def _highest(runs: list[list[np.ndarray]]) -> frozenset[tuple[int, int]]:
    """Where the highest mean of every row stands, if there is another to compare it
    with, behind the name of the row."""
    found = set()
    for r, row in enumerate(runs):
        means = {c + 1: one.mean() for c, one in enumerate(row) if len(one)}
        if len(means) > 1:
            found.add((r, max(means, key=lambda c: means[c])))
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
        # Results of earlier versions do not have all of these.
        means = [_mean(about.get(what)) for what in ("data_score", "behaviors")]
        what = measure(data, scores.rows).removesuffix("_mean")
        rows.append([data, *sizes, *means, what])
    columns = ["trajectories", "transitions", "mean return", "behaviors' score"]
    caption = f"Data sets; returns are {UNITS}"
    return Table("data", caption, ["data", *columns, "scores are"], rows)


def _sources(scores: Scores) -> list[Table]:
    """Who made the data, where that is known."""
    found = {
        row["data"]: list(row["source_scores"].values())
        for row in scores.rows
        if row.get("source_scores")
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
    """Over all data sets, by kind of score: who has been run on all of them. Every K is
    for itself, since the best of several on the episodes that are compared would seem
    better than it is."""
    made = []
    for kind in ("relative", "normalized"):
        mine = [d for d in scores.data if measure(d, scores.rows) == kind]
        runs = {
            f"{label} (K = {k})" if len(scores.ks(label)) > 1 else label: [
                scores.of(data, label, k) for data in mine
            ]
            for label in scores.labels
            for k in scores.ks(label)
        }
        whole = {
            name: found
            for name, found in runs.items()
            if found and all(len(one) for one in found)
        }
        if not whole:
            continue
        rows = []
        for name, found in whole.items():
            middle = iqm_interval(found)
            cells = [f"{middle.value:.2f} [{middle.low:.2f}, {middle.high:.2f}]"]
            for other in whole:
                better = improvement(found, whole[other])
                shown = f"{better.value:.2f} [{better.low:.2f}, {better.high:.2f}]"
                cells.append("" if other == name else shown)
            rows.append([name, *cells])
        columns = ["algorithm", "IQM", *(f"better than {name}" for name in whole)]
        sets = "one data set" if len(mine) == 1 else f"{len(mine)} data sets"
        caption = (
            f"{kind.capitalize()} returns on {sets}: interquartile mean, and how "
            "probably a run is better than one of another, with 95% intervals"
        )
        made.append(Table(f"together-{kind}", caption, columns, rows))
    return made


def write(rows: list[dict[str, Any]], folder: Path) -> Path:
    """All tables, in three formats each, and one page with all of them."""
    made = tables(rows)
    forms = {"md": Table.markdown, "csv": Table.csv, "tex": Table.latex}
    for table in made:
        for suffix, form in forms.items():
            _write(folder / f"{table.name}.{suffix}", form(table))
    page = folder / "tables.md"
    _write(page, "# Results\n\n" + "\n".join(table.markdown() for table in made))
    return page


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text)
