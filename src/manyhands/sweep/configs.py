"""All hyper-parameters of a fleet, not only those that its preset names."""

from dataclasses import asdict
from typing import Any

from manyhands.algos import request
from manyhands.algos.registry import algorithm
from manyhands.sweep.plan import Fleet


def options_of(fleet: Fleet) -> Any:
    """Of its algorithm, as `train` resolves them."""
    about = algorithm(fleet.algo), fleet.preset, fleet.options
    (options,), _ = request.option_grid(*about)
    return options


def config_of(fleet: Fleet, transitions: int) -> dict[str, Any]:
    """As this version of the program resolves them, before what depends on the data is
    decided; `behavior`: of the estimate that is fitted first, if there is one."""
    learner, options = algorithm(fleet.algo), options_of(fleet)
    found = asdict(options)
    need = learner.behavior_need
    if need and not need.only_given:
        about = learner, fleet.preset, options, transitions
        first = request.behavior_options_of(*about)
        found["behavior"] = asdict(first)
    return found
