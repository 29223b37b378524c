"""Lines of results.jsonl, made up."""

from typing import Any


def row(
    data: str, label: str, k: str | None, seed: int, value: float
) -> dict[str, Any]:
    return {
        "data": data,
        "label": label,
        "k": k,
        "seed": seed,
        "return_mean": 100 * value,
        "normalized": 10 * value,
        "relative": value,
        "behaviors": 10.0,
        "trajectories": 7,
        "transitions": 7000,
        "data_score": None,
        "source_scores": None,
        "fingerprint": f"of {data}",
        "returns": [],
        "return_std": 1.0,
        "episodes": 20,
        "curve": [],
        "codes_used": None,
        "ari": None,
        "timing": {"updates": 9, "updates_per_second": 3.0, "device": "cpu"},
        "environment": {"cores": 2},
        "fleet_seconds": None,
        "fleet_resumed": False,
    }


def of_another_number(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of agents that made the data."""
    return [r | {"data": "zoo:hopper-heterogeneous-4"} for r in rows[:3]]
