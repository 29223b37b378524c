"""All hyper-parameters of a fleet, not only those that its preset names."""

from dataclasses import asdict
from typing import Any

from manyhands.algos import asked
from manyhands.algos.registry import algorithm
from manyhands.sweep.plan import Fleet


def options_of(fleet: Fleet) -> Any:
    """Of its algorithm, as `train` resolves them."""
    (options,), _ = asked.grid(algorithm(fleet.algo), fleet.preset, fleet.options)
    return options


def config_of(fleet: Fleet, transitions: int) -> dict[str, Any]:
    """As this version of the program resolves them, before what depends on the data is
    decided; `behavior`: of the estimate that is fitted first, if there is one."""
    learner, options = algorithm(fleet.algo), options_of(fleet)
    found = asdict(options)
    if learner.first:
        first = asked.options_first(learner, fleet.preset, options, transitions)
        found["behavior"] = asdict(first)
    return found
