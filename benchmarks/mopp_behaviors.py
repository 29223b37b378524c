"""MOPP on the fork's problems, its actions proposed by a model of its own or by a
behavior set: what share of episodes reaches the goal.

Every combination of a problem and proposers is learnt once for all seeds and then
plans with every spread and every share of the usual threshold. Lines of --out that are
there are not measured again.
Usage: python benchmarks/mopp_behaviors.py
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp

import manyhands as mh
from manyhands.runs import environment

SEEDS = list(range(6))
EPISODES = 100
SMALL = dict(
    steps=5000,
    model_steps=3000,
    model_batch=128,
    patience=0,
    members=3,
    model_width=64,
    head_width=32,
    critic_width=64,
    target_rate=0.02,
    trajectories=30,
    proposals=5,
    horizon=8,
    kappa=10.0,
)


def learnt(problem: str, proposer: str, args: argparse.Namespace) -> list[mh.Policy]:
    data = mh.make(problem, args.transitions)
    how = SMALL | dict(seed=args.seeds, episodes=0)
    if args.steps:
        how |= dict(steps=args.steps, model_steps=args.steps)
    if proposer == "own":
        return mh.train(data, "mopp", behavior_width=64, **how)
    steps = args.steps or 4000
    behavior = mh.fit(data, k=len(data.source_names), steps=steps, seed=args.seeds)
    return mh.train(data, "mopp", behavior=behavior, **how)


def row(policy: mh.Policy, spread: float, share: float, episodes: int) -> dict:
    usual = policy.model.plan
    threshold = usual.threshold * jnp.float32(share)
    plan = replace(usual, spread=jnp.float32(spread), threshold=threshold)
    planning = replace(policy, model=replace(policy.model, plan=plan))
    returns = mh.evaluate(planning, episodes=episodes).returns
    return {
        "goal": float((returns > 1).mean()),
        "return_mean": float(returns.mean()),
        "episodes": episodes,
        "device": environment()["device"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="+", default=["leap-2", "fork-2", "fork-5"])
    parser.add_argument("--spreads", nargs="+", type=float, default=[0.05, 0.2])
    parser.add_argument("--thresholds", nargs="+", type=float, default=[1.0, 0.1])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default="results/mopp_behaviors.jsonl")
    parser.add_argument("--transitions", type=int, default=20_000)
    parser.add_argument("--steps", type=int, help="of everything, to try it")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    args = parser.parse_args()
    text = args.out.read_text() if args.out.exists() else ""
    there = {
        (r["problem"], r["proposer"], r["spread"], r["threshold"], r["seed"])
        for r in map(json.loads, text.splitlines())
    }
    for problem in args.problems:
        for proposer in ("own", "set"):
            case = problem, proposer
            missing = [
                (spread, share, seed, n)
                for spread in args.spreads
                for share in args.thresholds
                for n, seed in enumerate(args.seeds)
                if (*case, spread, share, seed) not in there
            ]
            policies = learnt(*case, args) if missing else []
            for spread, share, seed, n in missing:
                key = dict(problem=problem, proposer=proposer, spread=spread)
                key |= dict(threshold=share, seed=seed)
                found = key | row(policies[n], spread, share, args.episodes)
                with args.out.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(found)


if __name__ == "__main__":
    main()
