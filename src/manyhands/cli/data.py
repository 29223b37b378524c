"""manyhands data info | make | mix | convert"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from manyhands import datasets
from manyhands.cli.console import out, progress
from manyhands.data import formats
from manyhands.data.card import card
from manyhands.data.checks import ActionsOutside
from manyhands.data.formats import ReadOptions
from manyhands.data.mix import concatenate
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError
from manyhands.wording import counted

Reading = Annotated[ReadOptions, tyro.conf.OmitArgPrefixes]


@dataclass(frozen=True)
class Info:
    """Show the data set card: what is in it, who made it, problems found."""

    data: tyro.conf.Positional[str]
    """A path, or format:where (d4rl, minari, robomimic, lerobot, npz, fork, zoo)."""
    json: bool = False
    """Print the card as JSON."""
    reading: Reading = field(default_factory=ReadOptions)

    def run(self) -> None:
        result = card(_load_to_look_at(self.data, self.reading))
        if self.json:
            out.out(json.dumps(result, indent=2), highlight=False)
        else:
            print_card(result)


@dataclass(frozen=True)
class Make:
    """Make a built-in data set and write it to disk."""

    name: tyro.conf.Positional[str]
    """fork-1 to fork-5: the fork problem with that many demonstrators; leap-1 to
    leap-5: the same with long moves; {hopper, halfcheetah, walker2d}-{heterogeneous-1
    to heterogeneous-5, random, medium, medium-replay, medium-expert}: MuJoCo, by stored
    policies."""
    out: str
    """The file: .hdf5 (D4RL's layout), .npz, or format:where."""
    transitions: int | None = None
    """At least this many (fork: 20000, MuJoCo: as the paper's, most 1000000);
    trajectories are complete."""
    seed: int = 0
    """The same seed makes the same data."""
    overwrite: bool = False
    """Replace the file, or the folder of a data set, if it exists."""

    def run(self) -> None:
        _check_destination(self.out, self.overwrite)
        total = self.transitions or datasets.usual_size(self.name)
        with progress(f"making {self.name}", total) as show:
            data = datasets.make(self.name, self.transitions, self.seed, show)
        _write(data, self.out)


@dataclass(frozen=True)
class Mix:
    """Merge data sets, keeping one source label per trajectory."""

    data: tyro.conf.Positional[tuple[str, ...]]
    """Two or more data sets with the same dimensions and action bounds."""
    out: str
    """The file: .hdf5 (D4RL's layout), .npz, or format:where."""
    by_file: bool = False
    """One source per data set, whatever labels the trajectories have."""
    overwrite: bool = False
    """Replace the file, or the folder of a data set, if it exists."""
    reading: Reading = field(default_factory=ReadOptions)

    def run(self) -> None:
        if len(self.data) < 2:
            raise UserError(
                f"mix: expected two or more data sets, got {len(self.data)}"
            )
        _check_destination(self.out, self.overwrite)
        parts = [load(data, self.reading) for data in self.data]
        _write(concatenate(parts, by_part=self.by_file), self.out)


@dataclass(frozen=True)
class Convert:
    """Read a data set in one format and write it in another."""

    data: tyro.conf.Positional[str]
    """A path, or format:where."""
    out: tyro.conf.Positional[str]
    """The file: .hdf5 (D4RL's layout), .npz, or format:where."""
    overwrite: bool = False
    """Replace the file, or the folder of a data set, if it exists."""
    reading: Reading = field(default_factory=ReadOptions)

    def run(self) -> None:
        _check_destination(self.out, self.overwrite)
        _write(load(self.data, self.reading), self.out)


def print_card(result: dict[str, Any]) -> None:
    table = Table(title=f"{result['name']}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for label, value in _card_rows(result):
        table.add_row(label, value)
    out.print(table)
    if result["sources"]:
        out.print(_source_table(result))
    for remark in result["remarks"]:
        out.print(Text.assemble(("! ", "yellow"), remark))
    if not result["remarks"]:
        out.print("nothing to remark", style="green")


def _card_rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    returns, lengths, ends = result["returns"], result["lengths"], result["ends"]
    low, high = result["action_low"], result["action_high"]
    bounds = [f"{low[0]:g} to {high[0]:g}"]
    if len(set(low)) > 1 or len(set(high)) > 1:
        bounds = [f"{a:g} to {b:g}" for a, b in zip(low, high)]
    rows = [
        ("trajectories", f"{result['trajectories']:,}"),
        ("transitions", f"{result['transitions']:,}"),
        ("observations", counted(result["observation_size"], "number")),
        ("actions", ", ".join([counted(result["action_size"], "number"), *bounds])),
        (
            "returns",
            f"{returns['mean']:.2f} ± {returns['std']:.2f}, "
            f"{returns['min']:.2f} to {returns['max']:.2f}",
        ),
        (
            "lengths",
            f"{lengths['mean']:.1f} ± {lengths['std']:.1f}, "
            f"{lengths['min']:.0f} to {lengths['max']:.0f}",
        ),
        (
            "ends",
            f"{ends['terminal']:,} terminal, {ends['timeout']:,} time-out, "
            f"{ends['cut_off']:,} cut off",
        ),
    ]
    if result["log_prob"] is not None:
        rows.append(("log-probability", f"{result['log_prob']:.3f} nats a transition"))
    if result["env_id"]:
        rows.append(("environment", result["env_id"]))
    rows.append(("fingerprint", result["fingerprint"]))
    return rows


def _source_table(result: dict[str, Any]) -> Table:
    table = Table(title="sources", title_justify="left")
    table.add_column("source", overflow="fold")  # the ends of names may tell them apart
    for column in ("trajectories", "transitions", "return", "log-prob"):
        if column != "log-prob" or result["log_prob"] is not None:
            table.add_column(column, justify="right")
    for row in result["sources"]:
        cells = [
            row["name"],
            f"{row['trajectories']:,}",
            f"{row['transitions']:,}",
            f"{row['return_mean']:.2f} ± {row['return_std']:.2f}",
        ]
        if "log_prob" in row:
            cells.append(f"{row['log_prob']:.3f}")
        table.add_row(*cells)
    return table


def load(data: str, reading: ReadOptions) -> Trajectories:
    return datasets.load(data, **_given(reading))


def _given(reading: ReadOptions) -> dict[str, Any]:
    return {k: v for k, v in vars(reading).items() if v != getattr(ReadOptions, k)}


def origin(data: str, reading: ReadOptions) -> dict[str, Any]:
    """Where a data set came from, so that it can be found from another directory."""
    prefix, where = "", data
    if not Path(data).exists() and ":" in data:
        prefix, _, where = data.partition(":")
    if Path(where).exists():
        data = (
            f"{prefix}:{Path(where).resolve()}"
            if prefix
            else str(Path(where).resolve())
        )
    return {"data": data, "options": _given(reading)}


def _load_to_look_at(data: str, reading: ReadOptions) -> Trajectories:
    """A card shows what is wrong with the actions instead of refusing to look."""
    try:
        return load(data, reading)
    except ActionsOutside:
        return load(data, replace(reading, clip=True))


def _check_destination(spec: str, overwrite: bool) -> None:
    if formats.exists(spec) and not overwrite:
        raise UserError(f"{spec}: exists already; pass --overwrite to replace it")


def _write(data: Trajectories, spec: str) -> None:
    datasets.save(data, spec)
    steps = counted(data.transitions, "transition")
    out.print(f"wrote {spec}: {steps}, {counted(len(data), 'trajectory')}")
