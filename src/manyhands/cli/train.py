"""manyhands train, manyhands evaluate"""

from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from manyhands.cli.console import out, training_progress
from manyhands.cli.data import Reading, load, origin
from manyhands.cli.fit import number_or_auto
from manyhands.cli.metrics import logged
from manyhands.data.formats import ReadOptions
from manyhands.errors import UserError
from manyhands.options import overrides, varying
from manyhands.runs import Run, command_of

DEFAULT = "lbrac_v"


@dataclass(frozen=True)
class Train:
    """Learn a policy from logged data. Other options: --algo NAME --help."""

    data: tyro.conf.Positional[str]
    """A path, or format:where (d4rl, minari, robomimic, lerobot, npz, fork, zoo)."""
    out: Path
    """The run directory. A run that was interrupted there is continued."""
    algo: str = DEFAULT
    """lbrac_v, brac_v, brac_p, cql, fisher_brc, bcq, plas, td3_bc, iql, rebrac, mopo,
    mopp, bc, vae_bc, or clone: the best behavior as it is."""
    behavior: Path | None = None
    """A run of `manyhands fit` on this data to start from; else that comes first. For
    mopp: to plan with, instead of a model of its own."""
    k: tuple[str, ...] = ()
    """How many behaviors to look for then, or auto; several train together. Else 10,
    or as many as there are trajectories."""
    seeds: tuple[int, ...] = (0,)
    """Several train together, and so do several values of an option."""
    preset: str = "default"
    """default, or paper: the printed hyper-parameters. Some have others, by task."""
    env: str | None = None
    """The environment to evaluate in; by default the one that made the data."""
    episodes: int = 20
    """Of each evaluation; 0: never."""
    evaluations: int = 10
    """How many there are along the way, besides the one at the end."""
    scale_actions: tyro.conf.FlagCreatePairsOff[bool] = False
    """Stretch actions from the data's bounds to the environment's in evaluations."""
    log: tuple[str, ...] = ()
    """Hand metrics on while they come: tensorboard, wandb, mlflow."""
    reading: Reading = field(default_factory=ReadOptions)

    def run(self) -> None:
        from manyhands.algos.registry import algorithm  # JAX: when needed
        from manyhands.algos.request import option_grid, resolve
        from manyhands.algos.train import carry_out

        changes = self.changes()
        # Before the data is read, which may take a while.
        option_grid(algorithm(self.algo), self.preset, changes)
        if (self.out / "summary.json").exists():
            raise UserError(
                f"{self.out}: holds a finished run; choose another directory"
            )
        data = load(self.data, self.reading)
        known = self.env or data.env_id
        request = resolve(
            data,
            self.algo,
            behavior=None if self.behavior is None else _behavior_set(self.behavior),
            k=[number_or_auto(k) for k in self.k] or None,
            seed=self.seeds,
            preset=self.preset,
            env=self.env,
            episodes=self.episodes if known else 0,
            evaluations=self.evaluations if known and self.episodes else 0,
            scale_actions=self.scale_actions,
            **changes,
        )
        with (
            training_progress(f"{self.algo} on {data.name}", request.stages) as bar,
            logged(bar, self.out, self.log) as show,
        ):
            carry_out(request, self.out, progress=show)
        Run(self.out).note(loaded_from=origin(self.data, self.reading))
        print_summary(Run(self.out).read_json("summary.json"))
        out.print(f"wrote {self.out}")

    def changes(self) -> dict[str, Any]:
        """Hyper-parameters that were given; several values of one are a tuple."""
        given = vars(vars(self)["options"]) if "options" in vars(self) else {}
        return {
            name: value[0] if isinstance(value, tuple) and len(value) == 1 else value
            for name, value in given.items()
            if value is not None
        }


def _behavior_set(folder: Path) -> Any:
    """What `fit` found; of several seeds the best, but of several k the user's one."""
    from manyhands.behavior.estimate import Behavior  # JAX: when needed

    if not (folder / "behavior.json").exists():
        _refuse_run_of_train(folder)
    found, ks = Behavior.load(folder), []
    if (folder / "summary.json").exists():
        summary = Run(folder).read_json("summary.json")
        ks = [replica["k"] for replica in summary.get("replicas", [])]
    if len(set(ks)) > 1:
        each = ", ".join(f"{folder / f'replica-{r}'} (k {k})" for r, k in enumerate(ks))
        raise UserError(f"behavior: expected one k, got {len(set(ks))}; choose {each}")
    return found


def _refuse_run_of_train(folder: Path) -> None:
    """Say that it is one, and where in it the set is, if it has one."""
    begun = (folder / "config.json").exists()
    config = Run(folder).read_json("config.json") if begun else {}
    if command_of(config) == "manyhands train" or (folder / "policy.json").exists():
        own = folder / "behavior"
        there = (own / "behavior.json").exists()
        raise UserError(
            f"behavior: expected a run of `manyhands fit`, got {folder}, a run of "
            f"`manyhands train`" + (f"; its own is {own}" if there else "")
        )


def train_command(arguments: list[str]) -> type[Train]:
    """The command with the options of the algorithm that is named in it."""
    from manyhands.algos.registry import ALGORITHMS

    words = [word.partition("=") for word in arguments]
    algo = DEFAULT
    for place, (flag, _, value) in enumerate(words):
        if flag == "--algo":
            algo = value or "".join(arguments[place + 1 : place + 2])
    if algo not in ALGORITHMS:
        return Train  # which will say so
    if "--help" not in arguments and "-h" not in arguments:
        _refuse_options_of_others(algo, [flag for flag, _, _ in words])
    given = overrides(ALGORITHMS[algo].presets, several=True)

    options = Annotated[given, tyro.conf.OmitArgPrefixes]
    missing = field(default_factory=given)
    named = make_dataclass(
        "Train", [("options", options, missing)], bases=(Train,), frozen=True
    )
    named.__doc__ = Train.__doc__
    return named


def _refuse_options_of_others(algo: str, flags: list[str]) -> None:
    """Those that only other algorithms have; tyro would point to another help."""
    from manyhands.algos.registry import ALGORITHMS

    known = {
        name: {option.name for option in fields(next(iter(learner.presets.values())))}
        for name, learner in ALGORITHMS.items()
    }
    own = known[algo] | {o.name for o in (*fields(Train), *fields(ReadOptions))}
    others = set().union(*known.values()) - own
    for flag in flags:
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and name in others:
            raise UserError(
                f"{flag}: {algo} has no such option; see manyhands train --algo {algo} "
                "--help"
            )


def print_summary(summary: dict[str, Any]) -> None:
    rows = summary.get("replicas") or [summary["policy"]]
    table = Table(title=f"{summary['data']['name']}: policies", title_justify="left")
    several = ["k"] if len({row.get("k") for row in rows}) > 1 else []
    differing = list(rows[0].get("options", {}))
    names = ["algorithm", "seed", "return", "normalised", "relative"]
    for column in [*several, *differing, *names]:
        table.add_column(column, justify="right")
    for row in rows:
        returned = "diverged" if row.get("returns") else "not evaluated"
        cells = [row["algo"], str(row["seed"]), returned, "", ""]
        if row["return_mean"] is not None:
            cells[2:] = [
                f"{row['return_mean']:.2f} ± {row['return_std']:.2f}",
                "" if row["normalized"] is None else f"{row['normalized']:.1f}",
                "" if row["relative"] is None else f"{row['relative']:.3f}",
            ]
        own = [row[name] for name in several] + [row["options"][n] for n in differing]
        table.add_row(*map(str, own), *cells)
    out.print(table)
    timing = summary["timing"]
    out.print(
        f"{timing['updates']:,} updates, {timing['updates_per_second']:.0f} a second "
        f"on {timing['device']}"
    )


@dataclass(frozen=True)
class Evaluate:
    """Play a learnt policy in its environment: returns, normalised and relative."""

    run_directory: tyro.conf.Positional[Path]
    """What `manyhands train` has written."""
    env: str | None = None
    """The environment; by default the one that made the data."""
    episodes: int = 20
    """How many."""
    seed: int = 0
    """The same seed gives the same episodes."""
    workers: int | None = None
    """Processes; by default as many as there are cores. Results do not depend on it."""
    scale_actions: tyro.conf.FlagCreatePairsOff[bool] = False
    """Stretch actions from the data's bounds to the environment's; always where
    `manyhands train` did."""

    def run(self) -> None:
        from manyhands.algos.evaluate import evaluate  # JAX: when needed
        from manyhands.algos.policy import load_policy

        _expect_policies(self.run_directory)
        folders = sorted(
            self.run_directory.glob("replica-*"),
            key=lambda path: int(path.name.rpartition("-")[2]),
        )
        policies = [load_policy(one) for one in folders or [self.run_directory]]
        differing = varying([policy.options for policy in policies])
        table = Table(title=f"{self.run_directory}", title_justify="left")
        names = "episodes", "return", "normalised", "relative"
        table.add_column("policy", justify="right", no_wrap=True)
        for column in (*differing[0], *names):
            table.add_column(column, justify="right")
        for r, (policy, own) in enumerate(zip(policies, differing)):
            found = evaluate(
                policy,
                self.env,
                episodes=self.episodes,
                seed=self.seed,
                workers=self.workers,
                scale_actions=self.scale_actions or None,
            )
            table.add_row(
                f"{policy.algo} {folders[r].name}" if folders else policy.algo,
                *map(str, own.values()),
                str(self.episodes),
                f"{found.returns.mean():.2f} ± {found.returns.std():.2f}",
                "" if found.normalized is None else f"{found.normalized:.1f}",
                "" if found.relative is None else f"{found.relative:.3f}",
            )
        out.print(table)


def _expect_policies(folder: Path) -> None:
    """Say what a run without a policy is."""
    if (folder / "policy.json").exists():
        return
    begun = (folder / "config.json").exists()
    config = Run(folder).read_json("config.json") if begun else {}
    if "method" in config or (folder / "behavior.json").exists():
        raise UserError(
            f"{folder}: expected a run of `manyhands train`, got one of `manyhands fit`"
        )
    if "algo" in config:
        raise UserError(
            f"{folder}: this run is not finished; repeat its command to go on with it"
        )
