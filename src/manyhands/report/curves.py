"""Learning curves: metrics.jsonl, one line per step and replica, as columns."""

from typing import Any

import numpy as np

MOST = 200  # points of a curve


def curves(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """By name of the metric: the steps, and the values of every replica."""
    names = sorted({name for row in metrics for name in row})
    names = [n for n in names if n not in ("step", "replica", "seed")]
    replicas = sorted({row["replica"] for row in metrics})
    found = {}
    for name in names:
        values = {
            (row["replica"], row["step"]): row[name]
            for row in metrics
            if isinstance(row.get(name), int | float)
        }
        steps = sorted({step for _, step in values})
        if len(steps) < 2:
            continue
        kept = np.unique(np.linspace(0, len(steps) - 1, MOST).round().astype(int))
        steps = [steps[i] for i in kept]
        found[name] = {
            "steps": steps,
            "values": [
                [_short(values.get((r, step))) for step in steps] for r in replicas
            ],
        }
    return found


def groups(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Replicas that differ by nothing but their seed, and what tells groups apart."""
    if "algo" not in config:
        pairs = list(zip(config["k"], range(len(config["k"]))))
        ks = list(dict.fromkeys(map(str, config["k"])))
        return [
            {
                "label": f"k {k}",
                "replicas": [r for value, r in pairs if str(value) == k],
            }
            for k in ks
        ]
    options, seeds = config["options"], len(config["seeds"])
    differ = [
        name for name in options[0] if len({str(one[name]) for one in options}) > 1
    ]
    return [
        {
            "label": ", ".join(f"{name} {one[name]}" for name in differ)
            or config["algo"],
            "replicas": list(range(g * seeds, (g + 1) * seeds)),
        }
        for g, one in enumerate(options)
    ]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
