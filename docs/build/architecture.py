"""Writes the tree of ARCHITECTURE.md: every module with its docstring's first words.

Usage: python docs/build/architecture.py
"""

import ast
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "manyhands"
WIDTH = 96
TITLES = {
    "": "The package",
    "data": "Data: the container, and the readers and writers of formats",
    "nn": "Networks",
    "assign": "Assigners: who made which trajectory (`fit` does not call them yet)",
    "envs": "Environments",
    "training": "The loop",
    "behavior": "Behavior estimators",
    "dynamics": "Models of the dynamics",
    "agents": "Stored agents, which play data sets",
    "algos": "Policies: one file an algorithm, and what they share",
    "report": "Pages and pictures",
    "sweep": "Benchmarks",
    "cli": "The command line",
}


def words(path: Path) -> str:
    """The first paragraph of a module's docstring, in one line."""
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(doc.split("\n\n")[0].split())


def section(name: str) -> str:
    folder = PACKAGE / name
    files = sorted(p for p in folder.glob("*.py") if words(p) and p.stem[:2] != "__")
    widest = max(len(path.name) for path in files)
    lines = [f"### {TITLES[name]}", "", "```", *([f"{name}/"] if name else [])]
    for path in files:
        first = f"{'  ' if name else ''}{path.name:<{widest}}  "
        lines += textwrap.wrap(
            words(path),
            WIDTH,
            initial_indent=first,
            subsequent_indent=" " * len(first),
        )
    return "\n".join([*lines, "```", ""])


def main() -> None:
    file = ROOT / "ARCHITECTURE.md"
    text = file.read_text()
    start, end = text.index("### The package"), text.index("`tests/` mirrors")
    tree = "\n".join(section(name) for name in TITLES)
    file.write_text(text[:start] + tree + "\n" + text[end:])


if __name__ == "__main__":
    main()
