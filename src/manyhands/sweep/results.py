"""DIR/results.jsonl: one line for every replica that is finished, and never two."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from manyhands.errors import UserError
from manyhands.files import atomic_file, file_inside, strict_json
from manyhands.sweep.plan import Key


class Results:
    """Written by one process at a time."""

    def __init__(self, folder: Path):
        self.path = file_inside(folder, folder / "results.jsonl")

    def rows(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        rows = []
        for line in self.path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:  # the line that a kill cut short
                continue
        return rows

    def keys(self) -> set[Key]:
        return {Key.of(row) for row in self.rows()}

    def mend(self) -> None:
        """Drop a line that a kill cut short, before anything is added to it."""
        if self.path.exists() and not self.path.read_text().endswith("\n"):
            with atomic_file(self.path) as temporary:
                temporary.write_text(_lines(self.rows()))

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Those that are not there yet, in one write."""
        fresh = {Key.of(row): row for row in rows}
        for key in self.keys():
            fresh.pop(key, None)
        with self.path.open("a") as file:
            file.write(_lines(fresh.values()))
            file.flush()
            os.fsync(file.fileno())


def read(folder: Path) -> list[dict[str, Any]]:
    rows = Results(folder).rows()
    if not rows:
        raise UserError(f"{folder}/results.jsonl: expected results, found none")
    return rows


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(strict_json(row)) + "\n" for row in rows)
