"""The program `manyhands`: parse, call, print; errors in one line."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Union

import tyro
from rich.text import Text

import manyhands
from manyhands.cli import data
from manyhands.cli.benchmark import Benchmark
from manyhands.cli.console import err, notes
from manyhands.cli.demo import Demo
from manyhands.cli.fit import Fit
from manyhands.cli.metrics import ExportMetrics
from manyhands.cli.report import Report
from manyhands.cli.train import Evaluate, Train, train_command
from manyhands.errors import UserError

INTERRUPTED = 130


@dataclass(frozen=True)
class Data:
    """Look at data sets, make them, merge them, convert them."""

    command: (
        Annotated[data.Info, tyro.conf.subcommand("info")]
        | Annotated[data.Make, tyro.conf.subcommand("make")]
        | Annotated[data.Mix, tyro.conf.subcommand("mix")]
        | Annotated[data.Convert, tyro.conf.subcommand("convert")]
    )

    def run(self) -> None:
        self.command.run()


def commands(arguments: list[str]) -> Any:
    """All of them; what `train` takes depends on the algorithm named in it."""
    # Only then: the algorithms' options are in files that import JAX.
    training = train_command(arguments) if arguments[:1] == ["train"] else Train
    named = {
        "demo": Demo,
        "data": Data,
        "fit": Fit,
        "train": training,
        "evaluate": Evaluate,
        "report": Report,
        "benchmark": Benchmark,
        "export-metrics": ExportMetrics,
    }
    return Union[  # noqa: UP007, of what is known only now
        tuple(Annotated[cls, tyro.conf.subcommand(name)] for name, cls in named.items())
    ]


DESCRIPTION = """Behavior estimation and offline reinforcement learning from data that
many hands collected. --version prints the version; --debug shows the whole traceback of
an error."""


@dataclass(frozen=True)
class Program:
    """A command line with subcommands, each a class with `run()`."""

    name: str
    description: str
    commands: Callable[[list[str]], Any]  # the type of subcommands for some arguments


MANYHANDS = Program("manyhands", DESCRIPTION, commands)


def main(arguments: list[str] | None = None, program: Program = MANYHANDS) -> None:
    code = run(sys.argv[1:] if arguments is None else arguments, program)
    unwritten = _flush()
    if unwritten:
        code = 1
        if not isinstance(unwritten, BrokenPipeError):  # `| head` has read enough
            _complain(unwritten)
    sys.exit(code)


def run(arguments: list[str], program: Program = MANYHANDS) -> int:
    """The exit code: 0, 1 after an error, 130 after Ctrl-C."""
    if arguments == ["--version"]:
        print(manyhands.__version__)
        return 0
    debug, command = "--debug" in arguments, None
    try:
        if "" in arguments:  # a path would read it as the folder we are in
            before = " ".join([program.name, *arguments[: arguments.index("")]])
            raise UserError(f"{before}: expected something to follow, got ''")
        command = tyro.cli(
            program.commands(arguments),
            prog=program.name,
            description=program.description,
            args=[a for a in arguments if a != "--debug"] or ["--help"],
            config=(tyro.conf.OmitSubcommandPrefixes,),
        )
        with notes():
            command.run()
    except (UserError, OSError) as error:
        if command is None and isinstance(error, BrokenPipeError):
            return 1  # `--help | head`
        if debug:
            raise
        _complain(error)
        return 1
    except KeyboardInterrupt:
        how = " with --resume" if isinstance(command, Benchmark) else ""
        words = f"interrupted; run the same command{how} to go on, where it had begun"
        err.print(f"{words} a run", soft_wrap=True)
        return INTERRUPTED
    except SystemExit as stop:  # tyro has printed the help or what was wrong
        return 1 if stop.code else 0
    return 0


def _complain(error: Exception) -> None:
    words = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        # A file is written under another name first, then renamed.
        words = f"{error.filename2 or error.filename}: {error.strerror}"
    err.print(Text.assemble(("error: ", "red"), words), soft_wrap=True)


def _flush() -> OSError | None:
    """What keeps standard output from being written, if anything does."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would try once more when it ends, and say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None
