"""How far Q moves a policy: known for Q-functions that are linear before the tanh."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands.algos.actor_terms import value_within_reach
from manyhands.nn.distributions import TanhNormal, gaussian_kl

NOISE = jax.random.normal(jax.random.key(0), (2000, 2))
LOG_STD = jnp.log(jnp.array([0.02, 0.3]))
CENTER, SCALE = jnp.array([0.5, -1.0]), jnp.array([1.0, 3.0])


def gaussian(mean) -> TanhNormal:
    rows = (len(NOISE), 2)
    return TanhNormal(
        jnp.broadcast_to(mean, rows), jnp.broadcast_to(LOG_STD, rows), CENTER, SCALE
    )


B = gaussian(jnp.array([0.3, -0.4]))


def loss(mean, reward_scale, reward_shift, weight, reach):
    """The mean's: D less a Q that rises by `reward_scale` for each deviation of b."""
    pi = gaussian(mean)

    def q_of(action):
        u = jnp.arctanh((action - CENTER) / SCALE)
        steps = (u - B.mean) / jnp.exp(LOG_STD)
        return reward_shift + reward_scale * (0.6 * steps[:, 0] - 0.8 * steps[:, 1])

    action, _ = pi.sample_with(NOISE)
    value, q = value_within_reach(q_of, action, B, weight, reach)
    return gaussian_kl(pi, B).mean() - value, q


@jax.jit
def climbed(*how):
    def step(mean, _):
        slope = jax.grad(loss, has_aux=True)(mean, *how)[0]
        return mean - 0.5 * jnp.exp(2 * LOG_STD) * slope, None

    return jax.lax.scan(step, B.mean[0], None, length=60)[0]


@pytest.mark.parametrize("reward_scale", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("reward_shift", [0.0, 700.0])
def test_it_goes_as_far_as_it_may(reward_scale, reward_shift):
    """In the behavior's deviations, whatever the units of rewards."""
    mean = climbed(reward_scale, reward_shift, 1e9, 0.3)
    moved = (mean - B.mean[0]) / jnp.exp(LOG_STD)
    np.testing.assert_allclose(moved, 0.3 * np.array([0.6, -0.8]), rtol=0.02)
    d = gaussian_kl(gaussian(mean), B).mean()
    np.testing.assert_allclose(d, 0.3**2 / 2, rtol=0.05)


def test_it_goes_less_far_where_there_is_little_to_gain():
    """A step that changes Q by a thousandth, with a weight of 100: a tenth of one."""
    mean = climbed(1.0, 1000.0, 100.0, 0.5)
    moved = (mean - B.mean[0]) / jnp.exp(LOG_STD)
    np.testing.assert_allclose(moved, 0.1 * np.array([0.6, -0.8]), rtol=0.02)


def test_the_loss_has_qs_value():
    value, q = loss(B.mean[0], 1.0, 1000.0, 100.0, 1e9)
    np.testing.assert_allclose(q.mean(), 1000, atol=0.1)
    np.testing.assert_allclose(value, -100, rtol=1e-5)  # and D is 0
