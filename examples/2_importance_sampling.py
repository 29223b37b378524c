"""Off-policy evaluation: what would another policy get, judged from the logs alone?

Importance sampling divides by the probability of each logged action under whoever took
it. Logs rarely hold it; here they do, so that three ways can be compared: with the
probabilities that were logged, with those of the behavior set, and with those of one
Gaussian for all.

Usage: python examples/2_importance_sampling.py   (a minute on two cores)
"""

import argparse

import numpy as np

import manyhands as mh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=4000)
    given = parser.parse_args()

    data = mh.make("fork-3", given.transitions)
    behavior = mh.fit(data, k="auto", steps=given.steps)
    single = mh.fit(data, "gaussian", steps=given.steps)

    # The policy in question: in every state what the best behavior does, mostly, and
    # sometimes what the others do.
    by_code = behavior.code_log_probs(data)  # [N, K]
    shares = np.full(behavior.k, 0.1 / max(1, behavior.k - 1))
    means = {row["code"]: row["return_mean"] for row in behavior.summary["codes"]}
    best = max(means, key=means.__getitem__)
    shares[best] = 1 - (shares.sum() - shares[best])
    target = np.logaddexp.reduce(by_code + np.log(shares), axis=1)  # [N] log pi(a|s)

    print(f"mean return in the data: {data.returns.mean():.3f}")
    print(f"mean return of behavior {best}: {means[best]:.3f}")
    assert data.log_probs is not None
    for name, logged in {
        "logged probabilities": data.log_probs,
        "behavior set": behavior.log_prob(data),
        "one Gaussian": single.log_prob(data),
    }.items():
        value, effective = weighted(data, target - logged)
        print(
            f"{name:>21}: return of the new policy {value:.3f}, "
            f"{effective:.0f} of {len(data)} trajectories count"
        )


def weighted(data: mh.Trajectories, log_ratios: np.ndarray) -> tuple[float, float]:
    """Weighted importance sampling, and its effective number of trajectories."""
    sums = np.add.reduceat(log_ratios.astype(np.float64), data.offsets[:-1])
    weights = np.exp(sums - sums.max())
    value = (weights * data.returns).sum() / weights.sum()
    return float(value), float(weights.sum() ** 2 / (weights**2).sum())


if __name__ == "__main__":
    main()
