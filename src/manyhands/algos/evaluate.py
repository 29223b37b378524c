"""Policies in their environment: returns, raw, normalised and relative."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import Any, NamedTuple

import jax
import numpy as np

from manyhands.algos import arenas
from manyhands.algos.policy import Policy
from manyhands.algos.registry import algorithm
from manyhands.behavior.problem import Scaling
from manyhands.data.trajectories import Trajectories
from manyhands.envs.pool import Pool
from manyhands.envs.rollout import episode_seeds, play
from manyhands.envs.scores import normalized
from manyhands.errors import UserError, check_seed
from manyhands.fleet import AT_ONCE
from manyhands.types import Box, Pytree

MOST_SLOTS = 512  # environments at a time


class Evaluation(NamedTuple):
    """Returns of some episodes, and what they are worth."""

    returns: np.ndarray
    normalized: float | None  # 0 is a random policy, 100 an expert
    relative: float | None  # in units of the behaviors' mean score

    def summary(self) -> dict[str, Any]:
        return {
            "return_mean": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "episodes": len(self.returns),
            "normalized": self.normalized,
            "relative": self.relative,
            "returns": [float(one) for one in self.returns],
        }


def evaluate(
    policy: Policy,
    env: str | None = None,
    *,
    episodes: int = 20,
    seed: int = 0,
    behaviors: float | None = None,
    workers: int | None = None,
    scale_actions: bool | None = None,
) -> Evaluation:
    """Play whole episodes.

    Args:
        env: a Gymnasium id; the one of the data that the policy learnt from, if None.
        seed: the same one gives the same episodes, whatever the number of workers.
        behaviors: the mean normalised score of the policies that made the data, which
            relative returns are in units of; from training, if None.
        workers: processes; as many as there are cores if None.
        scale_actions: stretch actions from the data's bounds to the environment's; as
            in training, if None.
    """
    if env is None and policy.env_id is not None:
        env = arenas.today(policy.env_id)
    if env is None:
        raise UserError("env: expected an environment's id, got none, nor has the data")
    check_seed(seed)
    if behaviors is None:
        behaviors = policy.summary.get("behaviors")
    if scale_actions is None:
        scale_actions = bool(policy.summary.get("policy", {}).get("scale_actions"))
    body, low, high = Body(policy.box, policy.scaling), *map(np.asarray, policy.box)
    how = env, episodes, workers, scale_actions
    with Players(policy.algo, [body], *how) as players:
        arenas.check_actions(env, players.space, low, high, scale_actions)
        models = jax.tree.map(lambda leaf: leaf[None], policy.model)
        returns = players.returns(models, seed)[0]
    return worth(returns, env, behaviors)


def worth(returns: np.ndarray, env: str, behaviors: float | None) -> Evaluation:
    scores = normalized(returns, env)
    score = None if scores is None else float(scores.mean())
    relative = None if score is None or not behaviors else score / behaviors
    return Evaluation(returns, score, relative)


def behaviors_score(data: Trajectories, env: str | None = None) -> float | None:
    """The mean normalised score of the policies that made a data set, each of which
    counts the same."""
    env = env or data.env_id
    scores = None if env is None else normalized(data.returns, env)
    means = {} if scores is None else by_source(data, scores)
    return float(np.mean(list(means.values()))) if means else None


def by_source(data: Trajectories, scores: np.ndarray) -> dict[str, float]:
    """Means of trajectories' scores, by the name of their source; without sources, all
    are of one. Trajectories that were cut off say nothing of their policy."""
    ends = data.offsets[1:] - 1
    whole = data.terminals[ends] | data.timeouts[ends]
    known = data.sources is not None
    sources = data.sources if known else np.zeros(len(data), int)
    names = data.source_names if known else ("",)
    found = {name: scores[whole & (sources == s)] for s, name in enumerate(names)}
    return {name: float(mine.mean()) for name, mine in found.items() if len(mine)}


class Body(NamedTuple):
    """What a policy sees the world through, and acts on it with."""

    box: Box
    scaling: Scaling


class Players(AbstractContextManager):
    """Environments for some episodes of each of several policies at a time.

    Policies act on the CPU, so that a device that is busy learning is left alone; those
    that plan act on the device, or it would take hours.
    """

    def __init__(
        self,
        algo: str,
        bodies: list[Body],  # one for each policy
        env: str,
        episodes: int,
        workers: int | None = None,
        scale_actions: bool = False,
    ):
        if episodes < 1:
            raise UserError(f"episodes: expected at least 1, got {episodes}")
        self.episodes = episodes
        on_device = algorithm(algo).acts_on_device
        self.place = jax.devices()[0] if on_device else _cpu()
        self.bodies = jax.tree.map(lambda *leaves: np.stack(leaves), *bodies)
        self.together = max(1, min(len(bodies), MOST_SLOTS // episodes))
        self.scale_actions = scale_actions
        self.pool = Pool([env] * (self.together * episodes), workers)
        self.space = self.pool.spaces[0]
        self._check(env)
        self._act = jax.jit(
            jax.vmap(_seeded(algo)),
            compiler_options=AT_ONCE,  # pyright: ignore[reportArgumentType]
        )

    def _check(self, env: str) -> None:
        sizes = self.bodies.scaling.center.shape[-1], self.bodies.box.low.shape[-1]
        try:
            arenas.check_sizes(env, self.space, *sizes)
        except UserError:
            self.pool.close()
            raise

    def returns(self, models: Pytree, seed: int = 0) -> np.ndarray:
        """[policy, episode], of models stacked along a leading axis."""
        many = len(self.bodies.box.low)
        everyone = self.bodies, jax.device_get(models)
        parts = []
        for first in range(0, many, self.together):
            # The last ones may play twice, so that there is one shape to compile.
            which = np.minimum(np.arange(first, first + self.together), many - 1)
            bodies, some = jax.tree.map(lambda leaf: leaf[which], everyone)  # noqa: B023
            part = self._play(bodies, jax.device_put(some, self.place), seed)
            parts.append(part[: many - first])
        return np.concatenate(parts)

    def _play(self, bodies: Body, models: Pytree, seed: int) -> np.ndarray:
        shape = self.together, self.episodes
        box = jax.device_put(bodies.box, self.place)
        scaling = Scaling(*(x[:, None] for x in bodies.scaling))  # the same in episodes

        def act(observations, seeds, times):
            rows = scaling(observations.reshape(*shape, -1))
            # NumPy's: arrays of JAX would be made on the device that is learning, and
            # wait there for their turn.
            labels = (x.reshape(shape).astype(np.uint32) for x in (seeds, times))
            actions = self._act(models, box, rows, *labels)
            if self.scale_actions:
                actions = arenas.stretched(np.asarray(actions), bodies.box, self.space)
            actions = np.asarray(actions).reshape(len(observations), -1)
            return actions, np.full(len(observations), np.nan)

        # As many slots as episodes: each policy's are side by side, for all the time.
        seeds = list(islice(episode_seeds(seed), self.episodes)) * self.together
        totals = [episode.total for episode in play(self.pool, act, seeds)]
        return np.reshape(totals, shape)

    def close(self) -> None:
        self.pool.close()

    def __exit__(self, *error: object) -> None:
        self.close()


class Judge:
    """Evaluates policies that train together, each in its environment."""

    def __init__(
        self,
        algo: str,
        sources: Sequence[Any],  # a DataSet for each policy
        episodes: int,
        workers: int | None,
        scale_actions: bool,
    ):
        self.sources = sources
        self.players: dict[str, Players] = {}
        with ExitStack() as opened:  # closed again if one of them fails
            for env in dict.fromkeys(one.env for one in sources):
                bodies = [Body(s.box, s.scaling) for s in sources if s.env == env]
                how = env, episodes, workers, scale_actions
                players = Players(algo, bodies, *how)
                self.players[env] = opened.enter_context(players)
            self.closing = opened.pop_all()

    def look(self, models: Pytree) -> list[Evaluation]:
        """At the models of all, stacked along a leading axis."""
        models = jax.device_get(models)
        found: dict[int, Evaluation] = {}
        for env, players in self.players.items():
            mine = [r for r, one in enumerate(self.sources) if one.env == env]
            some = jax.tree.map(lambda leaf: leaf[mine], models)  # noqa: B023
            for r, returns in zip(mine, players.returns(some)):
                found[r] = worth(returns, env, self.sources[r].behaviors)
        return [found[r] for r in range(len(self.sources))]

    def close(self) -> None:
        self.closing.close()


def _seeded(algo: str):
    """How policies act, with noise named by an episode's seed and the time in it."""
    act = algorithm(algo).act

    def one(model, box, rows, seeds, times):
        base = jax.random.key(0)
        fold = jax.random.fold_in
        keys = jax.vmap(lambda s, t: fold(fold(base, s), t))(seeds, times)
        return act(model, box, rows, keys)

    return one


def _cpu() -> Any:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:  # switched off
        return jax.devices()[0]
