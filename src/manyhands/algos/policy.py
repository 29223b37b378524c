"""A learnt policy: acting, saving, loading."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from manyhands.algos.registry import algorithm
from manyhands.behavior.problem import Scaling
from manyhands.errors import UserError, named_in_errors
from manyhands.files import strict_json
from manyhands.options import restore
from manyhands.runs import Run, flatten, unflatten
from manyhands.types import Box, Pytree

# What lies around the model of every algorithm.
OUTER = {"box.low", "box.high", "scaling.center", "scaling.scale"}


@dataclass(frozen=True, eq=False)
class Policy:
    """What an algorithm learnt, in the units of the data that it learnt from."""

    algo: str
    options: Any
    model: Pytree
    box: Box
    scaling: Scaling
    env_id: str | None = None  # where the data comes from, if that is known
    summary: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        data = self.summary.get("data", {}).get("name")
        return f"Policy({self.algo!r}" + (f", learnt from {data!r})" if data else ")")

    def act(self, observation: ArrayLike, seed: int = 0) -> np.ndarray:
        """The action in one state (S,), or those in many (n, S).

        Most policies act by their mode; `seed` matters for those that do not.
        """
        given = np.asarray(observation, np.float32)
        size = len(self.scaling.center)
        if given.ndim not in (1, 2) or given.shape[-1] != size:
            raise UserError(
                f"observation: expected {size} numbers, or rows of them, got shape "
                f"{given.shape}"
            )
        rows = np.atleast_2d(given)
        keys = jax.random.split(jax.random.key(seed), len(rows))
        act = compiled(self.algo)
        actions = np.asarray(act(self.model, self.box, self.scaling(rows), keys))
        return actions if given.ndim == 2 else actions[0]

    def save(self, path: str | Path) -> None:
        """Write policy.safetensors and policy.json; `load_policy` reads them back.

        A policy that was saved there is replaced; a run is left alone.
        """
        run = Run(path)
        run.check()
        for name in ("config.json", "behavior.json"):
            if (run.path / name).exists():
                raise UserError(
                    f"{run.path}: expected a directory for a policy alone, got one "
                    f"with a run in it ({name}); choose another directory"
                )
        self.write(run)

    def write(self, run: Run) -> None:
        """The same, among the other files of a run."""
        arrays = {
            **{f"model{name}": leaf for name, leaf in flatten(self.model).items()},
            "box.low": np.asarray(self.box.low),
            "box.high": np.asarray(self.box.high),
            "scaling.center": self.scaling.center,
            "scaling.scale": self.scaling.scale,
        }
        run.write_arrays("policy.safetensors", arrays)
        run.write_json(
            "policy.json",
            {
                "algo": self.algo,
                "options": asdict(self.options),
                "env_id": self.env_id,
                "summary": strict_json(self.summary),
                # What the options do not say: sizes of the data, numbers of codes.
                "arrays": {name: _kind(array) for name, array in arrays.items()},
            },
        )


def load_policy(path: str | Path) -> Policy:
    """What `Policy.save` or a training run has written."""
    run = Run(path)
    entries = ("algo", "options", "env_id", "summary", "arrays")
    about = run.read_object("policy.json", entries)
    with named_in_errors(run.path / "policy.json"):
        if not isinstance(about["env_id"], str | None):
            raise UserError(f"env_id: expected text or null, got {about['env_id']!r}")
        learner = algorithm(about["algo"])
        default = next(iter(learner.presets.values()))
        options = restore(type(default), about["options"])
        if not isinstance(about["arrays"], dict) or not set(about["arrays"]) >= OUTER:
            raise UserError(
                f"arrays: expected an object with {', '.join(sorted(OUTER))}, got "
                f"{about['arrays']}"
            )
    arrays = run.read_arrays("policy.safetensors")
    model = {
        name.removeprefix("model"): leaf
        for name, leaf in arrays.items()
        if name.startswith("model")
    }
    with named_in_errors(run.path / "policy.safetensors"):
        _check_arrays(arrays, about["arrays"])
        policy = Policy(
            algo=about["algo"],
            options=options,
            model=unflatten(learner.skeleton(options), model, any_shape=True),
            box=Box(jnp.asarray(arrays["box.low"]), jnp.asarray(arrays["box.high"])),
            scaling=Scaling(arrays["scaling.center"], arrays["scaling.scale"]),
            env_id=about["env_id"],
            summary=about["summary"],
        )
        _check_acting(policy)
    return policy


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype}{array.shape}"


def _check_arrays(arrays: dict[str, np.ndarray], expected: dict[str, str]) -> None:
    """Compare types and shapes with those that were saved."""
    for name, kind in expected.items():
        found = _kind(arrays[name]) if name in arrays else "nothing"
        if kind != found:
            raise UserError(f"{name}: expected {kind}, got {found}")


def _check_acting(policy: Policy) -> None:
    """Do the arrays fit each other? By a program that is traced and never run."""
    box, scaling = policy.box, policy.scaling
    # Others would be stretched to fit.
    for one, other in (box, scaling):
        if one.ndim != 1 or one.shape != other.shape:
            raise UserError(
                "expected arrays that are vectors of one length in box, and in "
                f"scaling, got shapes {one.shape} and {other.shape}"
            )
    size = len(box.low)
    rows = jax.ShapeDtypeStruct((1, len(scaling.center)), jnp.float32)
    keys = jax.random.split(jax.random.key(0), 1)
    try:
        actions = jax.eval_shape(compiled(policy.algo), policy.model, box, rows, keys)
    except (TypeError, ValueError) as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(
            f"expected arrays that fit each other, as {policy.algo} has them; it "
            f"cannot act with these: {why}"
        ) from error
    if actions.shape != (1, size):
        raise UserError(
            f"expected arrays that give actions of {size} numbers, got shape "
            f"{actions.shape[1:]}"
        )


@lru_cache
def compiled(algo: str) -> Callable[..., jax.Array]:
    """How an algorithm's policies act, compiled once."""
    return jax.jit(algorithm(algo).act)
