"""Kinematics of motion in a plane: speed, turning, and their rhythm.

For continuous actions that are movements (of a pen, a hand, a mouse): how fast, how
sharply turning, how speed and turning go together, and how often speed has extremes.
"""

import numpy as np

from manyhands.assign.inputs import Inputs

WINDOW = 4  # steps whose speeds and turns are multiplied with each other
SPEED_LEVELS = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)
TURN_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)
CHANGE_LEVELS = (0.02, 0.1, 0.25, 0.75, 0.9, 0.98)


def applies(inputs: Inputs) -> bool:
    return not inputs.discrete and inputs.actions.shape[1] == 2


def _motion(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Log speed [N] and signed turning angle [N]."""
    a = inputs.actions
    last = inputs.lag(a, 1)
    along = (a * last).sum(1)
    across = last[:, 0] * a[:, 1] - last[:, 1] * a[:, 0]
    return np.log(np.linalg.norm(a, axis=1) + 0.05), np.arctan2(across, along)


def fit(inputs: Inputs, rng: np.random.Generator) -> dict[str, np.ndarray]:
    speed, turn = _motion(inputs)
    change = speed - inputs.lag(speed, 1)
    return {
        "scale": np.array([speed.mean(), speed.std() + 1e-6, turn.std() + 1e-6]),
        "speed": np.quantile(speed, SPEED_LEVELS),
        "turn": np.quantile(np.abs(turn), TURN_LEVELS),
        "change": np.quantile(change, CHANGE_LEVELS),
    }


def steps(inputs: Inputs, parts: dict[str, np.ndarray]) -> np.ndarray:
    log_speed, turn = _motion(inputs)
    mean, deviation, spread = parts["scale"].astype(np.float32)
    speed, angle = (log_speed - mean) / deviation, turn / spread
    recent = np.stack(
        [inputs.lag(x, by) for x in (speed, angle) for by in range(WINDOW)], axis=1
    )
    i, j = np.triu_indices(2 * WINDOW)
    sharp = np.abs(angle)
    columns = [recent, recent[:, i] * recent[:, j], recent[:, [0, 4]] ** 3]
    columns += [np.stack([sharp, sharp * speed, sharp * speed**2], axis=1)]
    columns += [_rhythm(inputs, speed)]
    change = log_speed - inputs.lag(log_speed, 1)
    for name, values in (
        ("speed", log_speed),
        ("turn", np.abs(turn)),
        ("change", change),
    ):
        columns.append(values[:, None] > parts[name].astype(np.float32))
    return np.concatenate(columns, axis=1).astype(np.float32)


def _rhythm(inputs: Inputs, speed: np.ndarray) -> np.ndarray:
    """Extremes of speed, speed at them, and steps since the last minimum."""
    last, before = inputs.lag(speed, 1), inputs.lag(speed, 2)
    inner = inputs.step >= 2
    low = inner & (last <= speed) & (last < before)
    high = inner & (last >= speed) & (last > before)
    row = np.arange(len(speed))
    start = row - inputs.step
    latest = np.maximum(np.maximum.accumulate(np.where(low, row, 0)), start)
    since = row - latest
    ages = [since == n for n in range(1, 6)] + [since > n for n in (5, 8, 12)]
    return np.stack([low, high, low * last, high * last, *ages], axis=1)
