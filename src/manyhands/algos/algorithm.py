"""What the training loop needs of an algorithm."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from manyhands.behavior.problem import Scaling
from manyhands.data.trajectories import Trajectories
from manyhands.fleet import Update
from manyhands.options import COUNT, NOT_NEGATIVE, as_pytree, option, options
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
    behavior: Any = None  # the model of behaviors that was needed; of "vq": a `Start`
    dynamics: Any = None  # the `Dynamics` that were needed
    scaling: Scaling | None = None  # of observations


class Setting(NamedTuple):
    """What options may depend on, see `Algorithm.settle`."""

    data: Trajectories
    env: str | None  # where policies are evaluated
    behavior: bool  # whether one is given


@dataclass(frozen=True)
class Need:
    """A model to train before the policy, with options that depend on the policy's."""

    learner: str  # an estimator of behaviors, an algorithm, or "dynamics"
    changes: Callable[[Any], dict[str, Any]] = lambda options: {}
    only_given: bool = False  # never trained: used where the user gives one


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
    needs: tuple[Need, ...] = ()  # given to `start` and `fitted`
    # options, setting -> options, with all decided that depends on the data
    settle: Callable[[Any, Setting], Any] = lambda options, setting: options
    # model, given -> the model without the padding that replicas share
    unpadded: Callable[[Any, Given], Any] = lambda model, given: model
    # model -> arrays for embeddings.npz
    embeddings: Callable[[Any], dict[str, Any]] = lambda model: {}
    # Acting is so much work that it belongs on the device, not beside it.
    acts_on_device: bool = False

    def __post_init__(self):
        as_pytree(type(next(iter(self.presets.values()))))

    @property
    def behavior_need(self) -> Need | None:
        """The estimate of behaviors that it needs."""
        return next((n for n in self.needs if n.learner != "dynamics"), None)

    @property
    def fits_behavior_set(self) -> bool:
        """Whether k matters."""
        need = self.behavior_need
        return need is not None and need.learner == "vq" and not need.only_given

    def preset_before(self, preset: str) -> str:
        """For what is trained before; presets of data sets are the paper's, varied."""
        return preset if preset == "default" else "paper"
