"""Episodes in real environments, by real processes."""

import itertools
import os
import signal
import time

import gymnasium
import numpy as np
import pytest

from manyhands import UserError
from manyhands.envs import processes
from manyhands.envs.pool import Pool
from manyhands.envs.rollout import episode_seeds, play, returns
from manyhands.envs.scores import normalized

HOPPER, CHEETAH = "Hopper-v5", "HalfCheetah-v5"


def noise(actions: int):
    """Uniform actions; seeds and times name the noise."""

    def act(observations, seeds, times):
        draws = [
            np.random.default_rng([int(s), int(t)]).uniform(-1, 1, actions)
            for s, t in zip(seeds, times)
        ]
        return np.array(draws, np.float32), np.full(len(draws), -actions * np.log(2))

    return act


def alone(env_id: str, act, seed: int, most: int = 10**9):
    """The same episode by Gymnasium itself, in this process."""
    env = gymnasium.make(env_id)
    observation, _ = env.reset(seed=seed)
    seen, done, rewards = [observation], [], []
    while len(done) < most:
        action = act(observation[None], [seed], [len(done)])[0][0]
        observation, reward, terminal, truncated, _ = env.step(action)
        seen.append(observation)
        done.append(action)
        rewards.append(reward)
        if terminal or truncated:
            break
    return np.array(seen), np.array(done), np.array(rewards), terminal, truncated


def test_episodes_are_those_of_the_environment():
    act, seeds = noise(3), list(itertools.islice(episode_seeds(5), 7))
    with Pool([HOPPER] * 3, workers=2) as pool:
        episodes = list(play(pool, act, seeds))
    assert [episode.seed for episode in episodes] == seeds
    for episode in episodes:
        seen, done, rewards, terminal, _ = alone(HOPPER, act, episode.seed)
        np.testing.assert_array_equal(episode.observations, seen.astype(np.float32))
        np.testing.assert_array_equal(episode.actions, done)
        np.testing.assert_array_equal(episode.rewards, rewards.astype(np.float32))
        assert (episode.terminal, episode.timeout) == (terminal, False)
        assert len(episode) == len(done)
        np.testing.assert_allclose(episode.log_probs, -3 * np.log(2), rtol=1e-6)


def test_returns_do_not_depend_on_the_number_of_workers():
    one, two, three = (
        returns(noise(3), HOPPER, 8, 1, workers) for workers in (1, 2, 3)
    )
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)
    assert len(set(one.tolist())) == 8


def test_a_time_limit_is_a_time_out_and_most_steps_is_neither():
    act = noise(6)
    with Pool([CHEETAH], workers=1) as pool:
        (whole,) = play(pool, act, [3])
        (cut,) = play(pool, act, [3], most_steps=20)
    assert (len(whole), whole.terminal, whole.timeout) == (1000, False, True)
    assert (len(cut), cut.terminal, cut.timeout) == (20, False, False)
    np.testing.assert_array_equal(whole.observations[:21], cut.observations)


def test_seeds_may_go_on_without_end():
    with Pool([HOPPER] * 2, workers=1) as pool:
        few = list(itertools.islice(play(pool, noise(3), itertools.count()), 5))
    assert [episode.seed for episode in few] == [0, 1, 2, 3, 4]


def test_environments_of_different_sizes_share_a_pool():
    with Pool([HOPPER, CHEETAH], workers=2) as pool:
        assert (pool.states, pool.actions) == (17, 6)
        seeds = [1, 2]
        hop, run = play(pool, noise(6), seeds, most_steps=5)
    assert (hop.observations.shape[1], run.observations.shape[1]) == (11, 17)
    seen, *_ = alone(HOPPER, lambda *a: (noise(6)(*a)[0][:, :3], None), 1, most=5)
    np.testing.assert_array_equal(hop.observations, seen.astype(np.float32))


def test_the_builtin_problem_is_played_too():
    totals = returns(noise(2), "manyhands/Fork-v0", 3, workers=1)
    assert np.isfinite(totals).all()


def test_a_process_that_is_killed_is_an_error_and_not_a_wait():
    with Pool([HOPPER] * 2, workers=2) as pool:
        episodes = play(pool, noise(3), itertools.count())
        next(episodes)
        os.kill(pool._processes.all[1].pid, signal.SIGKILL)
        with pytest.raises(UserError, match="an environment's process ended"):
            list(episodes)


def test_no_process_outlives_its_pool():
    with Pool([HOPPER] * 2, workers=2) as pool:
        pids = [worker.pid for worker in pool._processes.all]
    time.sleep(0.1)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not pool._processes.folder.exists()


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["Hoper-v5"], "Hoper-v5: Environment `Hoper` doesn't exist"),
        (["CartPole-v1"], "CartPole-v1: expected a vector as action, got Discrete"),
        ([], "environments: expected at least one, got none"),
    ],
)
def test_what_cannot_be_played_is_said_in_one_line(ids, words):
    with pytest.raises(UserError) as error:
        Pool(ids)
    assert str(error.value).startswith(words)
    assert "\n" not in str(error.value)


def test_episodes_and_workers_must_be_some():
    with pytest.raises(UserError, match="episodes: expected at least 1, got 0"):
        returns(noise(3), HOPPER, 0)
    with pytest.raises(UserError, match="workers: expected at least 1, got 0"):
        returns(noise(3), HOPPER, 1, workers=0)
    assert processes.cores() >= 1


def test_normalised_scores():
    scores = normalized(np.array([-20.272305, 3234.3, 1607.0138475]), "Hopper-v5")
    np.testing.assert_allclose(scores, [0, 100, 50], atol=1e-9)
    assert normalized(np.zeros(1), "manyhands/Fork-v0") is None
