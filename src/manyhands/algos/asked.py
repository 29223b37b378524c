"""What a call of `train` asks for: seeds, numbers of behaviors, options of replicas,
environments."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from numbers import Integral, Real
from typing import Any, NamedTuple

import jax
import numpy as np

from manyhands.algos import arenas
from manyhands.algos.algorithm import Algorithm, Setting
from manyhands.algos.registry import algorithm
from manyhands.behavior.estimate import Behavior
from manyhands.behavior.fit import (
    USUAL_K,
    as_list,
    check_different,
    check_k,
    listed,
    usual_k,
)
from manyhands.behavior.methods import METHODS
from manyhands.behavior.options import resolve
from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError, check_seed
from manyhands.options import choose, traced_in


class Asked(NamedTuple):
    """A call of `train`, checked."""

    learner: Algorithm
    sets: list[Trajectories]
    behaviors: list[list[list[Behavior]]] | None  # those given, see `behaviors_of`
    ks: list[int | str]
    seeds: list[int]
    options: list[list[Any]]  # for every data set
    envs: list[str | None]  # of every data set
    plays: bool  # whether policies are evaluated there
    several: bool  # whether a list is to come out


def everything(
    data: Trajectories | Sequence[Trajectories],
    algo: str,
    behavior: Behavior | Sequence[Behavior] | None,
    k: int | str | Sequence[int | str] | None,
    seed: int | Sequence[int],
    preset: str,
    changes: dict[str, Any],
    *,
    env: str | None,
    episodes: int,
    evaluations: int,
    scale_actions: bool,
) -> Asked:
    """Raises UserError where it cannot be done; the arguments are those of `train`."""
    learner = algorithm(algo)
    sets, single = as_list(data), isinstance(data, Trajectories)
    seeds, many_seeds = seeds_of(seed)
    choices, many_options = grid(learner, preset, changes)
    envs = envs_of(sets, env, evaluations, episodes)
    ks, many_ks = ks_of(learner, sets, behavior, k)
    given = behaviors_of(learner, sets, len(seeds), behavior)
    if given is not None:
        ks = [k_of(of_k[0]) for of_k in given[0]]
        many_ks = many_ks or not isinstance(behavior, Behavior)
    settings = [Setting(one, e, given is not None) for one, e in zip(sets, envs)]
    options = settled(learner, choices, settings)
    known = [one for one in envs if one is not None] if episodes else []
    plays = bool(known) and arenas.usable(sets, known, env is not None, scale_actions)
    several = not single or many_seeds or many_options or many_ks
    return Asked(learner, sets, given, ks, seeds, options, envs, plays, several)


def seeds_of(seed: int | Sequence[int]) -> tuple[list[int], bool]:
    """And whether there are several, as for all that may be a sequence."""
    several = not isinstance(seed, Integral)
    seeds = [int(s) for s in (seed if several else [seed])]  # pyright: ignore
    for number in seeds:
        check_seed(number)
    if not seeds:
        raise UserError("seed: expected at least one, got none")
    check_different("seed", seeds)
    return seeds, several


def ks_of(
    learner: Algorithm, sets: list[Trajectories], behavior: Any, k: Any
) -> tuple[list[int | str], bool]:
    several = not (k is None or isinstance(k, Real | str))
    fits = behavior is None and learner.first == "vq"
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


def grid(
    learner: Algorithm, preset: str, changes: dict[str, Any]
) -> tuple[list[Any], bool]:
    """Options: a preset with changes, of which floats may be sequences."""
    default = next(iter(learner.presets.values()))
    floats = set(traced_in(type(default)))
    lists = {
        name: list(value)
        for name, value in changes.items()
        if name in floats
        and isinstance(value, Sequence | np.ndarray)
        and not isinstance(value, str)
    }
    rest = {name: value for name, value in changes.items() if name not in lists}
    rest = _short_warm_up(learner, preset, rest) | rest
    options = [
        choose(learner.presets, preset, rest | dict(zip(lists, values)))
        for values in itertools.product(*lists.values())
    ]
    return options, bool(lists)


def options_first(
    learner: Algorithm, preset: str, options: Any, transitions: int
) -> Any:
    """Of what is fitted first, on a data set of this size."""
    assert learner.first is not None
    changes = learner.first_changes(options)
    preset = learner.preset_first(preset)
    if learner.first in METHODS:
        return resolve(preset, changes, transitions)
    return choose(algorithm(learner.first).presets, preset, changes)


def _short_warm_up(
    learner: Algorithm, preset: str, changes: dict[str, Any]
) -> dict[str, Any]:
    """Of few updates most must not be spent before the policy learns from Q."""
    usual = choose(learner.presets, preset, changes)
    if "steps" not in changes or not hasattr(usual, "warm_up"):
        return {}
    return {"warm_up": min(usual.warm_up, int(usual.steps) // 5)}


def settled(
    learner: Algorithm, options: list[Any], settings: list[Setting]
) -> list[list[Any]]:
    """For every data set: with all decided that depends on it."""
    every = [[learner.settle(o, setting) for o in options] for setting in settings]
    first, *others = (jax.tree.structure(of_set) for of_set in every)
    if any(other != first for other in others):
        # What is no float is a part of the program.
        raise UserError(
            "data: expected sets that one program can learn from; these ask for "
            "different options"
        )
    return every


def behaviors_of(
    learner: Algorithm,
    sets: list[Trajectories],
    seeds: int,
    behavior: Behavior | Sequence[Behavior] | None,
) -> list[list[list[Behavior]]] | None:
    """Those given: for every data set, k and seed, each fitted to its data by the right
    method."""
    if behavior is None:
        return None
    method = learner.first or learner.takes
    if method not in METHODS:
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
            if one.method != method:
                raise UserError(f"behavior: expected method {method}, got {one.method}")
            if one.fingerprint != data.fingerprint:
                raise UserError("behavior: expected one fitted to this data set")
            if not all(map(np.array_equal, one.scaling, mine[0].scaling)):
                raise UserError(
                    "behavior: expected all to scale observations alike (their options "
                    "standardise and holdout differ)"
                )
    return found


def k_of(behavior: Behavior) -> int | str:
    """As it was asked for."""
    return behavior.summary.get("behavior", {}).get("k", behavior.k)


def in_rows(found: list[Any], sets: int, seeds: int) -> list[list[list[Any]]]:
    """Of each data set, for each k, for every seed."""
    rows = [found[n : n + seeds] for n in range(0, len(found), seeds)]
    ks = len(rows) // sets
    return [rows[n : n + ks] for n in range(0, len(rows), ks)]


def as_written(options: list[list[Any]], ks: list[int | str]) -> list[dict[str, Any]]:
    """Of all replicas that differ by more than their seed, for config.json."""
    return [
        asdict(one) | ({"k": k} if len(ks) > 1 else {})
        for of_set in options
        for k in ks
        for one in of_set
    ]


def envs_of(
    sets: list[Trajectories], env: str | None, evaluations: int, episodes: int
) -> list[str | None]:
    """Where each set's policies are evaluated, if anywhere."""
    if evaluations < 0 or episodes < 0:
        wrong = min(evaluations, episodes)
        raise UserError(f"evaluations, episodes: expected at least 0, got {wrong}")
    envs = [env or one.env_id for one in sets]
    if env is None and episodes:
        envs = [one and arenas.today(one) for one in envs]
    if None in envs and (evaluations or (episodes and any(envs))):
        raise UserError("env: expected an environment's id to evaluate in, got none")
    return envs
