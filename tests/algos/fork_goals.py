"""How often a policy gets around the obstacle of the fork."""

from typing import Any

import numpy as np

from manyhands import evaluate, make, train


def share_at_goal(algo: str, data: str = "fork-2", **options: Any) -> float:
    """Of 50 episodes, after learning from 20,000 transitions."""
    policy = train(make(data, 20_000), algo, episodes=0, **options)
    return float(np.mean(evaluate(policy, episodes=50, workers=1).returns > 1))
