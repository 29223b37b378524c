"""In NumPy, policies act as the agents' networks do in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from manyhands.agents import acting
from manyhands.runs import flatten
from zoo import explorer, sac


def test_samples_are_what_the_agents_network_gives_and_have_their_density():
    rng = np.random.default_rng(0)
    net = sac.init(jax.random.key(0), 5, 2, 16).actor.tree().net
    # Far from 0, where tanh is flat: 1 - tanh(u)^2 vanishes in float32.
    net = jax.tree.map(lambda x: 20 * x, net)
    layers = [(np.asarray(layer.w), np.asarray(layer.b)) for layer in net.layers]
    for _ in range(50):
        seen, noise = 3 * rng.normal(size=5), rng.normal(size=2)
        seen, noise = seen.astype(np.float32), noise.astype(np.float32)
        action, log_prob = acting.sample(layers, seen, noise)
        expected = sac.sample(net, jnp.asarray(seen), jnp.asarray(noise), jnp.ones(2))
        np.testing.assert_allclose(action, expected[0], atol=1e-6)
        np.testing.assert_allclose(log_prob, expected[1], rtol=1e-4, atol=1e-4)
        assert np.isfinite(log_prob)


def test_a_policy_without_its_padding_is_the_same_function(tmp_path):
    keys = jax.random.split(jax.random.key(0), 3)
    nets = jax.vmap(lambda key: sac.init(key, 5, 2, 16).actor.tree().net)(keys)
    nets = jax.tree.map(lambda x: 5 * x, nets)
    save_file(flatten(nets), tmp_path / "policies")
    rng = np.random.default_rng(0)
    for agent in range(3):
        net = jax.tree.map(lambda x, agent=agent: x[agent], nets)
        for observations, actions in ((5, 2), (3, 1)):
            layers = explorer.read_policy(
                tmp_path / "policies", agent, observations, actions
            )
            seen = np.zeros(5, np.float32)
            seen[:observations] = rng.normal(size=observations)
            expected = sac.distribution(net, jnp.asarray(seen))
            mean, log_std = acting.distribution(layers, seen[:observations])
            np.testing.assert_allclose(mean, expected.mean[:actions], atol=1e-5)
            np.testing.assert_allclose(log_std, expected.log_std[:actions], atol=1e-5)
