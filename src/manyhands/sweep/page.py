"""A benchmark as one HTML page, from its results alone."""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from manyhands.files import atomic_file, strict_json
from manyhands.report.one_file import filled
from manyhands.sweep.figures import HETEROGENEOUS
from manyhands.sweep.making import made_here
from manyhands.sweep.scores import Scores, diverged, evaluated, natural, together

SCRIPTS = ("scores.js", "one_data_set.js", "benchmark.js")
DIGITS = 5  # of a number on the page


def write(rows: list[dict[str, Any]], name: str, out: Path) -> Path:
    text = filled(f"{name}: results", strict_json(payload(rows, name)), SCRIPTS)
    with atomic_file(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return out


def payload(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    scores = Scores(rows)
    data = sorted({row["data"] for row in rows}, key=natural)
    labels = sorted({row["label"] for row in rows}, key=natural)
    return {
        "name": name,
        "labels": labels,
        "ks": {label: scores.ks(label) for label in labels},
        "data": [
            _data(one, rows, scores.units.get(one)) | {"name": shown}
            for one, shown in zip(data, short_names(data))
        ],
        "runs": [_run(row, data, labels, scores) for row in sorted(rows, key=_place)],
        "together": [found._asdict() for found in together(scores)],
        "fleets": _fleets(rows, dict(zip(data, short_names(data)))),
    }


def short_names(data: list[str]) -> list[str]:
    """Without what makes them, where this tells nothing apart."""
    short = [name.partition(":")[2] if made_here(name) else name for name in data]
    return short if len(set(short)) == len(data) else data


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    names = natural(row["data"]), natural(row["label"]), natural(str(row["k"]))
    return *names, row["seed"]


def _data(name: str, rows: list[dict[str, Any]], units: str | None) -> dict[str, Any]:
    # Null where a row does not know it: the other rows of the data set may.
    mine = [row for row in rows if row["data"] == name]
    about = {k: v for row in mine for k, v in row.items() if v is not None}
    match = HETEROGENEOUS.fullmatch(name)
    return {
        "units": units,
        "trajectories": about["trajectories"],
        "transitions": about["transitions"],
        "score": about.get("data_score"),
        "behaviors": about.get("behaviors"),
        "sources": about.get("source_scores") or {},
        "histogram": about.get("histogram"),
        "task": match and match[1],
        "agents": match and int(match[2]),
    }


def _run(
    row: dict[str, Any], data: list[str], labels: list[str], scores: Scores
) -> dict[str, Any]:
    end, units = row["timing"]["updates"], scores.units.get(row["data"])
    score = scores.score(row) if evaluated(row) else None
    along = [
        (step, _in_units(row, units, plain, relative))
        for step, plain, relative in row["curve"]
    ]
    curve = [
        [step, float(f"{value:.{DIGITS}g}")]
        for step, value in along
        if value is not None and math.isfinite(value)
    ]
    if score is not None and math.isfinite(score):
        curve.append([end, score])
    return {
        "data": data.index(row["data"]),
        "label": labels.index(row["label"]),
        "k": row["k"],
        "seed": row["seed"],
        "score": score,
        "diverged": diverged(row),
        "return": row["return_mean"],
        "return_std": row["return_std"],
        "episodes": row["episodes"],
        "codes_used": row["codes_used"],
        "ari": row["ari"],
        "updates": end,
        "per_second": row["timing"]["updates_per_second"],
        "curve": curve,
        "maps": row.get("maps"),
    }


def _in_units(
    row: dict[str, Any], units: str | None, plain: float | None, relative: float | None
) -> float | None:
    """A return along the way, in the units of the last one."""
    if units == "return_mean":
        return plain
    if units is None or relative is None:
        return None
    return relative if units == "relative" else relative * row["behaviors"]


def _fleets(rows: list[dict[str, Any]], names: dict[str, str]) -> list[dict[str, Any]]:
    """What trained in one process, the longest first: its runs share its seconds."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        key = row["label"], row["fleet_seconds"], row["timing"]["device"]
        found[key].append(row)
    made = [
        {
            "label": label,
            "data": sorted({names[row["data"]] for row in mine}, key=natural),
            "runs": len(mine),
            "seconds": seconds,
            "device": device,
            "cores": mine[0]["environment"]["cores"],
            "resumed": any(row["fleet_resumed"] for row in mine),
        }
        for (label, seconds, device), mine in found.items()
    ]
    return sorted(made, key=lambda one: -(one["seconds"] or 0.0))
