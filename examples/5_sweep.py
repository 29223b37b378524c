"""How many behaviors? Many numbers and seeds in one compiled program.

Usage: python examples/5_sweep.py   (three minutes on two cores)
"""

import argparse
from pathlib import Path

import numpy as np

import manyhands as mh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("example-5"))
    given = parser.parse_args()

    data = mh.make("fork-3", given.transitions)
    # Every k with every seed: all replicas share the data and train together.
    fitted = mh.fit(data, k=given.k, seed=given.seeds, steps=given.steps, out=given.out)
    print("  k  held-out nats  agreement with the sources")
    for k in given.k:
        rows = [b.summary["behavior"] for b in fitted]
        rows = [row for row in rows if row["k"] == k]
        held, ari = (
            np.array([row[name] for row in rows])
            for name in ("heldout_log_prob", "ari")
        )
        print(
            f"{k:>3}  {held.mean():>6.3f} ± {held.std():.3f}  "
            f"{ari.mean():>6.3f} ± {ari.std():.3f}"
        )
    print("more behaviors than there are gain nothing on steps that were held out")
    print("the report:", mh.write_report(given.out, data=data))


if __name__ == "__main__":
    main()
