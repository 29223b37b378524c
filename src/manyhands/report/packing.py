"""Numbers for the page: arrays as base64, everything else as strict JSON."""

import base64
import math
from typing import Any

import numpy as np


def floats(values: Any) -> str:
    """Little-endian float32, a third of the size of the same numbers as text."""
    return _base64(np.asarray(values, "<f4"))


def bytes_between(values: np.ndarray, low: Any, high: Any) -> str:
    """One byte each, 0 at `low` and 255 at `high`: as fine as a picture needs."""
    width = np.maximum(np.asarray(high, np.float64) - low, 1e-12)
    share = np.clip((values - low) / width, 0, 1)
    return _base64(np.rint(255 * share).astype(np.uint8))


def strict(value: Any) -> Any:
    """What JSON can hold: no NaN, no infinity, no NumPy."""
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return strict(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
