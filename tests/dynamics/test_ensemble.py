"""The probabilistic ensemble against float64 computations and a world that is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import double, slope

from manyhands.dynamics import ensemble
from manyhands.dynamics.fit import Dynamics, Job, fit, gained
from manyhands.dynamics.prediction import disagreement, predict_all, widest
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.nn.optimizer import Trained
from manyhands.training.replicas import pick
from manyhands.types import Batch

MEMBERS, ROWS, STATES, ACTIONS = 2, 5, 3, 2
SETTINGS = Settings("gaussian", MEMBERS, 1, 8, 10, ROWS, 5, 1e-3, learn_ending=True)


@pytest.fixture(scope="module")
def params() -> ensemble.Params:
    """With bounds that are felt, and no zero anywhere."""
    start = jax.jit(lambda key: ensemble.start(key, STATES, ACTIONS, SETTINGS))
    params = start(jax.random.key(0)).params.tree()
    random = np.random.default_rng(0)
    moved = jax.tree.map(
        lambda x: np.asarray(x) + 0.3 * random.normal(size=x.shape), params
    )
    bounds = jnp.linspace(-1, 1, STATES + 1)
    params = ensemble.Params(moved.nets, bounds + 0.5, bounds - 2)
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    random = np.random.default_rng(1)
    return Inputs.of(random.normal(2, 3, (9, STATES)), random.normal(size=(9, ACTIONS)))


@pytest.fixture(scope="module")
def batch() -> Batch:
    """Of its own for every member."""
    random = np.random.default_rng(2)
    shape = MEMBERS, ROWS
    columns = [
        random.normal(2, 3, (*shape, STATES)),
        random.normal(size=(*shape, ACTIONS)),
        random.normal(size=shape),
        random.normal(2, 3, (*shape, STATES)),
        np.arange(MEMBERS * ROWS).reshape(shape) % 3 == 0,
    ]
    arrays = [jnp.asarray(x, jnp.float32) for x in columns]
    return Batch(*arrays, trajectory=jnp.zeros(shape, jnp.int32))


# The same in NumPy, float64, written from the equations


def outputs(params, inputs: Inputs, m: int, s, a) -> tuple[np.ndarray, np.ndarray]:
    h = (np.hstack([double(s), double(a)]) - double(inputs.center)) / double(
        inputs.scale
    )
    nets = params.nets
    for layer in nets.hidden:
        h = h @ double(layer.w[m]) + double(layer.b[m])
        h = h / (1 + np.exp(-h))
    mean = h @ double(nets.mean.w[m]) + double(nets.mean.b[m])
    v = h @ double(nets.log_variance.w[m]) + double(nets.log_variance.b[m])
    v = double(params.highest) - np.log1p(np.exp(double(params.highest) - v))
    return mean, double(params.lowest) + np.log1p(np.exp(v - double(params.lowest)))


def reference(params: ensemble.Params, batch: Batch, inputs: Inputs) -> float:
    total = 0.01 * np.sum(double(params.highest) - double(params.lowest))
    for m in range(MEMBERS):
        s, a, r, following, terminal = (double(x[m]) for x in batch[:5])
        y = np.hstack([r[:, None], following - s])
        mean, v = outputs(params, inputs, m, s, a)
        total += np.mean((mean - y) ** 2 / np.exp(v) + v)
        h = (following - double(inputs.center)[:STATES]) / double(inputs.scale)[:STATES]
        ending = params.nets.ending.layers
        for number, layer in enumerate(ending):
            h = h @ double(layer.w[m]) + double(layer.b[m])
            h = h if number == len(ending) - 1 else np.maximum(h, 0)
        p = 1 / (1 + np.exp(-h[:, 0]))
        total -= np.mean(terminal * np.log(p) + (1 - terminal) * np.log(1 - p))
    kernels = [layer.w for layer in params.nets.hidden]
    kernels += [params.nets.mean.w, params.nets.log_variance.w]
    weights = 2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4, 1e-4
    return total + sum(c * np.sum(double(w) ** 2) / 2 for c, w in zip(weights, kernels))


def test_the_loss_agrees_with_float64(params, batch, inputs):
    loss, metrics = jax.jit(ensemble.loss)(params, batch, inputs)
    assert float(loss) == pytest.approx(reference(params, batch, inputs), rel=1e-5)
    assert float(metrics["dynamics/highest"]) == pytest.approx(0.5, rel=1e-5)


def test_its_gradient_agrees_with_differences_of_float64(params, batch, inputs):
    gradient, _ = jax.jit(jax.grad(ensemble.loss, has_aux=True))(params, batch, inputs)
    leaves, structure = jax.tree.flatten(params)
    random = np.random.default_rng(3)
    for number, (leaf, found) in enumerate(zip(leaves, jax.tree.leaves(gradient))):
        index = tuple(random.integers(n) for n in leaf.shape)

        def at(array: np.ndarray, number: int = number) -> float:
            moved = [double(x) for x in leaves]
            moved[number] = array
            return reference(jax.tree.unflatten(structure, moved), batch, inputs)

        expected = slope(at, double(leaf), index)
        assert float(found[index]) == pytest.approx(expected, rel=2e-3, abs=2e-5)


def test_members_say_what_they_learnt_and_agree_with_float64(params, batch, inputs):
    state = ensemble.State(Trained.of(params))
    members = ensemble.members(state, inputs, SETTINGS)
    s, a = batch.observations[0], batch.actions[0]
    said = jax.jit(predict_all)(members, s, a)
    expected = [outputs(params, inputs, m, s, a) for m in range(MEMBERS)]
    for m, (mean, v) in enumerate(expected):
        np.testing.assert_allclose(said.mean[m], mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(said.log_std[m], v / 2, rtol=1e-4, atol=1e-5)
    apart = np.linalg.norm(expected[0][0] - expected[1][0], axis=1)
    np.testing.assert_allclose(disagreement(said.mean), apart, rtol=1e-4)
    lengths = [np.linalg.norm(np.exp(v / 2), axis=1) for _, v in expected]
    np.testing.assert_allclose(widest(said.log_std), np.max(lengths, 0), rtol=1e-4)


def test_every_member_learns_from_rows_of_its_own(params, batch, inputs):
    """Swapping the rows of two members swaps nothing else."""
    gradient = jax.jit(jax.grad(lambda p, b: ensemble.loss(p, b, inputs)[0]))
    other = batch._replace(rewards=batch.rewards.at[1].add(1.0))
    one, two = gradient(params, batch).nets, gradient(params, other).nets
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        assert np.array_equal(a[0], b[0])
    assert not np.allclose(one.mean.b[1], two.mean.b[1])


@pytest.mark.parametrize("shift", [-60.0, 0.0, 60.0])  # by the units of targets
def test_a_likelihood_is_better_by_nats_and_an_error_by_a_share(shift):
    known = jnp.array([jnp.inf, jnp.inf, 1.0, 1.0, 1.0])
    error = jnp.array([9.0, jnp.nan, 0.95, 0.93, jnp.nan])
    by_nats = gained(error + shift, known + shift, "likelihood", targets=6)
    assert by_nats.tolist() == [True, False, False, True, False]
    by_share = gained(error * 0.1, known * 0.1, "error", targets=6)
    assert by_share.tolist() == [True, False, True, True, False]
    assert gained(jnp.array([0.995]), jnp.ones(1), "error", 6).tolist() == [False]


# A world that is known


@pytest.fixture(scope="module")
def learnt(linear) -> list[Dynamics]:
    likely = dict(judge="likelihood", learn_ending=True)
    settings = Settings("gaussian", 3, 2, 32, 6000, 128, 2, 3e-3, **likely)

    def same(x: np.ndarray) -> np.ndarray:
        return x

    return fit([(linear.data, same)], [Job(0, 0, settings)], None, lambda *_: None, 1e9)


def test_it_learns_mean_and_deviation_of_a_linear_world(linear, learnt):
    best = pick(learnt[0].members, learnt[0].elites)
    random = np.random.default_rng(5)
    s, a = random.normal(size=(2000, 2)), random.uniform(-1, 1, (2000, 1))
    said = jax.jit(predict_all)(best, jnp.float32(s), jnp.float32(a))
    mean, deviation = linear.mean(s, a), linear.deviation(a)
    found = np.asarray(said.mean.mean(axis=0))
    # In units of the noise; the worst of the targets.
    error = np.sqrt(np.mean(((found - mean) / deviation) ** 2, axis=0))
    assert error.max() < 0.3
    ratio = np.exp(np.asarray(said.log_std)) / deviation
    np.testing.assert_allclose(np.median(ratio, axis=(0, 1)), 1, atol=0.15)
    # The noise that grows with the action is told from the others.
    wide, narrow = np.abs(a[:, 0]) > 0.8, np.abs(a[:, 0]) < 0.2
    std = np.exp(np.asarray(said.log_std))[..., 2]
    assert std[:, wide].mean() > 1.7 * std[:, narrow].mean()


def test_its_report_is_calibrated_and_knows_the_data(learnt):
    about = learnt[0].report
    assert about["heldout"]["rows"] == 1000
    assert about["heldout"]["within_one_deviation"] == pytest.approx(0.683, abs=0.06)
    assert about["heldout"]["within_two_deviations"] == pytest.approx(0.954, abs=0.04)
    # What noise leaves to explain: 1 - noise / (noise + signal).
    assert 0.75 < about["heldout"]["explained_reward"] < 0.88
    assert len(about["heldout"]["squared_error"]) == 3
    likelihood = about["heldout"]["log_prob"]
    assert about["elites"] == list(np.argsort(likelihood)[::-1][:2])
    # It stopped by itself.
    assert about["updates"] < 6000
    quantiles = np.asarray(learnt[0].quantiles, np.float64)
    assert np.array_equal(quantiles, np.sort(quantiles))


def test_it_learns_how_often_a_world_ends(learnt):
    """One in a hundred here, wherever one is."""
    best = pick(learnt[0].members, learnt[0].elites)
    s = jnp.asarray(np.random.default_rng(6).normal(size=(500, 2)), jnp.float32)
    p = jax.nn.sigmoid(jax.vmap(lambda member: member.ending(s))(best))
    assert 0.002 < float(p.mean()) < 0.03
