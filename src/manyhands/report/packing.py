"""Arrays for the page, as base64: a third of what they take as text."""

import base64
from typing import Any

import numpy as np


def floats(values: Any) -> str:
    """Little-endian float32."""
    return _base64(np.asarray(values, "<f4"))


def bytes_between(values: np.ndarray, low: Any, high: Any) -> str:
    """One byte each, 0 at `low` and 255 at `high`: as fine as a picture needs."""
    width = np.maximum(np.asarray(high, np.float64) - low, 1e-12)
    share = np.clip((values - low) / width, 0, 1)
    return _base64(np.rint(255 * share).astype(np.uint8))


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
