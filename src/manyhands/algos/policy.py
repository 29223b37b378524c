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

from manyhands import hyper
from manyhands.algos.registry import algorithm
from manyhands.behavior.problem import Scaling
from manyhands.errors import UserError, named_in_errors
from manyhands.runs import Run, flatten, unflatten
from manyhands.types import Box, Pytree


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
        """Write policy.safetensors and policy.json; `load_policy` reads them back."""
        run = Run(path)
        run.write_arrays(
            "policy.safetensors",
            {
                **{f"model{name}": leaf for name, leaf in flatten(self.model).items()},
                "box.low": np.asarray(self.box.low),
                "box.high": np.asarray(self.box.high),
                "scaling.center": self.scaling.center,
                "scaling.scale": self.scaling.scale,
            },
        )
        run.write_json(
            "policy.json",
            {
                "algo": self.algo,
                "options": asdict(self.options),
                "env_id": self.env_id,
                "summary": self.summary,
            },
        )


def load_policy(path: str | Path) -> Policy:
    """What `Policy.save` or a training run has written."""
    run = Run(path)
    about = run.read_object("policy.json", ("algo", "options", "env_id", "summary"))
    with named_in_errors(run.path / "policy.json"):
        learner = algorithm(about["algo"])
        default = next(iter(learner.presets.values()))
        options = hyper.restore(type(default), about["options"])
    arrays = run.read_arrays("policy.safetensors")
    model = {
        name.removeprefix("model"): leaf
        for name, leaf in arrays.items()
        if name.startswith("model")
    }
    with named_in_errors(run.path / "policy.safetensors"):
        return Policy(
            algo=about["algo"],
            options=options,
            model=unflatten(learner.skeleton(options), model, any_shape=True),
            box=Box(jnp.asarray(arrays["box.low"]), jnp.asarray(arrays["box.high"])),
            scaling=Scaling(arrays["scaling.center"], arrays["scaling.scale"]),
            env_id=about["env_id"],
            summary=about["summary"],
        )


@lru_cache
def compiled(algo: str) -> Callable[..., jax.Array]:
    """How an algorithm's policies act, compiled once."""
    return jax.jit(algorithm(algo).act)
