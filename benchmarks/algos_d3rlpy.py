"""d3rlpy's algorithms, in an environment of its own: their speed, or their scores.

Called by benchmarks/algos.py and benchmarks/scores_d3rlpy.py. Batches, networks and
hyper-parameters are those of our defaults.
Usage: PYTHON benchmarks/algos_d3rlpy.py NAME UPDATES
       PYTHON benchmarks/algos_d3rlpy.py NAME UPDATES FILE ENV FIRST SEED EPISODES
(FIRST: updates of PLAS's VAE, before its policy's.)
"""

import json
import sys
import time

import d3rlpy
import numpy as np
import torch
from d3rlpy import algos

STATES, ACTIONS, ROWS = 17, 6, 100_000


def encoder(*units: int, norm: bool = False):
    return d3rlpy.models.VectorEncoderFactory(
        hidden_units=list(units), use_layer_norm=norm
    )


def both(*units: int, critics=None) -> dict:
    return dict(
        actor_encoder_factory=encoder(*units),
        critic_encoder_factory=critics or encoder(*units),
    )


def config(name: str, first: int):
    made = {
        "bc": lambda: algos.BCConfig(
            batch_size=256,
            learning_rate=5e-4,
            policy_type="stochastic",
            encoder_factory=encoder(200, 200),
        ),
        # No Lagrange multiplier: its rate is 0.
        "cql": lambda: algos.CQLConfig(
            batch_size=256, alpha_learning_rate=0.0, **both(256, 256, 256)
        ),
        "bcq": lambda: algos.BCQConfig(
            batch_size=256,
            n_action_samples=10,
            imitator_encoder_factory=encoder(750, 750),
            **both(400, 300),
        ),
        "plas": lambda: algos.PLASConfig(
            batch_size=256,
            imitator_learning_rate=1e-3,
            lam=1.0,
            warmup_steps=first,
            imitator_encoder_factory=encoder(750, 750),
            **both(400, 300),
        ),
        "td3_bc": lambda: algos.TD3PlusBCConfig(batch_size=256, **both(256, 256)),
        "iql": lambda: algos.IQLConfig(
            batch_size=256, value_encoder_factory=encoder(256, 256), **both(256, 256)
        ),
        "rebrac": lambda: algos.ReBRACConfig(
            batch_size=1024,
            actor_beta=0.01,
            **both(256, 256, 256, critics=encoder(256, 256, 256, norm=True)),
        ),
    }[name]()
    made.observation_scaler = d3rlpy.preprocessing.StandardObservationScaler()
    return made


def speed(name: str, updates: int) -> float:
    """Updates per second, the best of three."""
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
    made = config(name, 0)  # of PLAS the policy's part, not the VAE's
    made.observation_scaler.fit_with_transition_picker(
        data.episodes, data.transition_picker
    )
    learner = made.create(device="cpu:0")
    learner.build_with_dataset(data)
    best = float("inf")
    for trial in range(4):  # the first one warms up
        started = time.perf_counter()
        for _ in range(updates):
            learner.update(data.sample_transition_batch(learner.batch_size))
        if trial:
            best = min(best, time.perf_counter() - started)
    return updates / best


def scores(
    name: str, updates: int, file: str, env: str, first: int, seed: int, episodes: int
) -> list[float]:
    """Returns of episodes after training on a file."""
    import gymnasium

    d3rlpy.seed(seed)
    arrays = np.load(file)
    columns = ("observations", "actions", "rewards", "terminals", "timeouts")
    data = d3rlpy.dataset.MDPDataset(
        **{key: arrays[key].astype(np.float32) for key in columns}
    )
    device = "cuda:0" if torch.cuda.is_available() else "cpu:0"
    learner = config(name, first).create(device=device)
    steps = updates + (first if name == "plas" else 0)
    learner.fit(
        data,
        n_steps=steps,
        n_steps_per_epoch=steps,
        show_progress=False,
        save_interval=10**9,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    returns = []
    world = gymnasium.make(env)
    for episode in range(episodes):
        state, total, done = world.reset(seed=episode)[0], 0.0, False
        while not done:
            action = learner.predict(state[None].astype(np.float32))[0]
            state, reward, ended, late, _ = world.step(action)
            total, done = total + float(reward), ended or late
        returns.append(total)
    return returns


def main() -> None:
    name, updates = sys.argv[1], int(sys.argv[2])
    if len(sys.argv) == 3:
        print(speed(name, updates))
        return
    file, env, *numbers = sys.argv[3:]
    print(json.dumps(scores(name, updates, file, env, *map(int, numbers))))


if __name__ == "__main__":
    main()
