"""Models that predict one variable after the other, against float64 computations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import double, log_prob

from manyhands.dynamics import autoregressive as ar
from manyhands.dynamics.chain import Chain
from manyhands.dynamics.prediction import Prediction
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.nn.distributions import TanhNormal
from manyhands.training.replicas import pick
from manyhands.types import Batch, Box

STATES, ACTIONS, ROWS = 3, 2, 6
LOW, HIGH = np.array([-1.0, -2.0]), np.array([1.0, 4.0])
BOX = Box(jnp.asarray(LOW, jnp.float32), jnp.asarray(HIGH, jnp.float32))


@partial(jax.jit, static_argnums=range(5))
def start(*sizes: int) -> Chain:
    return Chain.init(jax.random.key(0), *sizes)


@jax.jit
def proposed(proposer: ar.Proposer, observations: jax.Array) -> TanhNormal:
    return proposer(observations, BOX)


@jax.jit
def predicted(member: ar.Member, batch: Batch) -> Prediction:
    return member(batch.observations, batch.actions)


def noisy(tree, seed: int):
    random = np.random.default_rng(seed)

    def move(x):
        return jnp.asarray(x + 0.2 * random.normal(size=x.shape), jnp.float32)

    return jax.tree.map(move, tree)


@pytest.fixture(scope="module")
def batch() -> Batch:
    random = np.random.default_rng(0)
    columns = [
        random.normal(size=(ROWS, STATES)),
        random.uniform(0.9 * LOW, 0.9 * HIGH, (ROWS, ACTIONS)),
        random.normal(size=ROWS),
        random.normal(size=(ROWS, STATES)),
        np.zeros(ROWS),
    ]
    arrays = [jnp.asarray(x, jnp.float32) for x in columns]
    return Batch(*arrays, trajectory=jnp.zeros(ROWS, jnp.int32))


def by_hand(chain, order, x, link) -> tuple[np.ndarray, np.ndarray]:
    """Means and log-deviations by variable, in float64, head by head."""
    h = np.maximum(double(x) @ double(chain.first.w) + double(chain.first.b), 0)
    latent = h @ double(chain.latent.w) + double(chain.latent.b)
    many, means, log_stds = len(order), {}, {}
    for place, variable in enumerate(order):
        seen = np.stack([link(means[v]) for v in order[:place]], 1) if place else None
        inputs = latent if seen is None else np.hstack([latent, seen])
        h = inputs
        for number, layer in enumerate(chain.heads):
            w, b = double(layer.w[place]), double(layer.b[place])
            # Heads are padded: what they must not see is not there at all here.
            h = h @ (w[: inputs.shape[1]] if number == 0 else w) + b
            h = h if number == 2 else np.maximum(h, 0)
        means[int(variable)] = h[:, 0]
        log_stds[int(variable)] = -5 + 2.5 * (np.tanh(h[:, 1]) + 1)
    pairs = [(means[v], log_stds[v]) for v in range(many)]
    mean, log_std = zip(*pairs)
    return np.stack(mean, axis=1), np.stack(log_std, axis=1)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_actions_agree_with_float64(batch, order):
    chain = noisy(start(STATES, ACTIONS, 2 * ACTIONS, 8, 6), seed=1)
    found = proposed(ar.Proposer(chain, jnp.array(order)), batch.observations)
    mean, log_std = by_hand(chain, order, batch.observations, np.tanh)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.log_std, log_std, rtol=1e-4, atol=1e-5)
    # The loss: its likelihood, less a price on the kernels.
    one = jax.tree.map(lambda x: x[None], chain)
    loss, _ = jax.jit(ar.actions_loss)(one, jnp.array([order]), batch, BOX)
    expected = log_prob(
        batch.actions, mean, log_std, (LOW + HIGH) / 2, (HIGH - LOW) / 2
    ).mean()
    kernels = [chain.first.w, chain.latent.w, *(layer.w for layer in chain.heads)]
    price = 1e-5 * sum(np.sum(double(w) ** 2) for w in kernels)
    assert float(loss) == pytest.approx(price - expected, rel=1e-4)


@pytest.mark.parametrize("changes", [True, False])
def test_dynamics_agree_with_float64(batch, changes):
    settings = Settings(
        "autoregressive", 3, 3, 8, 1, 4, 0, 1e-3, head_width=6, changes=changes
    )
    begin = jax.jit(lambda key: ar.start(key, STATES, ACTIONS, settings))
    state = begin(jax.random.key(0))
    state = state._replace(chains=noisy(state.chains, seed=2))
    nothing = Inputs(jnp.zeros(STATES + ACTIONS), jnp.ones(STATES + ACTIONS))
    members = ar.members(state, nothing, settings)
    inputs = np.hstack([batch.observations, batch.actions])
    y = double(batch.next_observations)
    y = np.hstack([double(batch.rewards)[:, None], y])  # absolute
    total = 0.0
    for m in range(3):
        member = pick(members, m)
        order = np.asarray(member.order)
        assert order[-1] == 0  # the reward comes last
        mean, log_std = by_hand(member.chain, order, inputs, lambda x: x)
        said = predicted(member, batch)
        if changes:
            mean[:, 1:] += double(batch.observations)
        absolute = double(said.mean)
        absolute[:, 1:] += double(batch.observations)
        np.testing.assert_allclose(absolute, mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(said.log_std, log_std, rtol=1e-4, atol=1e-5)
        standard = (y - mean) / np.exp(log_std)
        likelihood = -0.5 * standard**2 - log_std - 0.5 * np.log(2 * np.pi)
        total -= likelihood.sum(axis=1).mean()
    chains = state.chains.tree()
    kernels = [chains.first.w, chains.latent.w, *(layer.w for layer in chains.heads)]
    total += 1e-5 * sum(np.sum(double(w) ** 2) for w in kernels)
    shared = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *x.shape)), batch)
    loss, _ = jax.jit(ar.loss, static_argnums=3)(chains, members.order, shared, changes)
    assert float(loss) == pytest.approx(total, rel=1e-4)


def test_a_head_starts_by_the_inputs_that_it_has():
    chain = start(4, 3, 2, 16, 32)
    w = np.asarray(chain.heads[0].w)  # [place, latent + variables, hidden]
    assert w.shape == (3, 5, 32)
    for place in range(3):
        bound = (6 / (2 + place + 32)) ** 0.5
        assert not w[place, 2 + place :].any()
        assert 0.9 * bound < np.abs(w[place, : 2 + place]).max() <= bound


def test_orders():
    assert ar.orders(3, 2).tolist() == [[0, 1, 2], [2, 1, 0]]
    every = ar.orders(3, 6)
    assert len(set(map(tuple, every))) == 6
    assert len(set(map(tuple, ar.orders(11, 6)))) == 6
    assert ar.orders(2, 3).tolist() == [[0, 1], [1, 0], [0, 1]]
    assert ar.orders(1, 2).tolist() == [[0], [0]]
    for order in ar.orders(11, 6):
        assert sorted(order) == list(range(11))


def test_gradients_run_through_what_was_predicted_before(batch):
    """The second head's likelihood moves the first one's mean."""
    chain = noisy(start(STATES, ACTIONS, 4, 8, 6), seed=1)

    def second(chain):
        mean, _ = chain(batch.observations, jnp.tanh)
        return mean[:, 1].sum()

    gradient = jax.jit(jax.grad(second))(chain)
    assert float(jnp.abs(gradient.heads[2].w[0, :, 0]).max()) > 1e-4
