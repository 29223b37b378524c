"""A call of `train`: its arguments, checked once, and the stages that it plans."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import jax
import numpy as np

from manyhands.algos import arenas
from manyhands.algos.algorithm import Algorithm, Setting
from manyhands.algos.registry import algorithm
from manyhands.behavior import options as behavior_options
from manyhands.behavior.estimate import Behavior
from manyhands.behavior.fit import (
    USUAL_K,
    as_list,
    check_different,
    check_k,
    listed,
    names_of,
    usual_k,
)
from manyhands.behavior.methods import METHODS
from manyhands.data.trajectories import Trajectories
from manyhands.dynamics.settings import Settings
from manyhands.errors import UserError, check_seed
from manyhands.options import choose, traced_in
from manyhands.training.planned import Planned


class Cell(NamedTuple):
    """The place of a replica in the grid of data sets, k, options and seeds."""

    data: int
    k: int
    options: int
    seed: int


@dataclass(frozen=True)
class Request:
    algo: str
    learner: Algorithm
    sets: list[Trajectories]
    single: bool  # one data set, not a list of one
    envs: list[str | None]  # of every data set
    given: list[list[list[Behavior]]] | None  # by data set, k and seed
    ks: list[int | str]
    seeds: list[int]
    preset: str
    options: list[list[Any]]  # of every data set, one for each combination
    episodes: int
    evaluations: int
    scale_actions: bool
    plays: bool  # whether policies are evaluated
    several: bool  # whether the result is a list
    transitions: int  # of the largest data set
    behavior_run: str | None  # the run that the given behaviors are from

    def cells(self) -> Iterator[Cell]:
        """Replicas in their order: data sets, then k, then options, then seeds."""
        parts = self.sets, self.ks, self.options[0], self.seeds
        numbers = itertools.product(*(range(len(part)) for part in parts))
        return itertools.starmap(Cell, numbers)

    @property
    def replicas(self) -> int:
        return len(list(self.cells()))

    @property
    def stages(self) -> list[Planned]:
        """What will be trained, in this order."""
        found = []
        options = self.options[0][0]
        for need in self.learner.needs:
            if need.learner == "dynamics":
                most = need.changes(options)["steps"]
                found.append(Planned("dynamics", "dynamics", most, at_most=True))
            elif self.given is None and not need.only_given:
                name = {"vq": "behaviors"}.get(need.learner, need.learner)
                steps = self.behavior_options.steps
                found.append(Planned(name, "behavior", steps))
        return [*found, Planned(self.algo, "", options.steps)]

    @property
    def behavior_options(self) -> Any:
        """Of the estimate of behaviors that is trained first."""
        about = self.learner, self.preset, self.options[0][0], self.transitions
        return behavior_options_of(*about)

    def dynamics_settings(self, options: Any) -> Settings:
        """Of the dynamics that a replica with these options needs."""
        (need,) = (n for n in self.learner.needs if n.learner == "dynamics")
        return Settings(**need.changes(options))

    def config(self) -> dict[str, Any]:
        """The part of config.json that decides the policies."""
        return {
            "algo": self.algo,
            "seeds": self.seeds,
            "preset": self.preset,
            "k": self.ks if len(self.ks) > 1 else self.ks[0],
            "options": self._options_written(),
            "behavior": None if self.given is None else "given",
            "data": names_of(self.sets[0] if self.single else self.sets),
            "env": self.envs[0] if self.single else self.envs,
        }

    def _options_written(self) -> list[dict[str, Any]]:
        """Of all replicas that differ by more than their seed."""
        return [
            asdict(options) | ({"k": k} if len(self.ks) > 1 else {})
            for of_set in self.options
            for k in self.ks
            for options in of_set
        ]


def resolve(
    data: Trajectories | Sequence[Trajectories],
    algo: str = "lbrac_v",
    *,
    behavior: Behavior | Sequence[Behavior] | None = None,
    k: int | str | Sequence[int | str] | None = None,
    seed: int | Sequence[int] = 0,
    preset: str = "default",
    env: str | None = None,
    episodes: int = 20,
    evaluations: int = 0,
    scale_actions: bool = False,
    **changes: Any,
) -> Request:
    """Check a request before anything is written or computed.

    The arguments are those of `train`; raises UserError where they cannot be used.
    """
    learner = algorithm(algo)
    sets, single = as_list(data), isinstance(data, Trajectories)
    seeds, many_seeds = check_seeds(seed)
    choices, many_options = option_grid(learner, preset, changes)
    envs = _environments(sets, env, evaluations, episodes)
    ks, many_ks = check_ks(learner, sets, behavior, k)
    given = _given_behaviors(learner, sets, len(seeds), behavior)
    if given is not None:
        ks = [k_of(of_k[0]) for of_k in given[0]]
        many_ks = many_ks or not isinstance(behavior, Behavior)
    settings = [Setting(one, e, given is not None) for one, e in zip(sets, envs)]
    options = _settled(learner, choices, settings)
    known = [one for one in envs if one is not None] if episodes else []
    plays = bool(known) and arenas.usable(sets, known, env is not None, scale_actions)
    several = not single or many_seeds or many_options or many_ks
    return Request(
        algo,
        learner,
        sets,
        single,
        envs,
        given,
        ks,
        seeds,
        preset,
        options,
        episodes,
        evaluations,
        scale_actions,
        plays,
        several,
        max(one.transitions for one in sets),
        given[0][0][0].run if given else None,
    )


# Seeds, k, options


def check_seeds(seed: int | Sequence[int]) -> tuple[list[int], bool]:
    """And whether several were given, as in the functions below."""
    several = not isinstance(seed, Integral)
    seeds = [int(s) for s in (seed if several else [seed])]  # pyright: ignore
    for number in seeds:
        check_seed(number)
    if not seeds:
        raise UserError("seed: expected at least one, got none")
    check_different("seed", seeds)
    return seeds, several


def check_ks(
    learner: Algorithm, sets: list[Trajectories], behavior: Any, k: Any
) -> tuple[list[int | str], bool]:
    several = not (k is None or isinstance(k, Real | str))
    fits = behavior is None and learner.fits_behavior_set
    if k is None:
        return [usual_k(sets) if fits else USUAL_K], several
    # NumPy's integers are as good as Python's.
    given: Any = k if several else [k]
    ks = [int(value) if isinstance(value, Integral) else value for value in given]
    if not fits:
        raise UserError(
            f"k: expected none, for no behavior set is fitted here, got {listed(ks)}"
        )
    if not ks:
        raise UserError("k: expected at least one, got none")
    check_different("k", ks)
    for data, value in itertools.product(sets, ks):
        check_k(value, len(data))
    return ks, several


def option_grid(
    learner: Algorithm, preset: str, changes: dict[str, Any]
) -> tuple[list[Any], bool]:
    """Options: a preset with changes, of which traced ones may be sequences."""
    default = next(iter(learner.presets.values()))
    lists = {
        name: list(value)
        for name, value in changes.items()
        if name in traced_in(type(default))
        and isinstance(value, Sequence | np.ndarray)
        and not isinstance(value, str)
    }
    for name, values in lists.items():
        if not values:
            raise UserError(f"{name}: expected at least one number, got none")
    rest = {name: value for name, value in changes.items() if name not in lists}
    rest = _short_warm_up(learner, preset, rest) | rest
    options = [
        choose(learner.presets, preset, rest | dict(zip(lists, values)))
        for values in itertools.product(*lists.values())
    ]
    return options, bool(lists)


def _short_warm_up(
    learner: Algorithm, preset: str, changes: dict[str, Any]
) -> dict[str, Any]:
    """Of few updates most must not be spent before the policy learns from Q."""
    usual = choose(learner.presets, preset, changes)
    if "steps" not in changes or not hasattr(usual, "warm_up"):
        return {}
    return {"warm_up": min(usual.warm_up, int(usual.steps) // 5)}


def behavior_options_of(
    learner: Algorithm, preset: str, options: Any, transitions: int
) -> Any:
    """Of the estimate of behaviors that is trained first, on data of this size."""
    need = learner.behavior_need
    assert need is not None
    changes, preset = need.changes(options), learner.preset_before(preset)
    if need.learner in METHODS:
        return behavior_options.resolve(preset, changes, transitions)
    return choose(algorithm(need.learner).presets, preset, changes)


def _settled(
    learner: Algorithm, options: list[Any], settings: list[Setting]
) -> list[list[Any]]:
    """For every data set: with all decided that depends on it."""
    every = [[learner.settle(o, setting) for o in options] for setting in settings]
    first, *others = (jax.tree.structure(of_set) for of_set in every)
    if any(other != first for other in others):
        # Options that are not traced are a part of the program.
        raise UserError(
            "data: expected sets that one program can learn from; these ask for "
            "different options"
        )
    return every


# Behaviors that were given


def _given_behaviors(
    learner: Algorithm,
    sets: list[Trajectories],
    seeds: int,
    behavior: Behavior | Sequence[Behavior] | None,
) -> list[list[list[Behavior]]] | None:
    """For every data set, k and seed, each fitted to its data by the right method."""
    if behavior is None:
        return None
    need = learner.behavior_need
    if need is None or need.learner not in METHODS:
        raise UserError("behavior: expected none, this algorithm does not use one")
    given = [behavior] if isinstance(behavior, Behavior) else list(behavior)
    each = len(sets) * seeds
    if len(given) == 1:
        given *= each
    if not given or len(given) % each:
        of_sets = f" and {len(sets)} data sets" if len(sets) > 1 else ""
        raise UserError(
            f"behavior: expected one, or one for each of the {seeds} seeds{of_sets} "
            f"(and each k), got {len(given)}"
        )
    found = in_rows(given, len(sets), seeds)
    for data, of_set in zip(sets, found):
        mine = [one for of_k in of_set for one in of_k]
        for one in mine:
            if one.method != need.learner:
                raise UserError(
                    f"behavior: expected method {need.learner}, got {one.method}"
                )
            if one.fingerprint != data.fingerprint:
                raise UserError("behavior: expected one fitted to this data set")
            if not all(map(np.array_equal, one.scaling, mine[0].scaling)):
                raise UserError(
                    "behavior: expected all to scale observations alike (their options "
                    "standardise and holdout differ)"
                )
    return found


def k_of(behavior: Behavior) -> int | str:
    """The k that was given to `fit`."""
    return behavior.summary.get("behavior", {}).get("k", behavior.k)


def in_rows(found: list[Any], sets: int, seeds: int) -> list[list[list[Any]]]:
    """By data set, k and seed."""
    rows = [found[n : n + seeds] for n in range(0, len(found), seeds)]
    ks = len(rows) // sets
    return [rows[n : n + ks] for n in range(0, len(rows), ks)]


def _environments(
    sets: list[Trajectories], env: str | None, evaluations: int, episodes: int
) -> list[str | None]:
    """Where each data set's policies are evaluated, if anywhere."""
    if evaluations < 0 or episodes < 0:
        wrong = min(evaluations, episodes)
        raise UserError(f"evaluations, episodes: expected at least 0, got {wrong}")
    envs = [env or one.env_id for one in sets]
    if env is None and episodes:
        envs = [one and arenas.today(one) for one in envs]
    if None in envs and (evaluations or (episodes and any(envs))):
        raise UserError("env: expected an environment's id to evaluate in, got none")
    return envs
