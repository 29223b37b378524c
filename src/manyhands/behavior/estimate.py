"""A fitted behavior set: what can be asked of it, whatever method made it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from manyhands.behavior import vq, vq_learning
from manyhands.behavior.methods import METHODS, Method
from manyhands.behavior.options import Options
from manyhands.behavior.problem import Scaling
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError, named_in_errors
from manyhands.files import strict_json
from manyhands.options import restore
from manyhands.runs import Run, flatten, unflatten
from manyhands.types import Box, Pytree

BLOCK = 8192  # rows evaluated together
# On a CPU: what comes out for every code of a row is to stay in its caches.
CPU_BLOCK = 256
# How many deviations below its code's own trajectories a likelihood must lie for a
# trajectory to count as one that no behavior explains.
FAR = 6.0
ENTRIES = ("method", "options", "usual_length", "fingerprint", "summary")


@dataclass(frozen=True, eq=False)
class Behavior:
    """K behaviors and who made each training trajectory.

    Rows of `data` handed to its methods are in the units of the data it was fitted to.
    """

    method: str
    options: Options
    model: Pytree
    values: vq.Values | None  # Q-functions of the behaviors, where they were learnt
    box: Box
    scaling: Scaling
    codes: np.ndarray  # [M] the code of each training trajectory
    probabilities: np.ndarray  # [M, K] responsibilities of the training trajectories
    prior: np.ndarray  # [K] share of trajectories
    usual: np.ndarray  # [K, 2] mean and deviation of trajectories' log-prob a step
    usual_length: float  # of training trajectories
    fingerprint: str  # of the data it was fitted to
    summary: dict[str, Any] = field(default_factory=dict)
    run: str | None = None  # the folder that it was read from or written to

    @property
    def k(self) -> int:
        return len(self.prior)

    def code_log_probs(self, data: Trajectories) -> np.ndarray:
        """[N, K] log b_k(a|s) of every transition under every behavior."""
        self._check(data)
        function = compiled(METHODS[self.method].log_probs)
        observations = self.scaling(data.observations)
        return evaluate(function, self.model, self.box, observations, data.actions)

    def log_prob(
        self, data: Trajectories, codes: ArrayLike | None = None
    ) -> np.ndarray:
        """[N] log b_z(a|s): what importance weights divide by.

        Codes are those found in fitting where `data` is what was fitted to, given ones
        (one per trajectory), or the most probable.
        """
        by_code = self.code_log_probs(data)
        if codes is not None:
            chosen = self._known_codes("codes", codes, len(data))
        elif data.fingerprint == self.fingerprint:
            chosen = self.codes
        else:
            chosen = self._responsibilities(data, by_code, "learned").argmax(axis=1)
        return by_code[np.arange(data.transitions), chosen[data.trajectory]]

    def responsibilities(
        self, data: Trajectories, prior: Literal["learned", "uniform"] = "learned"
    ) -> np.ndarray:
        """[M', codes] how probably each behavior made each trajectory, seen or unseen.

        There is a column for every code in use, which may be fewer than the k that
        `fit` was asked for.
        """
        return self._responsibilities(data, self.code_log_probs(data), prior)

    def unexplained(
        self, data: Trajectories, by_code: np.ndarray | None = None
    ) -> np.ndarray:
        """[M'] true where no behavior explains a trajectory.

        That is: under its best code it is far less probable, per step, than that code's
        own training trajectories are; shorter ones are allowed to scatter more.

        Args:
            by_code: what `code_log_probs` gave for this data, if that is known.
        """
        if by_code is None:
            by_code = self.code_log_probs(data)
        sums = _by_trajectory(data, by_code)
        mean = sums / data.lengths[:, None]
        best = np.where(self.prior > 0, sums, -np.inf).argmax(axis=1)
        usual, deviation = self.usual[best].T
        scatter = np.sqrt(np.maximum(1, self.usual_length / data.lengths))
        return mean[np.arange(len(data)), best] < usual - FAR * deviation * scatter

    def second_half(self, data: Trajectories) -> np.ndarray:
        """[M'] log-probability a step of each trajectory's second half, under the code
        that its first half suggests: how well unseen trajectories are predicted.

        NaN for trajectories of one step.
        """
        by_code = self.code_log_probs(data)
        position = np.arange(data.transitions) - np.repeat(
            data.offsets[:-1], data.lengths
        )
        early = (position < np.repeat(data.lengths // 2, data.lengths))[:, None]
        first = _by_trajectory(data, np.where(early, by_code, 0)) + _log(self.prior)
        second = _by_trajectory(data, np.where(early, 0, by_code))
        codes = first.argmax(axis=1)
        steps = data.lengths - data.lengths // 2
        score = second[np.arange(len(data)), codes] / steps
        return np.where(data.lengths > 1, score, np.nan)

    def sample(
        self, observations: ArrayLike, code: ArrayLike | int, seed: int = 0
    ) -> np.ndarray:
        """Actions (n, A) of a behavior, or of one per row, in states (n, S)."""
        states = np.atleast_2d(np.asarray(observations, np.float32))
        size = len(self.scaling.center)
        if states.shape[1:] != (size,):
            raise UserError(
                f"observations: expected {size} numbers a row, as in fitting, got "
                f"shape {states.shape}"
            )
        codes = self._known_codes("code", code, len(states))
        sample = METHODS[self.method].sample
        rows, key = jnp.asarray(self.scaling(states)), jax.random.key(seed)
        return np.asarray(sample(self.model, self.box, rows, jnp.asarray(codes), key))

    def save(self, path: str | Path) -> None:
        """Write model.safetensors and behavior.json; `load` reads them back."""
        run = Run(path)
        run.write_arrays(
            "model.safetensors",
            {
                **{
                    f"model{name}": array for name, array in flatten(self.model).items()
                },
                **{
                    f"values{name}": array
                    for name, array in flatten(self.values).items()
                },
                "box.low": np.asarray(self.box.low),
                "box.high": np.asarray(self.box.high),
                "scaling.center": self.scaling.center,
                "scaling.scale": self.scaling.scale,
                "codes": self.codes,
                "probabilities": self.probabilities,
                "prior": self.prior,
                "usual": self.usual,
            },
        )
        run.write_json(
            "behavior.json",
            {
                "method": self.method,
                "options": asdict(self.options),
                "usual_length": self.usual_length,
                "fingerprint": self.fingerprint,
                "summary": strict_json(self.summary),
            },
        )

    @staticmethod
    def load(path: str | Path) -> "Behavior":
        run = Run(path)
        about = run.read_object("behavior.json", ENTRIES)
        with named_in_errors(run.path / "behavior.json"):
            options, method = restore(Options, about["options"]), _named(about)
        arrays = run.read_arrays("model.safetensors")
        sizes = len(arrays["scaling.center"]), len(arrays["box.low"])
        shape = len(arrays["prior"]), len(arrays["codes"])

        def like(key):
            state = method.init(key, *sizes, *shape, options)
            values = vq_learning.values(state) if about["method"] == "vq" else None
            return method.model(state), values

        model, values = jax.eval_shape(like, jax.random.key(0))

        def filled(tree: Pytree, prefix: str) -> Pytree:
            named = {
                name.removeprefix(prefix): array
                for name, array in arrays.items()
                if name.startswith(prefix)
            }
            return unflatten(tree, named)

        return Behavior(
            method=about["method"],
            options=options,
            model=filled(model, "model"),
            values=filled(values, "values"),
            box=Box(jnp.asarray(arrays["box.low"]), jnp.asarray(arrays["box.high"])),
            scaling=Scaling(arrays["scaling.center"], arrays["scaling.scale"]),
            codes=arrays["codes"],
            probabilities=arrays["probabilities"],
            prior=arrays["prior"],
            usual=arrays["usual"],
            usual_length=about["usual_length"],
            fingerprint=about["fingerprint"],
            summary=about["summary"],
            run=str(run.path.resolve()),
        )

    def _responsibilities(
        self, data: Trajectories, by_code: np.ndarray, prior: str
    ) -> np.ndarray:
        if prior not in ("learned", "uniform"):
            raise UserError(f"prior: expected learned or uniform, got {prior}")
        # Either way a code that no trajectory has is no behavior.
        shares = self.prior if prior == "learned" else self.prior > 0
        return softmax(_by_trajectory(data, by_code) + _log(shares))

    def _known_codes(self, name: str, codes: Any, many: int) -> np.ndarray:
        """[many] the codes asked for; an index that is off would find another one."""
        found = np.asarray(codes)
        if found.shape not in ((), (many,)):
            raise UserError(
                f"{name}: expected one, or {many}, got an array of shape {found.shape}"
            )
        wrong = found[(found < 0) | (found >= self.k)]
        if len(wrong):
            raise UserError(
                f"{name}: expected numbers from 0 to {self.k - 1}, got {wrong[0]}"
            )
        return np.broadcast_to(found, many)

    def _check(self, data: Trajectories) -> None:
        expected = len(self.scaling.center), len(self.box.low)
        found = data.observation_size, data.action_size
        if expected != found:
            raise UserError(
                f"{data.name}: expected observations and actions of sizes {expected}, "
                f"as in fitting, got {found}"
            )

    def __repr__(self) -> str:
        return (
            f"Behavior({self.method!r}, {self.k} codes, {len(self.codes)} trajectories)"
        )


def _named(about: dict[str, Any]) -> Method:
    if about["method"] not in METHODS:
        expected = ", ".join(METHODS)
        raise UserError(f"method: expected one of {expected}, got {about['method']}")
    return METHODS[about["method"]]


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _log(shares: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):  # no trajectory, no chance
        return np.log(shares)


def _by_trajectory(data: Trajectories, by_code: np.ndarray) -> np.ndarray:
    return np.add.reduceat(by_code.astype(np.float64), data.offsets[:-1], axis=0)


_COMPILED: dict[Callable, Callable] = {}


def compiled(function: Callable) -> Callable:
    """One compiled function per method, whoever asks."""
    return _COMPILED.setdefault(function, jax.jit(function))


def evaluate(
    function: Callable, model: Pytree, box: Box, *columns: np.ndarray
) -> np.ndarray:
    """Apply to all rows, block by block, each padded to one shape (compiled once).

    That of few rows is a power of two: it serves other tables of about the size.
    """
    rows, results = len(columns[0]), []
    most = min(BLOCK, CPU_BLOCK) if jax.default_backend() == "cpu" else BLOCK
    size = min(most, 1 << (rows - 1).bit_length())
    for begin in range(0, rows, size):
        block = [column[begin : begin + size] for column in columns]
        short = size - len(block[0])
        padded = [np.pad(b, [(0, short)] + [(0, 0)] * (b.ndim - 1)) for b in block]
        results.append(np.asarray(function(model, box, *padded))[: len(block[0])])
    return np.concatenate(results)
