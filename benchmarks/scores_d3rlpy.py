"""Our learners and d3rlpy's on one data set: the same updates, settings, environment.

d3rlpy needs an environment of its own, with MuJoCo: name its interpreter. A run is a
line of --out; runs that are there are not made again. The table goes beside it (.md).
Both use a GPU where there is one.
Usage: python benchmarks/scores_d3rlpy.py --d3rlpy PYTHON [--algos td3_bc iql ...]
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import manyhands as mh
from manyhands.envs.scores import normalized
from manyhands.runs import environment

# Where our defaults have something that d3rlpy has not, it is left out.
OURS = {
    "td3_bc": {},
    "iql": dict(advantage_scale="none", beta=3.0),
    "bc": {},
    "rebrac": {},
    "bcq": {},
    "plas": {},
    "cql": dict(warm_up=0),
}


def ours(data: mh.Trajectories, name: str, seed: int, args) -> list[float]:
    first = dict(behavior_steps=args.updates // 2) if name == "plas" else {}
    policy = mh.train(
        data, name, seed=seed, steps=args.updates, episodes=0, **OURS[name] | first
    )
    found = mh.evaluate(policy, episodes=args.episodes, workers=1)
    return found.returns.tolist()


def theirs(file: Path, env: str, name: str, seed: int, args) -> list[float]:
    script = Path(__file__).with_name("algos_d3rlpy.py")
    numbers = [args.updates // 2, seed, args.episodes]
    command = [args.d3rlpy, script, name, args.updates, file, env, *numbers]
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def shown(row: dict) -> str:
    score = f"{row['normalized']:.1f}"
    return score if row["device"].startswith("gpu") else f"({score})"


def table(rows: list[dict]) -> str:
    about = rows[0]
    lines = [
        f"# Beside d3rlpy on {about['data']}",
        "",
        f"Normalised score after {about['updates']:,} updates on "
        f"{about['transitions']:,} transitions, mean of {about['episodes']} episodes",
        "per seed, for every seed. Written by benchmarks/scores_d3rlpy.py from "
        "scores_d3rlpy.jsonl.",
        "In brackets: on a CPU; all others on a GPU.",
        "",
        "| | manyhands | d3rlpy |",
        "|---|---|---|",
    ]
    for name in dict.fromkeys(row["algo"] for row in rows):
        cells = []
        for library in ("manyhands", "d3rlpy"):
            some = [r for r in rows if (r["algo"], r["library"]) == (name, library)]
            some.sort(key=lambda r: r["seed"])
            cells.append(" ".join(map(shown, some)))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--d3rlpy", required=True, help="an interpreter that has it")
    parser.add_argument("--data", default="hopper-medium")
    parser.add_argument("--transitions", type=int, default=200_000)
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--algos", nargs="+", default=list(OURS))
    parser.add_argument("--out", type=Path, default=Path("results/scores_d3rlpy.jsonl"))
    args = parser.parse_args()
    data = mh.make(args.data, args.transitions)
    env = data.env_id
    assert env is not None
    names = ("algo", "library", "seed")
    rows = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    done = {tuple(row[n] for n in names) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.npz"
        np.savez(
            file,
            observations=data.observations,
            actions=data.actions,
            rewards=data.rewards,
            terminals=data.terminals,
            timeouts=data.timeouts,
        )
        for seed in args.seeds:
            for name in args.algos:
                for library in ("manyhands", "d3rlpy"):
                    if (name, library, seed) in done:
                        continue
                    started = time.perf_counter()
                    if library == "manyhands":
                        returns = ours(data, name, seed, args)
                    else:
                        returns = theirs(file, env, name, seed, args)
                    scores = normalized(np.array(returns), env)
                    assert scores is not None
                    row = {
                        "data": args.data,
                        "transitions": data.transitions,
                        "updates": args.updates,
                        "algo": name,
                        "library": library,
                        "seed": seed,
                        "normalized": float(scores.mean()),
                        "episodes": args.episodes,
                        "returns": returns,
                        "seconds": time.perf_counter() - started,
                        "device": environment()["device"],
                    }
                    rows.append(row)
                    with args.out.open("a") as out:
                        out.write(json.dumps(row) + "\n")
                    said = f"{row['normalized']:6.1f} in {row['seconds']:.0f} s"
                    print(f"{name:8} {library:10} seed {seed}: {said}", flush=True)
    args.out.with_suffix(".md").write_text(table(rows))


if __name__ == "__main__":
    main()
