"""Assigners: who made which trajectory, without labels, in seconds on one core.

`fit_who` picks the assigner by gates that need no labels:

- `step_graph`: where single steps betray their source, neighboring steps vote;
- `linking`: where the context of a trajectory (what was done) is declared, or can be
  read from its path, small clusters inside each context are linked across contexts;
- `views` and `whiten`: otherwise, clusters of noise-whitened features.
"""

from manyhands.assign.assigner import Assignment, fit_who
from manyhands.assign.inputs import Inputs, prepare

__all__ = ["Assignment", "Inputs", "fit_who", "prepare"]
