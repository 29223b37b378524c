import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from manyhands.nn.distributions import TanhNormal

MEAN, LOG_STD = np.array([0.3, -1.2]), np.array([-0.7, 0.4])
CENTER, SCALE = np.array([0.0, 1.0]), np.array([1.0, 2.5])


def distribution(**changes) -> TanhNormal:
    fields = {"mean": MEAN, "log_std": LOG_STD, "center": CENTER, "scale": SCALE}
    return TanhNormal(
        **{k: jnp.asarray(v, jnp.float32) for k, v in (fields | changes).items()}
    )


def log_prob_float64(action: np.ndarray) -> float:
    """The same density, worked out by the change of variables in float64."""
    z = (action - CENTER) / SCALE
    normal = stats.norm.logpdf(np.arctanh(z), MEAN, np.exp(LOG_STD))
    return float(np.sum(normal - np.log1p(-(z**2)) - np.log(SCALE)))


@pytest.mark.parametrize("z", [(0, 0), (0.5, -0.9), (-0.99, 0.999)])
def test_log_prob_equals_a_float64_version(z):
    action = CENTER + SCALE * np.array(z)
    got = distribution().log_prob(jnp.asarray(action, jnp.float32))
    assert got == pytest.approx(log_prob_float64(action), rel=2e-4)


def test_density_integrates_to_one():
    one = TanhNormal(*(jnp.array([v]) for v in (0.3, -0.7, 1.0, 2.5)))

    def density(a: float) -> float:
        return float(jnp.exp(one.log_prob(jnp.array([a], jnp.float32))))

    total, _ = integrate.quad(density, -1.5, 3.5, limit=200, epsabs=1e-4)
    assert total == pytest.approx(1, abs=1e-3)


def test_sample_returns_the_log_prob_of_its_action_and_has_the_right_median():
    keys = jax.random.split(jax.random.key(0), 20_000)
    actions, log_probs = jax.vmap(distribution().sample)(keys)
    again = jax.vmap(distribution().log_prob)(actions)
    np.testing.assert_allclose(log_probs, again, atol=2e-2)
    np.testing.assert_allclose(
        np.median(actions, axis=0), distribution().mode(), atol=0.03
    )


@pytest.mark.parametrize("bound", [-1.0, 1.0])
def test_at_the_bounds_log_prob_and_gradient_are_finite(bound):
    action = jnp.asarray(CENTER + SCALE * bound, jnp.float32)

    def loss(mean, log_std):
        return distribution(mean=mean, log_std=log_std).log_prob(action)

    value, gradients = jax.value_and_grad(loss, (0, 1))(
        jnp.asarray(MEAN, jnp.float32), jnp.asarray(LOG_STD, jnp.float32)
    )
    assert jnp.isfinite(value)
    assert all(jnp.isfinite(g).all() for g in gradients)
    _, far = distribution(mean=20 * bound * np.ones(2)).sample(jax.random.key(0))
    assert jnp.isfinite(far)


def test_gradient_of_log_prob_by_finite_differences():
    action = CENTER + SCALE * np.array([0.4, -0.2])
    got = jax.grad(
        lambda mean: distribution(mean=mean).log_prob(jnp.asarray(action, jnp.float32))
    )(jnp.asarray(MEAN, jnp.float32))
    # d/dmean log N(u; mean, std) = (u - mean) / std^2
    u = np.arctanh((action - CENTER) / SCALE)
    np.testing.assert_allclose(got, (u - MEAN) / np.exp(2 * LOG_STD), rtol=1e-4)
