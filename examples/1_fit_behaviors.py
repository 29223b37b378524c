"""Who did what? Fit a behavior set, look at it, and write the report.

Usage: python examples/1_fit_behaviors.py   (a minute on two cores)
"""

import argparse
from pathlib import Path

import manyhands as mh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path("example-1"))
    given = parser.parse_args()

    # Three demonstrators pass an obstacle, each in a way of its own. The data set says
    # who made which trajectory, but `fit` does not look at that.
    data = mh.make("fork-3", given.transitions)
    print(data)

    behavior = mh.fit(data, k="auto", steps=given.steps, out=given.out, compare=True)
    for row in behavior.summary["codes"]:
        print(
            f"behavior {row['code']}: {row['trajectories']} trajectories, "
            f"mean return {row['return_mean']:.2f}, made by {row['sources']}"
        )
    about = behavior.summary["behavior"]
    print(
        f"held-out log-probability {about['heldout_log_prob']:.3f} nats a transition, "
        f"one Gaussian for all: {about['single_gaussian_heldout_log_prob']:.3f}; "
        f"agreement with the true sources (ARI): {about['ari']:.3f}"
    )

    # Trajectories that it has never seen: who made them?
    unseen = mh.make("fork-3", 200, seed=1)
    probabilities = behavior.responsibilities(unseen)
    assert unseen.sources is not None
    for source, shares in list(zip(unseen.sources, probabilities))[:3]:
        print(
            f"unseen trajectory of {unseen.source_names[source]}: behavior "
            f"{shares.argmax()}, probability {shares.max():.3f}"
        )
    print("the report:", mh.write_report(given.out, data=data))


if __name__ == "__main__":
    main()
