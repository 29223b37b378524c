"""Settings of MOPP's planner, searched on one seed: how good its plans are with each.

What it plans with is taken from a benchmark that trained MOPP on these data sets, with
seed 0 (--benchmark, the folder it wrote or one above), or else learnt (and kept in
--runs, so that it need not be again: a folder of its own for other --steps or
--transitions);
then episodes are played with every combination of kappa, horizon, spread and the share
of the usual threshold. Combinations of one horizon play in one program. Lines of --out
that are there are not measured again.
With --replay FILE all of the benchmark's runs of MOPP on a task are then played with
the combination that was best on its data set here, all in one program: lines as those
of results.jsonl.
Usage: python benchmarks/mopp_tuning.py --data halfcheetah-medium walker2d-medium
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import manyhands as mh
from manyhands.algos.evaluate import Body, Players, worth
from manyhands.envs.scores import normalized
from manyhands.runs import environment

FLOATS = ("kappa", "spread", "threshold")
SEED_OF_EPISODES = 1000  # not those that results are reported on
SEED_OF_RESULTS = 0


def runs_of(folder: Path, start: str) -> Iterator[tuple[dict[str, Any], Path]]:
    """Of MOPP on the data sets whose name starts so, by fleets that are finished."""
    for path in sorted(folder.rglob("rows.json")):
        rows = json.loads(path.read_text())
        for r, row in enumerate(rows):
            if row["algo"] == "mopp" and row["data"].startswith(f"zoo:{start}"):
                many = len(rows) > 1
                yield row, path.parent / f"replica-{r}" if many else path.parent


def trained(folder: Path, name: str) -> Path | None:
    """Where MOPP's run of seed 0 on this data set is."""
    for row, place in runs_of(folder, name):
        if (row["data"], row["seed"]) == (f"zoo:{name}", 0):
            return place
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


def planning(policy: mh.Policy, horizon: int, *floats: float) -> Any:
    """Its model, planning with these: kappa, spread, share of its threshold."""
    usual = policy.model.plan
    kappa, spread, share = floats
    changes = dict(kappa=kappa, spread=spread, threshold=share * float(usual.threshold))
    changes = {name: jnp.float32(value) for name, value in changes.items()}
    return replace(policy.model, plan=replace(usual, horizon=horizon, **changes))


def returns(
    policies: list[mh.Policy], models: list[Any], episodes: int, seed: int
) -> np.ndarray:
    """[policy, episode], all in one program."""
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *models)
    bodies = [Body(policy.box, policy.scaling) for policy in policies]
    env = policies[0].env_id
    assert env is not None
    with Players("mopp", bodies, env, episodes) as players:
        return players.returns(stacked, seed)


def replay(folder: Path, best: dict[str, Any], out: Path) -> None:
    task = best["data"].partition("-")[0]
    chosen = best["horizon"], *(best[name] for name in FLOATS)
    names = ("horizon", "kappa", "spread", "share_of_threshold")
    tuned = {"label": "mopp-tuned", "planning": dict(zip(names, chosen))}
    runs = list(runs_of(folder, f"{task}-"))
    if not runs:
        raise SystemExit(f"{folder}: no run of MOPP on {task} to play")
    policies = [mh.load_policy(place) for _, place in runs]
    models = [planning(policy, *chosen) for policy in policies]
    played = returns(policies, models, runs[0][0]["episodes"], SEED_OF_RESULTS)
    with out.open("w") as file:
        for (row, _), policy, mine in zip(runs, policies, played):
            assert policy.env_id is not None
            found = worth(mine, policy.env_id, row["behaviors"])
            file.write(json.dumps(row | found.summary() | tuned) + "\n")


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
    parser.add_argument("--replay", type=Path, default=None)
    args = parser.parse_args()
    if args.replay and not args.benchmark:
        parser.error("--replay plays the runs of --benchmark")
    rows = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    grid = list(itertools.product(args.kappa, args.spread, args.threshold))
    for name, horizon in itertools.product(args.data, args.horizon):
        done = [r for r in rows if (r["data"], r["horizon"]) == (name, horizon)]
        there = {tuple(row[n] for n in FLOATS) for row in done}
        todo = [one for one in grid if one not in there]
        if not todo:
            continue
        policy = learnt(name, args)
        assert policy.env_id is not None
        models = [planning(policy, horizon, *one) for one in todo]
        same = [policy] * len(todo)
        found = returns(same, models, args.episodes, SEED_OF_EPISODES)
        for one, played in zip(todo, found):
            scores = normalized(played, policy.env_id)
            row = {
                "data": name,
                "horizon": horizon,
                **dict(zip(FLOATS, one)),
                "normalized": None if scores is None else float(scores.mean()),
                "returns": played.tolist(),
                "device": environment()["device"],
            }
            with args.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
            rows.append(row)
    for name in args.data:
        mine = [row for row in rows if row["data"] == name]
        mine = sorted(mine, key=lambda row: -np.mean(row["returns"]))
        for row in mine:
            said = " ".join(f"{n} {row[n]:g}" for n in ("horizon", *FLOATS))
            print(f"{name}: {said}: return {np.mean(row['returns']):.0f}")
        if args.replay:
            replay(args.benchmark, mine[0], args.replay)


if __name__ == "__main__":
    main()
