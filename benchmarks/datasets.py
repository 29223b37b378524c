"""The data sets that are made here, beside the paper's.

Makes every one at its usual size and writes results/datasets.md: normalised returns of
the fifteen policies, and size and normalised return of the 27 data sets. What has been
made is remembered in results/datasets.json by its name and the policies' file, so an
interrupted run goes on; about 40 minutes on two cores.
Usage: python benchmarks/datasets.py [--only NAME ...]
"""

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np

import manyhands as mh
from manyhands.agents import policies
from manyhands.agents.data_sets import Roles
from manyhands.agents.policies import STORED
from manyhands.agents.tasks import TASKS
from manyhands.datasets import MAKERS
from manyhands.envs.processes import cores
from manyhands.envs.scores import normalized

# The paper's tables of policies and of data sets: M, transitions, normalised return.
PAPER_POLICIES = {
    "halfcheetah": (72.75, 81.90, 84.78, 84.92, 66.86),
    "walker2d": (88.43, 103.84, 85.32, 100.91, 83.10),
    "hopper": (108.57, 106.03, 99.69, 79.87, 85.33),
}
PAPER_SETS = {
    "halfcheetah-random": (1000, 1000000, -0.26),
    "halfcheetah-medium": (1000, 1000000, 155.8),
    "halfcheetah-medium-replay": (202, 202000, 103.65),
    "halfcheetah-medium-expert": (2000, 2000000, 245.61),
    "halfcheetah-heterogeneous-1": (1000, 1000000, 69.91),
    "halfcheetah-heterogeneous-2": (1000, 1000000, 73.91),
    "halfcheetah-heterogeneous-3": (1000, 1000000, 76.14),
    "halfcheetah-heterogeneous-4": (1000, 1000000, 77.47),
    "halfcheetah-heterogeneous-5": (1000, 1000000, 74.76),
    "walker2d-random": (48907, 1000000, 0.01),
    "walker2d-medium": (513, 1000000, 202.84),
    "walker2d-medium-replay": (791, 302000, 28.90),
    "walker2d-medium-expert": (514, 1999995, 496.24),
    "walker2d-heterogeneous-1": (1037, 1000000, 88.79),
    "walker2d-heterogeneous-2": (1015, 1000000, 88.62),
    "walker2d-heterogeneous-3": (1018, 1000000, 85.93),
    "walker2d-heterogeneous-4": (1006, 1000000, 92.33),
    "walker2d-heterogeneous-5": (1018, 1000000, 92.29),
    "hopper-random": (45239, 1000000, 1.19),
    "hopper-medium": (2185, 1000000, 44.32),
    "hopper-medium-replay": (1639, 402000, 18.49),
    "hopper-medium-expert": (2274, 1999906, 91.33),
    "hopper-heterogeneous-1": (1180, 1000000, 94.72),
    "hopper-heterogeneous-2": (1207, 1000000, 93.23),
    "hopper-heterogeneous-3": (1454, 1000000, 76.67),
    "hopper-heterogeneous-4": (1513, 1000000, 73.08),
    "hopper-heterogeneous-5": (1695, 1000000, 65.88),
}
RESULTS = Path(__file__).parents[1] / "results"


def measure(name: str) -> dict:
    started = time.perf_counter()
    data = mh.make(name)
    seconds = time.perf_counter() - started
    scores = normalized(data.returns, TASKS[name.split("-")[0]].env_id)
    assert scores is not None
    assert data.log_probs is not None
    return {
        "trajectories": len(data),
        "transitions": data.transitions,
        "score": float(np.mean(scores)),
        "sources": len(data.source_names),
        "log_prob": float(np.mean(data.log_probs, dtype=np.float64)),
        "fingerprint": data.fingerprint,
        "policies": stored_fingerprint(name),
        "seconds": seconds,
        "cores": cores(),
    }


def stored_fingerprint(name: str) -> str:
    path = STORED / f"{name.split('-')[0]}.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def policy_rows() -> list[str]:
    rows = ["| task | | 1 | 2 | 3 | 4 | 5 |", "|---|---|---|---|---|---|---|"]
    for task, paper in PAPER_POLICIES.items():
        finals = Roles.of(task, STORED).finals
        ours = [f"{a.normalized:.1f}" for a in finals]
        modes = [f"{a.mode_return_mean:.0f}" for a in finals]
        rows += [
            f"| {task} | score | {' | '.join(ours)} |",
            f"| | score, paper | {' | '.join(f'{x:.1f}' for x in paper)} |",
            f"| | return by the mode | {' | '.join(modes)} |",
        ]
    return rows


def set_rows(made: dict[str, dict]) -> list[str]:
    rows = [
        "| data set | M | paper | transitions | paper | score | paper | "
        "log-probability |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, (paths, steps, score) in PAPER_SETS.items():
        row = made[name]
        cells = [
            name,
            f"{row['trajectories']:,}",
            f"{paths:,}",
            f"{row['transitions']:,}",
            f"{steps:,}",
            f"{row['score']:.1f}",
            f"{score:.1f}",
            f"{row['log_prob']:.2f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def stage_rows() -> list[str]:
    rows = ["| task | role | agent | updates | return | score |", "|---" * 6 + "|"]
    for task in PAPER_POLICIES:
        roles = Roles.of(task, STORED)
        for role, about in (("medium", roles.medium), ("expert", roles.expert)):
            rows.append(
                f"| {task} | {role} | {about.seed} | {about.step:,} | "
                f"{about.return_mean:.0f} ± {about.return_std:.0f} | "
                f"{about.normalized:.1f} |"
            )
    return rows


def page(made: dict[str, dict]) -> str:
    seconds = sum(row["seconds"] for row in made.values())
    steps = sum(row["transitions"] for row in made.values())
    machine = f"{max(row['cores'] for row in made.values())} cores"
    about = policies.made(STORED)
    lines = [
        "# Data sets that are made here",
        "",
        "Made by `python benchmarks/datasets.py`. The score is D4RL's: 0 for a random",
        "policy, 100 for D4RL's expert.",
        "",
        "## Policies",
        "",
        f"Five agents for each task (`{about['commands'][0]}`,",
        f"{about['run']['environment']['device']}), 20 episodes each, actions sampled.",
        "",
        *policy_rows(),
        "",
        "The roles in the D4RL-style sets; stages on the way to medium make",
        "medium-replay.",
        "",
        *stage_rows(),
        "",
        "## Data sets",
        "",
        f"Seed 0; {steps:,} transitions in {seconds / 60:.0f} minutes on {machine}.",
        "Log-probability: of the actions under the policies that chose them, nats a",
        "transition. The paper's scores of D4RL's own sets (random, medium,",
        "medium-replay, medium-expert) are as printed; several of them exceed what",
        "D4RL's policies reach, so they are no aim for ours.",
        "",
        *set_rows(made),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = list(MAKERS["zoo"].sizes)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    chosen = parser.parse_args().only
    memory = RESULTS / "datasets.json"
    made = json.loads(memory.read_text()) if memory.exists() else {}
    for name in chosen:
        if made.get(name, {}).get("policies") == stored_fingerprint(name):
            continue
        made[name] = measure(name)
        memory.write_text(json.dumps(made, indent=1) + "\n")
        print(name, made[name], flush=True)
    if made.keys() >= PAPER_SETS.keys():
        (RESULTS / "datasets.md").write_text(page(made))
        print(f"wrote {RESULTS / 'datasets.md'}")


if __name__ == "__main__":
    main()
