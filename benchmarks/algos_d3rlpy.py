"""Updates per second of d3rlpy's algorithms, in an environment of its own.

Called by benchmarks/algos.py. Sizes of batches and networks are those of our defaults.
Usage: PYTHON benchmarks/algos_d3rlpy.py NAME UPDATES
"""

import sys
import time

import d3rlpy
import numpy as np
from d3rlpy import algos

STATES, ACTIONS, ROWS = 17, 6, 100_000


def encoder(*units: int):
    return d3rlpy.models.VectorEncoderFactory(hidden_units=list(units))


def both(*units: int, critics: tuple[int, ...] | None = None) -> dict:
    return dict(
        actor_encoder_factory=encoder(*units),
        critic_encoder_factory=encoder(*(critics or units)),
    )


CONFIGS = {
    "bc": lambda: algos.BCConfig(
        batch_size=256, policy_type="stochastic", encoder_factory=encoder(200, 200)
    ),
    "cql": lambda: algos.CQLConfig(batch_size=256, **both(256, 256, 256)),
    "bcq": lambda: algos.BCQConfig(
        batch_size=256,
        n_action_samples=10,
        imitator_encoder_factory=encoder(750, 750),
        **both(400, 300),
    ),
    "plas": lambda: algos.PLASConfig(
        batch_size=256,
        warmup_steps=0,  # the policy's part, not the VAE's
        imitator_encoder_factory=encoder(750, 750),
        **both(400, 300),
    ),
    "td3_bc": lambda: algos.TD3PlusBCConfig(batch_size=256, **both(256, 256)),
    "iql": lambda: algos.IQLConfig(
        batch_size=256, value_encoder_factory=encoder(256, 256), **both(256, 256)
    ),
    "rebrac": lambda: algos.ReBRACConfig(batch_size=1024, **both(256, 256, 256)),
}


def main() -> None:
    name, updates = sys.argv[1], int(sys.argv[2])
    random = np.random.default_rng(0)
    ends = np.zeros(ROWS)
    ends[999::1000] = 1
    data = d3rlpy.dataset.MDPDataset(
        random.uniform(-1, 1, (ROWS, STATES)).astype(np.float32),
        random.uniform(-0.9, 0.9, (ROWS, ACTIONS)).astype(np.float32),
        random.uniform(-1, 1, ROWS).astype(np.float32),
        terminals=np.zeros(ROWS),
        timeouts=ends,
    )
    learner = CONFIGS[name]().create(device="cpu:0")
    learner.build_with_dataset(data)
    best = float("inf")
    for trial in range(4):  # the first one warms up
        started = time.perf_counter()
        for _ in range(updates):
            learner.update(data.sample_transition_batch(learner.batch_size))
        if trial:
            best = min(best, time.perf_counter() - started)
    print(updates / best)


if __name__ == "__main__":
    main()
