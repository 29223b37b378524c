"""What a finished run left behind, and the data set it was made from."""

from pathlib import Path
from typing import Any, NamedTuple

from manyhands.data.trajectories import Trajectories
from manyhands.datasets import load
from manyhands.errors import UserError
from manyhands.files import check_inside
from manyhands.runs import Run

# Models that may lie alone: what they are, and which command makes a run of them.
SAVED = {"policy.json": ("policy", "train"), "behavior.json": ("behavior set", "fit")}
# Formats of the files that a report opens by itself. What is made or fetched is opened
# only when the user names it.
FILES = ("", "npz", "d4rl", "robomimic", "lerobot", "minari")


class SavedRun(NamedTuple):
    """One run of `manyhands fit` or `manyhands train`, ready to be looked at."""

    run: Run
    config: dict[str, Any]
    summary: dict[str, Any]
    fit: Run | None  # where the behaviors are: the run itself, or what it began from
    fit_top: Run | None  # the whole fit, of which `fit` may be one replica
    data: Trajectories | None
    no_data: str  # a sentence where there is no data, else empty

    @property
    def name(self) -> str:
        return self.run.path.resolve().name

    @property
    def trained(self) -> bool:
        return "policy" in self.summary


def open_run(path: str | Path, data: Trajectories | None = None) -> SavedRun:
    """Read what is there.

    Args:
        data: what the run was made from; looked for where the run says, if None.
    """
    run = Run(path)
    config = _config(run)
    if not (run.path / "summary.json").exists():
        raise UserError(
            f"{run.path}: this run is not finished; repeat its command to go on with it"
        )
    summary = run.read_json("summary.json")
    fit, top = _behaviors(run, config, summary)
    data, no_data = _data(run, config, data)
    return SavedRun(run, config, summary, fit, top, data, no_data)


def same_data(run: str | Path, data: Trajectories) -> bool:
    """Was the run made from this data set?"""
    return _config(Run(run))["data"]["fingerprint"] == data.fingerprint


def _config(run: Run) -> dict[str, Any]:
    if not (run.path / "config.json").exists():
        _refuse_saved(run.path)
    config = run.read_json("config.json")
    if isinstance(config["data"], list):
        raise UserError(
            f"{run.path}: expected a run on one data set, got one on "
            f"{len(config['data'])}; what came out is in its folders replica-N"
        )
    return config


def _refuse_saved(path: Path) -> None:
    """Say what a directory is that holds a model without its run, or many runs."""
    if (path / "results.jsonl").exists():
        raise UserError(
            f"{path}: expected a run, got a benchmark; its page is written by: "
            f"manyhands report {path}"
        )
    for name, (what, command) in SAVED.items():
        if (path / name).exists():
            give = f"the directory that `manyhands {command} --out` has written"
            if (path.parent / "config.json").exists():  # a folder replica-N
                give = f"{path.parent}"
            raise UserError(
                f"{path}: expected a run, got a saved {what}, which is none; give "
                f"{give}"
            )


def _behaviors(
    run: Run, config: dict[str, Any], summary: dict[str, Any]
) -> tuple[Run | None, Run | None]:
    if "policy" not in summary:
        return run, run
    places = [run.path / "behavior"]
    began = config.get("behavior_run")
    if isinstance(began, str) and _made_from_the_same(Path(began), config):
        places.append(Path(began))
    for place in places:
        if (place / "behavior.json").exists():
            if place == places[0]:
                check_inside(run.path, place)
            # The policy at the top is the first replica's, and so must be this.
            first = place / "replica-0"
            own = place == places[0] and (first / "behavior.json").exists()
            return Run(first if own else place), Run(place)
    return None, None


def _made_from_the_same(place: Path, config: dict[str, Any]) -> bool:
    """A run from others may name any folder of this machine."""
    whole = place.parent if place.name.startswith("replica-") else place
    if not place.is_absolute() or not (whole / "config.json").is_file():
        return False
    theirs = Run(whole).read_json("config.json")
    data = theirs.get("data") if isinstance(theirs, dict) else None
    return isinstance(data, dict) and data.get("fingerprint") == _fingerprint(config)


def _fingerprint(config: dict[str, Any]) -> str:
    return config["data"]["fingerprint"]


def _data(
    run: Run, config: dict[str, Any], given: Trajectories | None
) -> tuple[Trajectories | None, str]:
    expected = _fingerprint(config)
    if given is not None:
        return (given, "") if given.fingerprint == expected else (None, OTHER_DATA)
    origin = config.get("loaded_from")
    if not isinstance(origin, dict) or not _may_be_opened(origin.get("data")):
        return None, "The data set was not given."
    options = origin.get("options")
    try:
        found = load(origin["data"], **(options if isinstance(options, dict) else {}))
    except (UserError, OSError):
        return None, "The data set is no longer where this run read it."
    return (found, "") if found.fingerprint == expected else (None, CHANGED)


def _may_be_opened(where: Any) -> bool:
    """By a report of a run that may come from others: what is made here in no time, and
    files at the run's absolute path; that they have its fingerprint is checked next."""
    if not isinstance(where, str):
        return False
    prefix, _, place = where.rpartition(":")
    return prefix == "fork" or (prefix in FILES and Path(place).is_absolute())


OTHER_DATA = "The data set that was given is not the one this run was made from."
CHANGED = "The data set has changed since this run read it."
