"""The data sets and replicas of a request, ready for the loop."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp

from manyhands.algos import starting_sets
from manyhands.algos.algorithm import Given
from manyhands.algos.evaluate import behaviors_score
from manyhands.algos.request import Request
from manyhands.behavior.estimate import Behavior
from manyhands.behavior.problem import Scaling
from manyhands.data.trajectories import Trajectories
from manyhands.fleet import Packed
from manyhands.types import Box

Fitted = list[list[list[Any]]]  # a Behavior, a Policy or None, by data set, k and seed


class DataSet(NamedTuple):
    """A data set to learn from, with its environment."""

    data: Trajectories
    env: str | None
    scaling: Scaling  # of observations
    behaviors: float | None  # the mean normalised score of the policies that made it

    @property
    def box(self) -> Box:
        low, high = self.data.action_low, self.data.action_high
        return Box(jnp.asarray(low), jnp.asarray(high))


class Replica(NamedTuple):
    """One of the policies that train together."""

    source: DataSet
    rows: range  # of the packed data
    seed: int
    options: Any
    behavior: Any  # the Behavior or Policy that was trained before, or None
    given: Given  # what the learner starts from


def data_sets(request: Request, behaviors: Fitted) -> list[DataSet]:
    parts = zip(request.sets, request.envs, request.options, behaviors)
    return [
        DataSet(data, env, _scaling(data, options[0], found[0][0]), score)
        for data, env, options, found in parts
        for score in [behaviors_score(data, env)]
    ]


def _scaling(data: Trajectories, options: Any, behavior: Any) -> Scaling:
    """That of the estimate of behaviors where there is one, or the data's own."""
    if behavior is not None:
        return behavior.scaling
    if options.standardise:
        return Scaling.of(data.observations)
    return Scaling.none(data.observation_size)


def replicas(
    request: Request,
    sets: list[DataSet],
    behaviors: Fitted,
    dynamics: list[Any],
) -> tuple[list[Replica], Packed]:
    """In the order of the request, and the rows that they learn from, scaled."""
    cells = list(request.cells())
    fitted = [behaviors[cell.data][cell.k][cell.seed] for cell in cells]
    starts: list[Any] = [one and one.model for one in fitted]
    if isinstance(fitted[0], Behavior) and fitted[0].method == "vq":
        starts = starting_sets.starts(fitted, [sets[cell.data].data for cell in cells])
    packed, rows = Packed.join([_rows(one) for one in sets])
    sizes = packed.observation_size, packed.action_size
    found = []
    for cell, behavior, start, model in zip(cells, fitted, starts, dynamics):
        source = sets[cell.data]
        found.append(
            Replica(
                source,
                rows[cell.data],
                request.seeds[cell.seed],
                request.options[cell.data][cell.options],
                behavior,
                Given(*sizes, source.box, start, model, source.scaling),
            )
        )
    return found, packed


def _rows(source: DataSet) -> Packed:
    usable, scaling = source.data.renumbered().bootstrappable(), source.scaling
    return Packed.of(
        replace(
            usable,
            observations=scaling(usable.observations),
            next_observations=scaling(usable.next_observations),
        )
    )
