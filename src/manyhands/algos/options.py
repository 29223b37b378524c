"""Hyper-parameters of learners: floats are traced, the rest decides the program."""

from dataclasses import dataclass, fields
from typing import TypeVar, dataclass_transform

import jax

from manyhands.hyper import COUNT, Range, option

Class = TypeVar("Class", bound=type)
WHOLE = Range(0)


@dataclass_transform(frozen_default=True)
def learner_options(cls: Class) -> Class:
    """A dataclass of options that is a pytree.

    Its floats are leaves, so they may differ between replicas that train together;
    everything else is structure, known when the program is compiled.
    """
    cls = dataclass(frozen=True)(cls)
    floats = [f.name for f in fields(cls) if f.type is float]
    others = [f.name for f in fields(cls) if f.type is not float]

    def flatten(options):
        return (
            tuple(getattr(options, name) for name in floats),
            tuple(getattr(options, name) for name in others),
        )

    def unflatten(structure, leaves):
        # Not by the constructor: leaves are then arrays, or nothing at all.
        options = object.__new__(cls)
        vars(options).update(zip(floats, leaves), **dict(zip(others, structure)))
        return options

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


@dataclass(frozen=True)
class Common:
    """What every learner has."""

    steps: int = option(200_000, "Updates of the policy.", WHOLE)
    batch_size: int = option(256, "Transitions per update.", COUNT)
    standardise: bool = option(
        True, "Scale every observation to mean 0 and deviation 1 first."
    )
