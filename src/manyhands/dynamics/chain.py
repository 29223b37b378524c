"""Networks that predict one variable after the other.

A trunk makes a latent vector z of the input. With y_j what later heads see of variable
j, and A_i, B_i, C_i the layers of head i,

    h_i = relu(z A_i[:z] + sum_{j<i} y_j A_i[j] + a_i),   k_i = relu(h_i B_i + b_i),
    (mean_i, raw_i) = k_i C_i + c_i,                      y_i = link(mean_i)

Heads wait for each other, and on a GPU their many kernels take time, and so does what
these read and write. So what does not have to wait is done for all heads at once where
nothing is copied for it: the products with z before the first, and the gradients that
are sums after the last. The gradients of A and B are products of every head's own: one
for all heads would need all h and k, and their gradients, side by side.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from manyhands.nn import draws
from manyhands.nn.networks import Dense
from manyhands.types import Key

LOWEST_LOG_STD = -5.0  # and the highest is 0

Link = Callable[[Array], Array]
Heads = tuple[Dense, Dense, Dense]
Outputs = tuple[Float[Array, "row variable"], Float[Array, "row variable"]]


class Chain(eqx.Module):
    """A trunk, and a head of three layers for every variable in turn."""

    first: Dense
    latent: Dense
    heads: tuple[Dense, ...]  # with a leading axis of variables

    @staticmethod
    def init(
        key: Key, inputs: int, variables: int, latent: int, width: int, head: int
    ) -> "Chain":
        sizes = [latent + variables, head, max(1, head // 2), 2]
        shapes = [(variables, *shape) for shape in pairwise(sizes)]
        numbers = draws.uniform(key, [(inputs, width), (width, latent), *shapes])
        first, second, *heads = numbers
        joined, *others = map(jax.vmap(draws.glorot), heads)
        # Glorot's bound is by the inputs that there are; the rest stays unread.
        more = jnp.sqrt((sizes[0] + head) / (latent + jnp.arange(variables) + head))
        there = _read(latent, variables)
        joined = Dense(jnp.where(there, joined.w * more[:, None, None], 0), joined.b)
        return Chain(draws.glorot(first), draws.glorot(second), (joined, *others))

    def __call__(
        self, x: Float[Array, "*lead inputs"], link: Link
    ) -> tuple[Float[Array, "*lead variable"], Float[Array, "*lead variable"]]:
        """Means and log-deviations by their place in the order.

        Args:
            link: how later variables see an earlier one's mean, number by number.
        """
        latent = self.latent(self.first.relu(x))
        first, second, last = self.heads
        rows = latent.reshape(-1, latent.shape[-1])
        found: Any = in_turn(link, rows, (first, second, last))
        mean, raw = (y.reshape(*x.shape[:-1], -1) for y in found)
        return mean, LOWEST_LOG_STD * (1 - jnp.tanh(raw)) / 2


def _read(latent: int, variables: int) -> Array:
    """[variable, input, 1] which inputs a head has: z, and the variables before it."""
    place = jnp.arange(variables)[:, None, None]
    return jnp.arange(latent + variables)[:, None] < latent + place


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def in_turn(link: Link, z: Float[Array, "row latent"], heads: Heads) -> Outputs:
    """Means and raw deviations of all variables, by their place in the order."""
    return _forward(link, z, heads)[0]


class Saved(NamedTuple):
    """For the gradient. Lists go by the variable."""

    x: Float[Array, "row input"]  # z and all y
    means: Float[Array, "row variable"]
    h: list[Array]
    k: list[Array]
    A: list[Array]
    B: list[Array]
    last: Dense


def _forward(link: Link, z: Array, heads: Heads) -> tuple[Outputs, Saved]:
    first, second, last = heads
    many, size = len(last.b), z.shape[-1]
    A, B = _apart(first.w), _apart(second.w)
    from_z = _for_heads(z, many) @ first.w[:, :size]
    means, raws, ys, hs, ks = [], [], [], [], []
    for i in range(many):
        h = from_z[i] + first.b[i]
        if ys:  # so few are no work for a product, and need no kernel of their own
            y = jnp.stack(ys, axis=-1)
            h = h + (y[:, :, None] * A[i][size : size + i]).sum(axis=1)
        h = once(jax.nn.relu(h))
        k = jnp.maximum(h @ B[i], -second.b[i]) + second.b[i]  # as in `relu_layer`
        mean, raw = ((k * last.w[i, :, o]).sum(axis=-1) + last.b[i, o] for o in (0, 1))
        for all_of, one in zip(
            (means, raws, ys, hs, ks), (mean, raw, link(mean), h, k)
        ):
            all_of.append(one)
    mean, raw, y = (jnp.stack(one, axis=-1) for one in (means, raws, ys))
    saved = Saved(jnp.concatenate([z, y], axis=-1), mean, hs, ks, A, B, last)
    return (mean, raw), saved


def _backward(link: Link, saved: Saved, given: Outputs) -> tuple[Array, Heads]:
    x, means, hs, ks, A, B, last = saved
    many = len(A)
    size = x.shape[-1] - many
    # With a 1 among the inputs the bias's gradient is a row of the product.
    inputs = jnp.concatenate([x, jnp.ones((len(x), 1))], axis=-1)
    by_x, by_mean, by_k, by_A, by_B = jnp.zeros_like(x), [], [], [], []
    for i in reversed(range(many)):
        from_later = _through(link, means[:, i], by_x[:, size + i])
        m, raw = given[0][:, i] + from_later, given[1][:, i]
        k = m[:, None] * last.w[i, :, 0] + raw[:, None] * last.w[i, :, 1]
        k = once(jnp.where(ks[i] > 0, k, 0.0))
        h = jnp.where(hs[i] > 0, k @ B[i].T, 0.0)
        # Inputs that pass for its own: products that share theirs would become one,
        # and all h be copied to lie side by side.
        h, own = once((h, inputs))
        by_x = by_x + h @ A[i].T
        for all_of, one in zip(
            (by_mean, by_k, by_A, by_B), (m, k, own.T @ h, hs[i].T @ k)
        ):
            all_of.insert(0, one)
    by_A = _together(by_A)
    by_heads = (
        Dense(jnp.where(_read(size, many), by_A[:, :-1], 0), by_A[:, -1]),
        Dense(_together(by_B), jnp.stack(by_k).sum(axis=1)),
        _by_last(ks, (jnp.stack(by_mean), given[1].T)),
    )
    return by_x[:, :size], by_heads


def _by_last(ks: list[Array], by_out: tuple[Array, Array]) -> Dense:
    """Of C and c, as sums: for a product all k would be copied."""
    K = jnp.stack(ks)
    by_w = [(K * one[:, :, None]).sum(axis=1) for one in by_out]
    by_b = [one.sum(axis=1) for one in by_out]
    return Dense(jnp.stack(by_w, axis=-1), jnp.stack(by_b, axis=-1))


in_turn.defvjp(_forward, _backward)


def once(x: Any) -> Any:
    """Written to memory as it is: the compiler would compute it anew for every reader,
    and write down more of what it computes it from."""
    return jax.lax.optimization_barrier(x)


def _through(link: Link, x: Array, gradient: Array) -> Array:
    return jax.vjp(link, x)[1](gradient)[0]


def _apart(w: Float[Array, "variable inputs outputs"]) -> list[Array]:
    """Head by head."""
    return [once(w[i]) for i in range(len(w))]


def _together(parts: list[Array]) -> Float[Array, "variable inputs outputs"]:
    """Along an axis that is there: with `jnp.stack` the compiler would put heads before
    replicas, and Adam's moments would be copied to lie like that, and back."""
    return jnp.concatenate(parts).reshape(len(parts), *parts[0].shape)


def _for_heads(x: Float[Array, "row inputs"], many: int) -> Array:
    """The same rows for each, as an array of its own (`critics.for_members`)."""
    return once(jnp.broadcast_to(x, (many, *x.shape)))
