"""Feature views: what a trajectory does, described step by step in several ways.

A view is fitted once (quantiles, random frequencies, a pooled policy) and then maps
steps to features; only their means over a trajectory are used. New views need `fit`
and `steps` and a place in `VIEWS`.

- actions: moments, lags and exceedances of the actions alone;
- scores: residuals of a pooled linear policy, times its inputs;
- dynamics: random Fourier features of three successive actions;
- residuals: random Fourier features of two successive residuals of a nonlinear policy;
- kinematics: speed and turning of motion in a plane.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from manyhands.assign import kinematics
from manyhands.assign.inputs import Inputs
from manyhands.assign.pooled import Policy, fit_policy

FREQUENCIES = 600
Parts = dict[str, np.ndarray]


class View(NamedTuple):
    """`fit` finds the arrays that `steps` needs to map steps to features [N, F]."""

    fit: Callable[[Inputs, np.random.Generator], Parts]
    steps: Callable[[Inputs, Parts], np.ndarray]
    applies: Callable[[Inputs], bool] = lambda inputs: True


# --- Random Fourier features: sqrt(2) cos(w' x / sqrt(d) + b), w ~ N(0, I) ---


def frequencies(width: int, rng: np.random.Generator) -> Parts:
    w = rng.standard_normal((width, FREQUENCIES)) / np.sqrt(max(width, 1))
    b = rng.uniform(0, 2 * np.pi, FREQUENCIES)
    return {"w": w.astype(np.float32), "b": b.astype(np.float32)}


def fourier(x: np.ndarray, parts: Parts) -> np.ndarray:
    return np.float32(np.sqrt(2)) * np.cos(x @ parts["w"] + parts["b"])


# --- Actions alone ---

LAGS = (1, 2, 3, 4, 6, 8)
LEVELS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
SPEED_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_DIMENSIONS = 12  # whose exceedances are counted
MOST_PAIRED = 8  # dimensions whose products are taken
MOST_PRODUCTS = 400  # of one-hot actions with the last ones


def _motion(inputs: Inputs) -> Parts:
    a, last = inputs.actions, inputs.lag(inputs.actions, 1)
    heading, was = (
        np.arctan2(x[:, -1 if x.shape[1] < 2 else 1], x[:, 0]) for x in (a, last)
    )
    turn = np.abs(np.angle(np.exp(1j * (heading - was)))).astype(np.float32)
    return {
        "level": a[:, :MOST_DIMENSIONS],
        "change": (a - last)[:, :MOST_DIMENSIONS],
        "speed": np.linalg.norm(a, axis=1, keepdims=True),
        "turn": turn[:, None],
        "heading": heading[:, None],
    }


def _fit_actions(inputs: Inputs, rng: np.random.Generator) -> Parts:
    motion = _motion(inputs)
    return {
        "level": np.quantile(motion["level"], LEVELS, axis=0),
        "change": np.quantile(motion["change"], LEVELS, axis=0),
        "speed": np.quantile(motion["speed"], SPEED_LEVELS, axis=0),
        "turn": np.quantile(motion["turn"], SPEED_LEVELS, axis=0),
    }


def exceedances(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """[N, d levels]: 1 where a column is above each of its levels [levels, d]."""
    above = values[:, None, :] > levels[None].astype(np.float32)
    return above.reshape(len(values), -1).astype(np.float32)


def products(x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    """Products of columns of x with those of y; of x with itself, each pair once."""
    if y is not None:
        return (x[:, :, None] * y[:, None, :]).reshape(len(x), -1)
    i, j = np.triu_indices(x.shape[1])
    return x[:, i] * x[:, j]


def _action_steps(inputs: Inputs, parts: Parts) -> np.ndarray:
    a = inputs.actions
    last, before = inputs.lag(a, 1), inputs.lag(a, 2)
    motion = _motion(inputs)
    features = [a, a**2, np.abs(a), np.abs(a - last), (a - last) ** 2]
    features += [a * inputs.lag(a, by) for by in LAGS]
    features += [products(a[:, :MOST_PAIRED])]
    features += [exceedances(motion[name], parts[name]) for name in parts]
    if inputs.discrete:
        features.append(products(a, last)[:, :MOST_PRODUCTS])
    else:
        heading, jerk = motion["heading"], a - 2 * last + before
        features += [f(n * heading) for f in (np.cos, np.sin) for n in (1, 2)]
        features += [np.abs(jerk), jerk**2, jerk * inputs.lag(jerk, 1)]
    return np.concatenate(features, axis=1).astype(np.float32, copy=False)


# --- Scores of a pooled linear policy: phi (x) r and r r' ---

MOST_SCORES, MOST_PAIRS = 1_200, 300


def _inputs_of_policy(inputs: Inputs) -> np.ndarray:
    one = np.ones((len(inputs.history), 1), np.float32)
    return np.concatenate([one, inputs.history], axis=1)


def _fit_scores(inputs: Inputs, rng: np.random.Generator) -> Parts:
    policy = fit_policy(inputs, _inputs_of_policy, ridge=1.0)
    width, actions = policy.weights.shape
    pairs = actions * (actions + 1) // 2
    return {
        **policy._asdict(),
        "scores": _drawn(width * actions, MOST_SCORES, rng),
        "pairs": _drawn(pairs, MOST_PAIRS, rng),
    }


def _drawn(size: int, most: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(size, min(size, most), replace=False))


def _score_steps(inputs: Inputs, parts: Parts) -> np.ndarray:
    phi = _inputs_of_policy(inputs)
    r = Policy.of(parts).residuals(inputs, phi)
    width, i = phi.shape[1], parts["scores"]
    scores = phi[:, i % width] * r[:, i // width]
    one, other = np.triu_indices(r.shape[1])
    one, other = one[parts["pairs"]], other[parts["pairs"]]
    return np.concatenate([scores, r[:, one] * r[:, other]], axis=1)


# --- Local dynamics ---


def _recent(inputs: Inputs) -> np.ndarray:
    a = inputs.actions
    return np.concatenate([a, inputs.lag(a, 1), inputs.lag(a, 2)], axis=1)


def _fit_dynamics(inputs: Inputs, rng: np.random.Generator) -> Parts:
    return frequencies(3 * inputs.actions.shape[1], rng)


def _dynamics_steps(inputs: Inputs, parts: Parts) -> np.ndarray:
    return fourier(_recent(inputs), parts)


# --- Residuals of a nonlinear policy ---

FURTHEST_RESIDUAL = 5.0


def _rich_inputs(inputs: Inputs, parts: Parts) -> np.ndarray:
    random = fourier(inputs.history, {"w": parts["policy_w"], "b": parts["policy_b"]})
    return np.concatenate([_inputs_of_policy(inputs), random], axis=1)


def _fit_residuals(inputs: Inputs, rng: np.random.Generator) -> Parts:
    random = frequencies(inputs.history.shape[1], rng)
    parts = {"policy_w": random["w"], "policy_b": random["b"]}
    policy = fit_policy(inputs, lambda part: _rich_inputs(part, parts), ridge=10.0)
    again = frequencies(2 * inputs.actions.shape[1], rng)
    return {**parts, **policy._asdict(), **again}


def _residual_steps(inputs: Inputs, parts: Parts) -> np.ndarray:
    r = Policy.of(parts).residuals(inputs, _rich_inputs(inputs, parts))
    r = np.clip(r, -FURTHEST_RESIDUAL, FURTHEST_RESIDUAL)
    return fourier(np.concatenate([r, inputs.lag(r, 1)], axis=1), parts)


VIEWS: dict[str, View] = {
    "actions": View(_fit_actions, _action_steps),
    "scores": View(_fit_scores, _score_steps),
    "dynamics": View(_fit_dynamics, _dynamics_steps),
    "residuals": View(_fit_residuals, _residual_steps),
    "kinematics": View(kinematics.fit, kinematics.steps, kinematics.applies),
}
