"""manyhands: behavior estimation and offline RL from data that many hands collected."""

import importlib
from typing import TYPE_CHECKING, Any

from manyhands.envs import register
from manyhands.version import __version__

if TYPE_CHECKING:
    from manyhands.algos.evaluate import evaluate
    from manyhands.algos.policy import Policy, load_policy
    from manyhands.algos.train import train
    from manyhands.behavior.estimate import Behavior
    from manyhands.behavior.fit import fit
    from manyhands.data.mix import concatenate
    from manyhands.data.trajectories import Trajectories
    from manyhands.datasets import load, make, save
    from manyhands.errors import UserError
    from manyhands.report.html_page import write_report

# Imported when first asked for: `manyhands --help` should not wait for JAX.
_HOME = {
    "Policy": "manyhands.algos.policy",
    "evaluate": "manyhands.algos.evaluate",
    "load_policy": "manyhands.algos.policy",
    "train": "manyhands.algos.train",
    "Behavior": "manyhands.behavior.estimate",
    "fit": "manyhands.behavior.fit",
    "Trajectories": "manyhands.data.trajectories",
    "UserError": "manyhands.errors",
    "concatenate": "manyhands.data.mix",
    "load": "manyhands.datasets",
    "make": "manyhands.datasets",
    "save": "manyhands.datasets",
    "write_report": "manyhands.report.html_page",
}
__all__ = [
    "Behavior",
    "Policy",
    "Trajectories",
    "UserError",
    "__version__",
    "concatenate",
    "evaluate",
    "fit",
    "load",
    "load_policy",
    "make",
    "save",
    "train",
    "write_report",
]

register()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'manyhands' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
