"""Parameters that learn: Adam as Keras does it, on bundled parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from manyhands.nn.bundle import Bundle
from manyhands.types import Pytree

BETA1, BETA2 = 0.9, 0.999
EPSILON = 1e-7  # "epsilon hat": added before the bias correction, unlike optax's


class Trained(NamedTuple):
    """Parameters with the moments of their gradients."""

    params: Bundle
    steps: Int[Array, "*lead"]
    mean: Bundle
    square: Bundle

    @staticmethod
    def of(tree: Pytree) -> "Trained":
        """Before the first step."""
        params = Bundle.of(tree)
        # Two arrays of zeros: these buffers are donated, and XLA refuses to donate one
        # twice.
        mean, square = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return Trained(params, jnp.zeros((), jnp.int32), mean, square)

    def tree(self) -> Pytree:
        return self.params.tree()

    def step(
        self,
        loss: Callable[..., tuple[Array, Any]],
        rate: Float[Array, ""] | float,
        *args: Any,
    ) -> "tuple[Trained, Any]":
        """One step down the gradient of a loss, and what else the loss returns.

        Args:
            loss: parameters, *args -> loss, more (metrics)
            rate: of all parameters.
        """
        gradient, more = jax.grad(loss, has_aux=True)(self.tree(), *args)
        return self.descend(gradient, for_all(rate, gradient)), more

    def descend(
        self, gradient: Pytree, rates: Pytree, decay: Pytree | None = None
    ) -> "Trained":
        """One step.

        Args:
            gradient: a tree like `tree()`.
            rates: a learning rate for every leaf.
            decay: a weight decay for every leaf, in units of the rate (AdamW's).
        """
        decay = for_all(0.0, gradient) if decay is None else decay
        steps = self.steps + 1
        t = steps.astype(jnp.float32)
        correction = jnp.sqrt(1 - BETA2**t) / (1 - BETA1**t)
        g = Bundle.of(gradient)
        mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, self.mean, g)
        square = jax.tree.map(
            lambda v, g: BETA2 * v + (1 - BETA2) * g**2, self.square, g
        )

        def move(p, m, v, rate, decay):
            return p - rate * (correction * m / (jnp.sqrt(v) + EPSILON) + decay * p)

        spread = self.params.spread(rates), self.params.spread(decay)
        params = jax.tree.map(move, self.params, mean, square, *spread)
        return Trained(params, steps, mean, square)


def for_all(value: Array | float, tree: Pytree) -> Pytree:
    """The same number for every leaf."""
    return jax.tree.map(lambda _: value, tree)


def for_kernels(value: Array | float, tree: Pytree) -> Pytree:
    """A number for every matrix, and 0 for the rest: a bias should not decay."""
    return jax.tree.map(lambda leaf: value if leaf.ndim > 1 else 0.0, tree)


def polyak(target: Bundle, online: Trained, rate: Float[Array, ""] | float) -> Bundle:
    """Targets move a share of the way to the online parameters."""
    return jax.tree.map(lambda t, p: t + rate * (p - t), target, online.params)
