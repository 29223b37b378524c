"""Small synthetic data with known hands."""

import numpy as np

Flat = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def linear_hands(
    hands: int = 3,
    each: int = 20,
    steps: int = 30,
    seed: int = 0,
    noise: float = 0.3,
    first: int = 0,
) -> Flat:
    """Linear policies of different gains: observations, actions, offsets, source.

    `first` changes the trajectories, not the hands.
    """
    gains = np.random.default_rng(seed).normal(size=(hands, 3, 2))
    rng = np.random.default_rng([seed, 1, first])
    source = rng.permutation(np.repeat(np.arange(hands), each))
    o = rng.normal(size=(len(source), steps, 3))
    a = np.einsum("mts,msa->mta", o, gains[source])
    a += noise * rng.normal(size=a.shape)
    offsets = np.arange(len(source) + 1) * steps
    return o.reshape(-1, 3), a.reshape(-1, 2), offsets, source


def crossed_hands(
    contexts: int = 4, hands: int = 3, each: int = 12, steps: int = 40, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every hand in every context; what a context changes is larger than a hand.

    A step moves along the context's direction; hands differ by the rhythm and the
    tremor of their moves. Returns observations, actions, offsets, source, context.
    """
    rng = np.random.default_rng(seed)
    ways = 3 * rng.normal(size=(contexts, 3))
    rhythm = np.linspace(0.3, 1.2, hands)
    tremor = 0.4 * rng.normal(size=(hands, 3, 3))
    cells = [(c, h) for c in range(contexts) for h in range(hands)] * each
    order = rng.permutation(len(cells))
    context, source = np.array(cells)[order].T
    time = np.arange(steps)
    a = np.empty((len(cells), steps, 3))
    for m, (c, h) in enumerate(zip(context, source)):
        beat = np.sin(rhythm[h] * time + rng.uniform(0, 6))[:, None]
        own = rng.normal(size=(steps, 3)) @ tremor[h]
        a[m] = ways[c] * (1 + 0.5 * beat) + own
    o = np.cumsum(a, axis=1) / steps - a / steps
    offsets = np.arange(len(cells) + 1) * steps
    return o.reshape(-1, 3), a.reshape(-1, 3), offsets, source, context
