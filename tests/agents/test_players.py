"""Episodes played by processes."""

from itertools import islice

import numpy as np
import pytest

from manyhands import UserError
from manyhands.agents.players import Players
from manyhands.envs.rollout import episode_seeds


def test_episodes_come_in_the_order_of_their_seeds_and_may_be_left():
    with Players("Hopper-v5", workers=2) as players:
        played = players.play(None, episode_seeds(0))
        some = [next(played) for _ in range(5)]
        played.close()  # the processes are still at work
        again = list(players.play(None, islice(episode_seeds(0), 9)))
    assert [e.seed for e in again] == list(islice(episode_seeds(0), 9))
    for one, two in zip(some, again):
        np.testing.assert_array_equal(one.observations, two.observations)
        np.testing.assert_array_equal(one.actions, two.actions)
        assert one.terminal
        assert len(one.observations) == len(one) + 1
    assert len(np.unique([e.actions[0] for e in again], axis=0)) == 9


def test_the_end_of_a_process_is_an_error():
    with Players("Hopper-v5", workers=1) as players:
        players._processes.all[0].kill()
        with pytest.raises(UserError, match="an environment's process ended"):
            list(players.play(None, [1, 2]))
