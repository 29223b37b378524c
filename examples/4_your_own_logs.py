"""Bring your own logs, without an environment.

Two operators keep a tank at its level: one is quick and wastes effort, one is slow.
What was logged is only arrays; nobody wrote down who was on duty.

Usage: python examples/4_your_own_logs.py   (a minute on two cores)
"""

import argparse
from pathlib import Path

import numpy as np

import manyhands as mh


def logs(shifts: int, seed: int = 0) -> dict[str, np.ndarray]:
    """What a plant's historian may hold: one row a minute, shifts one after another."""
    random = np.random.default_rng(seed)
    rows = {name: [] for name in ("observations", "actions", "rewards", "trajectory")}
    for shift in range(shifts):
        gain = (-2.0, -0.4)[shift % 2]  # who is on duty
        level, trend = random.normal(), 0.1 * random.normal()
        for _ in range(40):
            valve = np.clip(gain * level + 0.1 * random.normal(), -1, 1)
            rows["observations"].append([level, trend])
            rows["actions"].append([valve])
            rows["rewards"].append(-(level**2) - 0.1 * valve**2)
            rows["trajectory"].append(shift)
            level += trend + 0.3 * valve + 0.05 * random.normal()
            trend *= 0.98
    return {name: np.array(values) for name, values in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shifts", type=int, default=200)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("example-4"))
    given = parser.parse_args()

    table = logs(given.shifts)
    # No shift ends the world: there are no terminals.
    table["terminals"] = np.zeros(len(table["rewards"]), bool)
    given.out.mkdir(parents=True, exist_ok=True)
    np.savez(given.out / "tank.npz", allow_pickle=False, **table)

    data = mh.load(given.out / "tank.npz")  # checks it, and says what is wrong
    behavior = mh.fit(data, k="auto", steps=given.steps, out=given.out / "fit")
    truth = np.arange(len(data)) % 2
    for row in behavior.summary["codes"]:
        quick = (truth[behavior.codes == row["code"]] == 0).mean()
        print(
            f"behavior {row['code']}: {row['trajectories']} shifts, return "
            f"{row['return_mean']:.1f}; {quick:.0%} of them of the quick operator"
        )

    policy = mh.train(data, "iql", steps=given.steps // 10, episodes=0, evaluations=0)
    for level in (-1.0, 0.0, 1.0):
        print(
            f"at level {level:+.0f} the policy sets {policy.act([level, 0.0])[0]:+.2f}"
        )
    print("the report:", mh.write_report(given.out / "fit", data=data))


if __name__ == "__main__":
    main()
