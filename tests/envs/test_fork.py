"""The fork problem and its demonstrators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands import make
from manyhands.envs import fork
from manyhands.envs import fork_demonstrators as demonstrators

EPISODES = 1000
SETS = [*(f"fork-{k}" for k in range(1, 6)), "leap-2"]


def at(x: float, y: float, time: int = 0) -> fork.State:
    return fork.State(
        jnp.array([x, y]), jnp.array(fork.GOAL), jnp.array(time, jnp.int32)
    )


def outcomes(episodes: demonstrators.Episodes) -> tuple[float, float]:
    """Shares of episodes that reach the goal, and that hit the obstacle."""
    last = episodes.lengths() - 1
    final = episodes.next_observations[np.arange(len(last)), last]
    reached, hit = (
        jax.vmap(fork.reached_goal)(final),
        jax.vmap(fork.hit_obstacle)(final),
    )
    return float(reached.mean()), float(hit.mean())


def test_one_step_by_hand():
    after = fork.step(at(0.0, -0.9), jnp.array([0.5, 1.0]))
    np.testing.assert_allclose(after.state.position, [0.06, -0.78], atol=1e-6)
    distance = np.hypot(0.06, 0.85 + 0.78)
    assert after.reward == pytest.approx(1.75 - distance - 0.05, abs=1e-6)
    assert not after.terminal
    assert not after.timeout
    np.testing.assert_allclose(
        fork.observe(after.state), [0.06, -0.78, -0.06, 1.63], atol=1e-6
    )


def test_goal_and_obstacle_end_the_episode_and_the_horizon_times_out():
    there = fork.step(at(0.0, 0.65), jnp.array([0.0, 1.0]))
    assert there.terminal
    assert there.reward == pytest.approx(0.12 - 0.05 + 1, abs=1e-6)
    hit = fork.step(at(0.0, -0.4), jnp.array([0.0, 1.0]))
    assert hit.terminal
    assert hit.reward == pytest.approx(0.12 - 0.05 - 1, abs=1e-6)
    late = fork.step(at(0.8, 0.0, fork.HORIZON - 1), jnp.zeros(2))
    assert late.timeout
    assert not late.terminal
    there_late = fork.step(at(0.0, 0.65, fork.HORIZON - 1), jnp.array([0.0, 1.0]))
    assert there_late.terminal
    assert not there_late.timeout


def test_moves_of_the_leap_are_long():
    after = fork.step(at(0.0, -0.9), jnp.array([0.5, 1.0]), fork.LEAP)
    np.testing.assert_allclose(after.state.position, [0.2, -0.5], atol=1e-6)


def test_actions_and_positions_stay_in_their_bounds():
    wide = fork.step(at(0.95, 0.5), jnp.array([9.0, 0.0]))
    np.testing.assert_allclose(wide.state.position, [1.0, 0.5])


def test_reset_varies_start_and_goal_within_their_spread():
    states = jax.vmap(fork.reset)(jax.random.split(jax.random.key(0), 500))
    for x, spread in (
        (states.position[:, 0], fork.FORK.start_spread),
        (states.goal[:, 0], fork.GOAL_SPREAD),
    ):
        assert 0.9 * spread < float(jnp.abs(x).max()) <= spread
        assert abs(float(x.mean())) < 0.1 * spread
    assert abs(np.corrcoef(states.position[:, 0], states.goal[:, 0])[0, 1]) < 0.15


@pytest.mark.parametrize("name", demonstrators.DEMONSTRATORS)
def test_every_demonstrator_reaches_the_goal(name):
    who = demonstrators.DEMONSTRATORS[name]
    episodes = demonstrators.demonstrate(who, jax.random.key(7), EPISODES)
    reached, _ = outcomes(episodes)
    assert reached >= 0.95


@pytest.mark.parametrize("course", fork.COURSES.values(), ids=fork.COURSES)
@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_the_mean_action_of_the_pooled_demonstrators_hits_the_obstacle(k, course):
    crowd = demonstrators.stack(tuple(demonstrators.DEMONSTRATORS)[:k])
    episodes = demonstrators.rollout(
        lambda s, key: (demonstrators.pooled_mode(s, crowd), jnp.zeros(())),
        jax.random.key(7),
        EPISODES,
        course,
    )
    _, hit = outcomes(episodes)
    assert hit >= 0.8


def test_demonstrators_are_not_equally_good():
    data = make("fork-5")
    means = [data.returns[data.sources == code].mean() for code in range(5)]
    assert np.argmax(means) == 0
    assert max(means) - min(means) > 0.2


@jax.jit
def log_probs(who, observations, actions):
    def one(observation, action):
        return demonstrators.distribution(who, observation).log_prob(action)

    return jax.vmap(one)(observations, actions)


@pytest.mark.parametrize("name", SETS)
def test_data_sets_have_equal_shares_labels_and_exact_log_probs(name):
    k = int(name[-1])
    data = make(name, transitions=3000)
    assert data.source_names == tuple(demonstrators.DEMONSTRATORS)[:k]
    steps = np.bincount(data.sources, weights=data.lengths)
    assert np.all((steps >= 3000 / k) & (steps < 3000 / k + fork.HORIZON))
    ends = data.offsets[1:] - 1
    assert (data.terminals | data.timeouts)[ends].all()  # all are complete
    assert data.final_known.all()
    source = data.sources[data.trajectory]
    for code, who in enumerate(list(demonstrators.DEMONSTRATORS.values())[:k]):
        mine = source == code
        again = log_probs(who, data.observations, data.actions)
        # Inverting tanh in float32 close to the bound costs a few digits.
        error = np.abs(np.asarray(again) - data.log_probs)[mine]
        assert np.quantile(error, 0.99) < 0.01


def test_data_is_deterministic_given_the_seed_and_differs_between_seeds():
    one, same, other = (make("fork-3", 2000, seed) for seed in (1, 1, 2))
    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != other.fingerprint
    assert np.any(np.diff(one.sources) < 0)  # sources are mixed, not in blocks


def test_the_larger_set_contains_the_smaller_one():
    small, large = make("fork-1", 1000), make("fork-1", 8000)
    starts = {tuple(row) for row in large.observations[large.offsets[:-1]].tolist()}
    assert all(
        tuple(row) in starts for row in small.observations[small.offsets[:-1]].tolist()
    )


@pytest.mark.parametrize("course", fork.COURSES.values(), ids=fork.COURSES)
def test_gymnasium_environment_is_registered_and_agrees_with_the_pure_step(course):
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make(course.env_id)
    check_env(env.unwrapped, skip_render_check=True)
    observation, _ = env.reset(seed=3)
    state = at(*observation[:2].tolist())._replace(
        goal=jnp.asarray(observation[:2] + observation[2:])
    )
    for _ in range(fork.HORIZON):
        action = np.array([1.0, 0.3], np.float32)
        expected = fork.step(state, jnp.asarray(action), course)
        observation, reward, terminal, timeout, info = env.step(action)
        state = expected.state
        np.testing.assert_allclose(observation, fork.observe(state), atol=1e-6)
        assert reward == pytest.approx(float(expected.reward), abs=1e-6)
        assert (terminal, timeout) == (bool(expected.terminal), bool(expected.timeout))
        if terminal or timeout:
            break
    assert info == {"outcome": "timeout"}  # pyright: ignore
    again, _ = env.reset(seed=3)
    assert np.array_equal(again, env.reset(seed=3)[0])
