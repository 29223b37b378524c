"""The page about the command line, from the program's own help.

Usage: python docs/build/cli.py > docs/cli.md
"""

import contextlib
import io
import os

from manyhands.cli.main import run

COMMANDS = (
    "demo",
    "data info",
    "data make",
    "data mix",
    "data convert",
    "fit",
    "train",
    "evaluate",
    "report",
    "benchmark",
    "export-metrics",
)
HEAD = """# Command line

<!-- Made by `make docs`: python docs/build/cli.py > docs/cli.md -->

Every command prints its result to standard output and signs of life to standard error.
It exits with 0, with 1 after an error (one line; `--debug` shows the whole traceback),
with 130 after Ctrl-C with the work saved: the same command goes on (`benchmark` with
`--resume`).
`manyhands train --algo NAME --help` lists the options of an algorithm; below are those
of `lbrac_v`.
"""


def page() -> str:
    return HEAD + "".join(
        f"\n## manyhands {name}\n\n```text\n{help_of(name)}\n```\n" for name in COMMANDS
    )


def help_of(command: str) -> str:
    # The same width and no colors, wherever it runs.
    os.environ |= {"COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run([*command.split(), "--help"])
    lines = printed.getvalue().strip().splitlines()
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    print(page(), end="")
