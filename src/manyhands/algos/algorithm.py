"""What the training loop needs of an algorithm."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from manyhands.behavior.problem import Scaling
from manyhands.data.trajectories import Trajectories
from manyhands.fleet import Update
from manyhands.options import COUNT, NOT_NEGATIVE, as_pytree, option, options
from manyhands.runs import Run
from manyhands.types import Box, Key, Keys, Pytree


@options
class Common:
    """The options of every algorithm."""

    steps: int = option(200_000, "Updates of the policy.", NOT_NEGATIVE)
    batch_size: int = option(256, "Transitions per update.", COUNT)
    standardise: bool = option(
        True, "Scale every observation to mean 0 and deviation 1 first."
    )


class Given(NamedTuple):
    """What one replica starts from."""

    observations: int  # how many numbers
    actions: int
    box: Box
    # The model of what was fitted first, see `Algorithm.first`; of "vq": a `Start`.
    behavior: Any = None
    # What was learnt before, see `Algorithm.before`.
    dynamics: Any = None
    scaling: Scaling | None = None  # of observations


class Setting(NamedTuple):
    """What options may depend on, see `Algorithm.settle`."""

    data: Trajectories
    env: str | None  # where policies are evaluated
    behavior: bool  # whether one is given


class Stage(NamedTuple):
    """What is learnt before a policy is, for all replicas."""

    places: list[tuple[Trajectories, Scaling]]  # data sets
    replicas: list[tuple[int, int, Any]]  # which of them, seed and options of each
    run: Run | None
    progress: Callable[[int, dict[str, float]], None]
    checkpoint_seconds: float


@dataclass(frozen=True)
class Algorithm:
    """A way to learn a policy; one file each, listed in `registry.py`."""

    presets: Mapping[str, Any]  # of a class of `options`; the first: default
    start: Callable[[Key, Given, Any], Pytree]  # key, given, options -> state
    # state, batch, key, options with traced floats, fitted -> state, metrics
    update: Update
    fitted: Callable[[Given, Any], Pytree]  # given, options -> what does not change
    model: Callable[[Pytree, Pytree], Pytree]  # state, fitted -> what acting needs
    # model, box, observations [n, S], keys [n] -> actions [n, A], at test time
    act: Callable[[Any, Box, Any, Keys], Any]
    # A model with the right leaves, of whatever shapes: to be filled from a file.
    skeleton: Callable[[Any], Pytree]
    # What is fitted first, an algorithm ("bc") or an estimator of behaviors ("vq",
    # "vae"), with which of its options changed.
    first: str | None = None
    first_changes: Callable[[Any], dict[str, Any]] = lambda options: {}
    # An estimator of behaviors that may be given, by one who has it; never fitted.
    takes: str | None = None
    # options, setting -> options, with all decided that depends on the data
    settle: Callable[[Any, Setting], Any] = lambda options, setting: options
    # What is learnt from the data before: stage -> `Given.dynamics` of every replica
    before: Callable[[Stage], list[Any]] | None = None
    # Acting is so much work that it belongs on the device, not beside it.
    acts_on_device: bool = False

    def __post_init__(self):
        as_pytree(type(next(iter(self.presets.values()))))

    def preset_first(self, preset: str) -> str:
        """Of what is fitted first; those of data sets are variants of the paper's."""
        return preset if preset == "default" else "paper"
