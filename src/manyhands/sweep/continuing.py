"""What a directory holds of a benchmark already: whether it may go on there, and what
is left to run. Nothing is written here.

Data sets, algorithms, K and seeds may become more or fewer; what decides a result that
is there, or begun, may not change.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from manyhands import datasets
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError
from manyhands.files import file_inside, strict_json
from manyhands.sweep.configs import config_of
from manyhands.sweep.making import place_of
from manyhands.sweep.plan import Fleet, Key, fleets, missing, spelled_out
from manyhands.sweep.preset import Entry, Preset
from manyhands.sweep.results import Results
from manyhands.wording import counted

PRESET = "preset.json"  # the last one that ran here
FLEET = "fleet.json"  # in a run's folder: what it was begun for
Row = dict[str, Any]


@dataclass(frozen=True)
class Held:
    chosen: list[Fleet]
    finished: list[Row]  # by a benchmark that was killed before it wrote them down
    there: set[Key]
    todo: list[Fleet]  # those chosen, or what is missing of them


def look(folder: Path, preset: Preset, only: tuple[str, ...] = ()) -> Held:
    """Raises UserError where the preset cannot go on in this directory."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: expected a directory to write to, got a file")
    chosen = fleets(preset, only)
    _check_preset(folder, preset)
    written = Results(folder).rows()
    finished = _finished(folder, chosen)
    _check_options(folder, chosen, written + finished)
    _check_data(folder, chosen, written + finished)
    there = set(map(Key.of, written + finished))
    todo = [part for fleet in chosen for part in missing(fleet, there)]
    return Held(chosen, finished, there, todo)


def placed(folder: Path, todo: list[Fleet]) -> list[Fleet]:
    """Under longer names where a folder is another fleet's, or was begun for other K or
    seeds: a run is continued only as it was."""
    found, names = [], set()
    for fleet in todo:
        if fleet.name in names or not _free(folder / "runs" / fleet.name, fleet):
            fleet = replace(fleet, part=spelled_out(fleet))
        names.add(fleet.name)
        found.append(fleet)
    return found


def _free(place: Path, fleet: Fleet) -> bool:
    path = place / FLEET
    file_inside(place, path)
    return not path.exists() or Fleet.from_json(path.read_text()).keys == fleet.keys


def _finished(folder: Path, chosen: list[Fleet]) -> list[Row]:
    """However runs had been put together."""
    wanted = {key for fleet in chosen for key in fleet.keys}
    rows = []
    for path in sorted((folder / "runs").rglob("rows.json")):
        rows += json.loads(file_inside(folder, path).read_text())
    return [row for row in rows if Key.of(row) in wanted]


# What decides a result


class Change(NamedTuple):
    what: str
    was: Any
    now: Any


def _check_preset(folder: Path, preset: Preset) -> None:
    path = folder / PRESET
    if path.exists():
        for change in _changes(read_preset(file_inside(folder, path)), preset):
            raise _another(folder, change)


def read_preset(path: Path) -> Preset:
    try:
        content = json.loads(path.read_text())
        entries = [Entry(**e | {"k": tuple(e["k"])}) for e in content["entries"]]
        lists = {"data": tuple(content["data"]), "seeds": tuple(content["seeds"])}
        return Preset(**content | lists | {"entries": tuple(entries)})
    except (ValueError, TypeError, KeyError) as error:
        words = " ".join(str(error).split())
        raise UserError(
            f"{path}: expected the preset that ran here, as JSON, got something else "
            f"({type(error).__name__}: {words}); choose another directory"
        ) from None


def _changes(old: Preset, new: Preset) -> Iterator[Change]:
    before = {entry.label: entry for entry in old.entries}
    both = [(before[e.label], e) for e in new.entries if e.label in before]
    data = [name for name in new.data if name in old.data]
    for was, now in both:
        yield from _of_entries(was, now, data)
    # One size for all that is in DIR/data, whoever learns from it.
    names = ("transitions", "episodes", "evaluations") if both else ("transitions",)
    for name in names:
        yield from _change(name, getattr(old, name), getattr(new, name))
    for name in data if both else ():
        envs = [(preset.env or {}).get(name) for preset in (old, new)]
        yield from _change(f"env of {name}", *envs)


def _of_entries(was: Entry, now: Entry, data: list[str]) -> Iterator[Change]:
    label = was.label
    yield from _change(f"{label}: algorithm", was.algo, now.algo)
    yield from _change(f"{label}: preset", was.preset, now.preset)
    yield from _of_options(label, was.options, now.options)
    for name in data:
        options = was.options_on(name), now.options_on(name)
        yield from _of_options(f"{label} on {name}", *options)


def _of_options(whose: str, was: Row, now: Row) -> Iterator[Change]:
    for name in sorted(was | now):
        values = (some.get(name, "not given") for some in (was, now))
        yield from _change(f"{whose}: {name}", *values)


def _change(what: str, was: Any, now: Any) -> Iterator[Change]:
    if was != json.loads(json.dumps(now)):  # lists and tuples are the same
        yield Change(what, was, now)


def _another(folder: Path, change: Change) -> UserError:
    return UserError(
        f"{folder}: holds another benchmark: {change.what} is {change.was}, not "
        f"{change.now}; choose another directory"
    )


def _check_options(folder: Path, chosen: list[Fleet], rows: list[Row]) -> None:
    """Of results too: preset.json forgets an entry that was left out for a while."""
    asked = {(data, fleet.label): fleet for fleet in chosen for data in fleet.data}
    for row in rows:
        fleet = asked.get((row["data"], row["label"]))
        if fleet is None:
            continue
        whose = f"{fleet.label} on {row['data']}"
        changes = [
            *_change(f"{whose}: algorithm", row["algo"], fleet.algo),
            *_change(f"{whose}: preset", row["preset"], fleet.preset),
            *_of_options(whose, row["options"], fleet.options),
            *_change(f"{whose}: env", row["env"], fleet.env),
            *_of_episodes(whose, row, fleet),
            *_of_versions(whose, row, fleet),
        ]
        for change in changes:
            raise _another(folder, change)


def _of_episodes(whose: str, row: Row, fleet: Fleet) -> Iterator[Change]:
    for name in ("episodes", "evaluations"):
        yield from _change(f"{whose}: {name}", row[name], getattr(fleet, name))


def _of_versions(whose: str, row: Row, fleet: Fleet) -> Iterator[Change]:
    """Defaults, which another version of this program may have changed. Options that
    only one of the versions has are not compared."""
    now = strict_json(config_of(fleet, row["transitions"]))
    yield from _shared(f"{whose}: ", row["config"], now)


def _shared(place: str, was: Row, now: Row) -> Iterator[Change]:
    for name in was.keys() & now.keys():
        if isinstance(was[name], dict) and isinstance(now[name], dict):
            yield from _shared(f"{place}{name}.", was[name], now[name])
        else:
            yield from _change(f"{place}{name}", was[name], now[name])


# The data


def _check_data(folder: Path, chosen: list[Fleet], rows: list[Row]) -> None:
    """Results of two files must not stand in one line of a table."""
    names = {data for fleet in chosen for data in fleet.data}
    made_from: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row["data"] in names:
            made_from[row["data"]][row["fingerprint"]] = row
    for name, found in made_from.items():
        now = _readable(folder, name)
        if now is None:
            continue
        for row in found.values():
            if row["fingerprint"] != now.fingerprint:
                then = counted(row["transitions"], "transition")
                raise UserError(
                    f"{name}: has changed since its results were made ({then} then, "
                    f"{now.transitions:,} now); choose another directory"
                )


def _readable(folder: Path, name: str) -> Trajectories | None:
    """Finished runs need their data no more. Whoever does complains if it is gone."""
    try:
        return datasets.load(place_of(folder, name))
    except UserError:
        return None
