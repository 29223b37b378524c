"""Learn policies from logged data, without an environment, then play them in one.

Usage: python examples/3_train_and_evaluate.py   (two minutes on two cores)
"""

import argparse
from pathlib import Path

import manyhands as mh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=20_000)
    parser.add_argument("--fit-steps", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("example-3"))
    given = parser.parse_args()

    data = mh.make("fork-3", given.transitions)
    behavior = mh.fit(data, k="auto", steps=given.fit_steps)

    # LBRAC-v holds the policy to the best of the behaviors; BC imitates them all at
    # once, and the mean of three ways around an obstacle leads into it.
    policies = {
        "lbrac_v": mh.train(
            data,
            "lbrac_v",
            behavior=behavior,
            steps=given.steps,
            warm_up=given.steps // 2,
            critic_width=64,
            episodes=0,
            evaluations=0,
        ),
        "bc": mh.train(data, "bc", steps=given.steps, episodes=0, evaluations=0),
    }
    for name, policy in policies.items():
        policy.save(given.out / name)
        again = mh.load_policy(given.out / name)  # as a program that deploys it would
        found = mh.evaluate(again, episodes=given.episodes)
        print(
            f"{name}: return {found.returns.mean():.2f} ± {found.returns.std():.2f} "
            f"over {given.episodes} episodes; its action in the first state: "
            f"{again.act(data.observations[0])}"
        )
    print(f"mean return in the data: {data.returns.mean():.2f}")


if __name__ == "__main__":
    main()
