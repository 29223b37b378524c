"""How well are many sources found: 10, 20, 50 hands?

Hands of the fork problem are drawn at random. In the data sets `distinct-N` every two
of them differ by `APART` nats a step or more; in `any-N` they are as chance has it, and
some are nearly one: the true policies themselves, asked which of them made a
trajectory, then err too, and that agreement (`ceiling`) is the most one can hope for.
Fits each with the default options, with K true and with K auto. Prints a table and
writes results/many_sources.json; rows of other data sets stay there.
Usage: python benchmarks/many_sources.py [--data any-20 ...] [--seeds 0 1] [--steps N]
"""

import argparse
import json
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from recovery import true_heldout

import manyhands as mh
from manyhands.behavior.scores import recovery
from manyhands.envs.fork_demonstrators import Demonstrator, distribution, record
from manyhands.runs import environment

DATA = [f"{kind}-{n}" for kind in ("distinct", "any") for n in (10, 20, 50)]
TRANSITIONS = 600  # of each hand: some 23 trajectories
APART = 0.5  # nats a step
POOL = 5  # times as many hands as are wanted, to choose distinct ones from


def draw(hands: int, seed: int) -> dict[str, Demonstrator]:
    random = np.random.default_rng(seed)
    return {
        f"hand-{i}": Demonstrator(
            side=random.choice([-1.0, 1.0]),
            width=random.uniform(0.5, 0.95),
            curvature=random.uniform(1.0, 3.0),
            speed=random.uniform(0.6, 0.95),
            noise=np.exp(random.uniform(np.log(0.08), np.log(0.3))),
        )
        for i in range(hands)
    }


def log_probs(crowd: dict[str, Demonstrator], data: mh.Trajectories) -> np.ndarray:
    """[hand, row] of the data's actions, under each hand's true policy."""

    def row(who, observation, action):
        return distribution(who, observation).log_prob(action)

    rows = jax.vmap(row, (None, 0, 0))
    function = jax.jit(jax.vmap(rows, (0, None, None)))
    stacked = Demonstrator(*map(jnp.array, zip(*crowd.values())))
    return np.asarray(function(stacked, data.observations, data.actions), np.float64)


def differences(crowd: dict[str, Demonstrator], data: mh.Trajectories) -> np.ndarray:
    """[hand, other] nats a step that a hand's own actions lose under the other."""
    found = log_probs(crowd, data)
    assert data.sources is not None
    by = data.sources[data.trajectory]
    means = np.array([found[:, by == i].mean(axis=1) for i in range(len(crowd))])
    return np.diag(means)[:, None] - means


def distinct(hands: int, seed: int) -> dict[str, Demonstrator]:
    """The first of a pool, less those that are like an earlier one."""
    pool = draw(POOL * hands, seed)
    apart = differences(pool, record(pool, "pool", 200 * len(pool), seed))
    apart = np.minimum(apart, apart.T)
    chosen: list[int] = []
    for i in range(len(pool)):
        if len(chosen) < hands and (apart[i, chosen] >= APART).all():
            chosen.append(i)
    assert len(chosen) == hands, f"only {len(chosen)} of {hands} hands are distinct"
    names = list(pool)
    return {names[i]: pool[names[i]] for i in chosen}


def ceiling(crowd: dict[str, Demonstrator], data: mh.Trajectories) -> float:
    """ARI of trajectories assigned by the true policies."""
    found = log_probs(crowd, data)
    sums = [np.bincount(data.trajectory, row) for row in found]
    assert data.sources is not None
    return recovery(data.sources, np.argmax(sums, axis=0))["ari"]


def make(name: str) -> tuple[mh.Trajectories, float]:
    """The data set and its ceiling."""
    kind, hands = name.split("-")
    crowd = {"distinct": distinct, "any": draw}[kind](int(hands), seed=0)
    data = record(crowd, name, TRANSITIONS * len(crowd), seed=0)
    return data, ceiling(crowd, data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("results/many_sources.json"))
    options = parser.parse_args()
    about = {} if options.steps is None else {"steps": options.steps}
    rows, others = [], []
    if options.out.exists():
        others = json.loads(options.out.read_text())["rows"]
    others = [row for row in others if row["data"] not in options.data]
    print("data  k  seed  codes  ARI  ceiling  held-out  true  one Gaussian  seconds")
    for name in options.data:
        data, most = make(name)
        true = true_heldout(data)
        single = mh.fit(data, "gaussian", **about).summary["behavior"]
        for k in (len(data.source_names), "auto"):
            for seed in options.seeds:
                fitted = mh.fit(data, k=k, seed=seed, **about)
                summary = fitted.summary["behavior"]
                row = {
                    "data": name,
                    "trajectories": len(data),
                    "transitions": data.transitions,
                    "k": k,
                    "seed": seed,
                    "steps": fitted.options.steps,
                    "codes_used": summary["codes_used"],
                    "ari": summary["ari"],
                    "ceiling": most,
                    "purity": summary["purity"],
                    "matched_accuracy": summary["matched_accuracy"],
                    "heldout": summary["heldout_log_prob"],
                    "true": true,
                    "gaussian": single["heldout_log_prob"],
                    "seconds": fitted.summary["timing"]["seconds"],
                }
                rows.append(row)
                shown = ("ari", "ceiling", "heldout", "true", "gaussian")
                numbers = "  ".join(f"{row[key]:.3f}" for key in shown)
                first = f"{name}  {k}  {seed}  {row['codes_used']}"
                print(f"{first}  {numbers}  {row['seconds']:.0f}", flush=True)
                options.out.parent.mkdir(parents=True, exist_ok=True)
                content = {
                    "command": " ".join(["python", *sys.argv]),
                    "cpu_cores": os.cpu_count(),
                    "environment": environment(),
                    "rows": others + rows,
                }
                options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
