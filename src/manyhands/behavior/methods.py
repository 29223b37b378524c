"""The estimators behind one interface: what the fitting loop needs of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float, Int

from manyhands.behavior import gaussian, mixture, vae, vq, vq_learning
from manyhands.behavior.options import Options
from manyhands.types import Box, Key, Pytree


@dataclass(frozen=True)
class Method:
    """A way to estimate behaviors.

    `model` is the part of a state that answers questions; it is what a run keeps.
    """

    # key, observation size, action size, codes, trajectories, options -> state
    init: Callable[[Key, int, int, int, int, Options], Pytree]
    model: Callable[[Pytree], Pytree]
    # model, box, observations, actions -> [row, code]
    log_probs: Callable[[Any, Box, Array, Array], Float[Array, "row code"]]
    # model, box, observations, codes, key -> actions
    sample: Callable[[Any, Box, Array, Int[Array, " row"], Key], Array]


METHODS = {
    "vq": Method(
        vq_learning.start, lambda s: s.policy.tree(), vq.code_log_probs, vq.sample_codes
    ),
    "gaussian": Method(
        gaussian.start, lambda s: s.model.tree(), gaussian.log_probs, gaussian.sample
    ),
    "vae": Method(vae.start, lambda s: s.model.tree(), vae.log_probs, vae.sample),
    "mixture": Method(
        mixture.start, lambda s: s.model.tree().b, mixture.log_probs, mixture.sample
    ),
}
