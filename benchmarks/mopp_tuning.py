"""Settings of MOPP's planner, searched on one seed: how good its plans are with each.

What it plans with is taken from a benchmark that trained MOPP on these data sets, with
seed 0 (--benchmark, the folder it wrote or one above), or else learnt (and kept in
--runs, so that it need not be again: a folder of its own for other --steps or
--transitions);
then episodes are played with every combination of kappa, horizon, spread and the share
of the usual threshold. Combinations of one horizon play in one program. Lines of --out
that are there are not measured again.
Usage: python benchmarks/mopp_tuning.py --data halfcheetah-medium walker2d-medium
"""

import argparse
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import manyhands as mh
from manyhands.algos.evaluate import Body, Players
from manyhands.envs.scores import normalized
from manyhands.runs import environment

SEED_OF_EPISODES = 1000  # not those that results are reported on


def trained(folder: Path, name: str) -> Path | None:
    """Where a fleet that is finished left MOPP's run of seed 0 on this data set."""
    for path in sorted(folder.rglob("rows.json")):
        rows = json.loads(path.read_text())
        for r, row in enumerate(rows):
            if (row["algo"], row["data"], row["seed"]) == ("mopp", f"zoo:{name}", 0):
                return path.parent / f"replica-{r}" if len(rows) > 1 else path.parent
    return None


def learnt(name: str, args: argparse.Namespace) -> mh.Policy:
    found = trained(args.benchmark, name) if args.benchmark else None
    if found:
        return mh.load_policy(found)
    place = Path(args.runs) / name
    if (place / "summary.json").exists():
        return mh.load_policy(place)
    data = mh.make(name, args.transitions)
    steps = dict(steps=args.steps, model_steps=args.steps) if args.steps else {}
    policy = mh.train(data, "mopp", seed=0, out=place, episodes=0, **steps)
    assert isinstance(policy, mh.Policy)
    return policy


def returns(
    policy: mh.Policy, horizon: int, grid: list[tuple[float, ...]], episodes: int
) -> np.ndarray:
    """[combination, episode]"""
    usual = policy.model.plan

    def with_(kappa: float, spread: float, share: float) -> Any:
        floats = kappa, spread, share * float(usual.threshold)
        names = ("kappa", "spread", "threshold")
        changes = {n: jnp.float32(x) for n, x in zip(names, floats)}
        plan = replace(usual, horizon=horizon, **changes)
        return replace(policy.model, plan=plan)

    models = jax.tree.map(lambda *x: jnp.stack(x), *[with_(*one) for one in grid])
    bodies = [Body(policy.box, policy.scaling)] * len(grid)
    assert policy.env_id is not None
    with Players("mopp", bodies, policy.env_id, episodes) as players:
        return players.returns(models, SEED_OF_EPISODES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--transitions", type=int, default=None)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--kappa", type=float, nargs="+", default=[3.0, 10.0, 30.0])
    parser.add_argument("--horizon", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--spread", type=float, nargs="+", default=[0.1, 0.4, 0.8])
    parser.add_argument("--threshold", type=float, nargs="+", default=[1.0])
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--benchmark", type=Path, default=None)
    parser.add_argument("--runs", default="/tmp/manyhands-mopp")
    parser.add_argument("--out", type=Path, default=Path("results/mopp_tuning.jsonl"))
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    names = ("kappa", "spread", "threshold")
    grid = list(itertools.product(args.kappa, args.spread, args.threshold))
    for name, horizon in itertools.product(args.data, args.horizon):
        done = [r for r in rows if (r["data"], r["horizon"]) == (name, horizon)]
        there = {tuple(row[n] for n in names) for row in done}
        todo = [one for one in grid if one not in there]
        if not todo:
            continue
        policy = learnt(name, args)
        assert policy.env_id is not None
        for one, played in zip(todo, returns(policy, horizon, todo, args.episodes)):
            scores = normalized(played, policy.env_id)
            row = {
                "data": name,
                "horizon": horizon,
                **dict(zip(names, one)),
                "normalized": None if scores is None else float(scores.mean()),
                "returns": played.tolist(),
                "device": environment()["device"],
            }
            with args.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
            rows.append(row)
    for name in args.data:
        mine = [row for row in rows if row["data"] == name]
        for row in sorted(mine, key=lambda row: -np.mean(row["returns"])):
            said = " ".join(f"{n} {row[n]:g}" for n in ("horizon", *names))
            print(f"{name}: {said}: return {np.mean(row['returns']):.0f}")


if __name__ == "__main__":
    main()
