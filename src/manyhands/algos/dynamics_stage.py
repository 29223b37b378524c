"""The stage in which model-based learners have their dynamics fitted."""

from collections.abc import Callable
from typing import Any

from manyhands.algos.algorithm import Stage
from manyhands.dynamics.fit import Dynamics, Job, fit
from manyhands.dynamics.settings import Settings
from manyhands.errors import UserError


def check_elites(options: Any) -> None:
    if options.elites > options.members:
        raise UserError(
            f"elites: expected at most the {options.members} members, got "
            f"{options.elites}"
        )


def learn_dynamics(
    stage: Stage, settings_of: Callable[[Any], Settings]
) -> list[Dynamics]:
    """For every replica, by its seed and options; kept in the run, in `dynamics`."""
    jobs = [Job(place, seed, settings_of(o)) for place, seed, o in stage.replicas]
    out = stage.run.path / "dynamics" if stage.run else None
    return fit(stage.places, jobs, out, stage.progress, stage.checkpoint_seconds)
