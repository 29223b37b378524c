"""Policies as they are stored, and how they act."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from manyhands.envs.rollout import Act
from manyhands.errors import UserError
from manyhands.files import atomic_file
from manyhands.nn.networks import MLP, Dense
from manyhands.zoo import sac
from manyhands.zoo.tasks import TASKS, task

STORED = Path(__file__).parent / "stored"


@dataclass(frozen=True)
class About:
    """What is known of a stored policy; a row of the manifest."""

    task: str
    seed: int  # of the agent's training
    step: int  # updates so far
    # The return of 20 episodes, sampling actions and taking the mode.
    return_mean: float = float("nan")
    return_std: float = float("nan")
    normalized: float = float("nan")
    mode_return_mean: float = float("nan")
    mode_return_std: float = float("nan")

    @property
    def name(self) -> str:
        return f"{self.task}-{self.seed}-{self.step:07d}"


@dataclass(frozen=True)
class Policy:
    about: About
    net: MLP  # float16 numbers, in float32

    def act(self, mode: bool = False) -> Act:
        """For `rollout`: sampled actions with their log-probabilities, or the modes."""
        host = jax.devices("cpu")[0]
        net = jax.device_put(self.net, host)
        function = _modes if mode else _samples

        def act(observations, seeds, times):
            with jax.default_device(host):
                found = function(net, observations, seeds.astype(np.uint32), times)
            return np.asarray(found[0]), np.asarray(found[1])

        return act


def random_act(actions: int) -> Act:
    """Uniform actions on [-1, 1]."""
    host = jax.devices("cpu")[0]

    def act(observations, seeds, times):
        with jax.default_device(host):
            found = _uniform(seeds.astype(np.uint32), times, actions)
        return np.asarray(found), np.full(len(seeds), -actions * np.log(2), np.float32)

    return act


@jax.jit
def _samples(net: MLP, observations, seeds, times):
    size = net.layers[-1].b.shape[-1] // 2
    noise = jax.vmap(lambda key: jax.random.normal(key, (size,)))(_keys(seeds, times))
    return sac.sample(net, observations, noise, jnp.ones(size))


@jax.jit
def _modes(net: MLP, observations, seeds, times):
    del seeds, times
    return sac.distribution(net, observations).mode(), jnp.full(
        len(observations), jnp.nan
    )


@partial(jax.jit, static_argnames="actions")
def _uniform(seeds, times, actions: int):
    def draw(key):
        return jax.random.uniform(key, (actions,), minval=-1.0, maxval=1.0)

    return jax.vmap(draw)(_keys(seeds, times))


def _keys(seeds, times):
    return jax.vmap(lambda s, t: jax.random.fold_in(jax.random.key(s), t))(seeds, times)


# Files: a manifest, and one file of arrays for every task


def write(folder: Path, policies: Iterable[Policy], made: dict[str, Any]) -> None:
    """Store policies, with how they were made (command, hardware, versions)."""
    folder.mkdir(parents=True, exist_ok=True)
    policies = list(policies)
    for name in dict.fromkeys(policy.about.task for policy in policies):
        arrays = {
            f"{policy.about.name}/{number}/{part}": array.astype(np.float16)
            for policy in policies
            if policy.about.task == name
            for number, layer in enumerate(policy.net.layers)
            for part, array in (("w", np.asarray(layer.w)), ("b", np.asarray(layer.b)))
        }
        with atomic_file(folder / f"{name}.safetensors") as temporary:
            save_file(arrays, temporary)
    rows = [asdict(policy.about) for policy in policies]
    with atomic_file(folder / "manifest.json") as temporary:
        text = json.dumps({"made": made, "policies": rows}, indent=1)
        temporary.write_text(text + "\n")


def manifest(folder: Path = STORED) -> list[About]:
    path = folder / "manifest.json"
    if not path.exists():
        raise UserError(f"{path}: no such file; expected a folder of stored policies")
    return [About(**row) for row in json.loads(path.read_text())["policies"]]


def load(about: About, folder: Path = STORED) -> Policy:
    arrays = _arrays(folder / f"{about.task}.safetensors")
    layers = []
    while f"{about.name}/{len(layers)}/w" in arrays:
        start = f"{about.name}/{len(layers)}"
        layers.append(Dense(*(_single(arrays[f"{start}/{part}"]) for part in "wb")))
    if not layers:
        raise UserError(f"{about.name}: not among the stored policies")
    return Policy(about, MLP(tuple(layers)))


@cache
def _arrays(path: Path) -> dict[str, np.ndarray]:
    return load_file(path)


def _single(array: np.ndarray) -> jax.Array:
    return jnp.asarray(array.astype(np.float32))


# Out of a training run


def of_run(file: Path, agents: list[tuple[str, int]], step: int) -> list[Policy]:
    """All agents' policies as they were kept after some steps, without the padding."""
    arrays = load_file(file)
    found = []
    for r, (name, seed) in enumerate(agents):
        layers = []
        while f".layers[{len(layers)}].w" in arrays:
            start = f".layers[{len(layers)}]"
            w, b = (_single(arrays[f"{start}.{part}"][r]) for part in "wb")
            layers.append(Dense(w, b))
        found.append(Policy(About(name, seed, step), cut(MLP(tuple(layers)), name)))
    return found


def cut(net: MLP, name: str) -> MLP:
    """Without the rows and columns that padded a smaller task to the largest."""
    of, widest = task(name), max(t.actions for t in TASKS.values())
    first, *middle, last = net.layers
    keep = np.concatenate([np.arange(of.actions), widest + np.arange(of.actions)])
    return MLP(
        (
            Dense(first.w[: of.observations], first.b),
            *middle,
            Dense(last.w[:, keep], last.b[keep]),
        )
    )


def described(policy: Policy, **numbers: float) -> Policy:
    return replace(policy, about=replace(policy.about, **numbers))
