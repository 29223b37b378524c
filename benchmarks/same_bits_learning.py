"""Cases of `same_bits.py`: learners, estimators and models of the dynamics.

Tiny ones, alone, several together, and on two data sets at once.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import same_bits_files as files
from same_bits_files import Entries

import manyhands as mh


class Case(NamedTuple):
    name: str
    run: Callable[[Path], Entries]  # in an empty folder of its own


# Data

Data = Callable[[], Any]  # makes a data set, or several


@cache
def fork() -> mh.Trajectories:
    return mh.make("fork-2", 600)


@cache
def three() -> mh.Trajectories:
    return mh.make("fork-3", 1500)


@cache
def wide() -> mh.Trajectories:
    """With another box and more trajectories."""
    leap = mh.make("leap-2", 800)
    return replace(
        leap,
        actions=2 * leap.actions + 1,
        action_low=2 * leap.action_low + 1,
        action_high=2 * leap.action_high + 1,
    )


def both() -> list[mh.Trajectories]:
    return [fork(), wide()]


@cache
def hopper() -> mh.Trajectories:
    """The world ends by a rule of the task, and scores have a reference."""
    return mh.make("hopper-heterogeneous-2", 600)


def data_set(make: Callable[[], mh.Trajectories], folder: Path) -> Entries:
    data = make()
    mh.save(data, folder / "saved.npz")
    columns = "observations actions rewards next_observations terminals timeouts"
    return {
        "fingerprint": data.fingerprint,
        "read again": mh.load(folder / "saved.npz").fingerprint,
        **{name: files.array(getattr(data, name)) for name in columns.split()},
    }


# Learners: options that make them tiny, and one that may differ between replicas

COMMON: dict[str, Any] = dict(steps=24, batch_size=32)
NETS = dict(width=16, critic_width=16)
CLONES = dict(behavior_steps=20, behavior_width=16, warm_up=5, samples=2, **NETS)
MODELS = dict(model_steps=30, model_batch=16, model_width=16, members=3, elites=2)
PLANS = dict(behavior_width=16, head_width=16, trajectories=8, proposals=2)
SMALL: dict[str, dict[str, Any]] = {
    "bc": dict(width=16),
    "clone": dict(k=2, steps=0, behavior_steps=20),
    "brac_p": CLONES,
    "brac_v": CLONES,
    "lbrac_v": dict(k=2, behavior_steps=20, critic_width=16, warm_up=5, samples=2),
    "cql": dict(warm_up=5, samples=2, **NETS),
    "fisher_brc": dict(behavior_steps=20, behavior_width=16, **NETS),
    "vae_bc": dict(width=16),
    "bcq": dict(samples=2, vae_width=16, width=16),
    "plas": dict(behavior_steps=20, behavior_width=16, width=16),
    "td3_bc": NETS,
    "iql": NETS,
    "rebrac": NETS,
    "mopo": dict(rollouts=8, kept=20, **MODELS, **NETS),
    "mopp": dict(critic_width=16, **MODELS, **PLANS),
}
SEVERAL: dict[str, dict[str, Any]] = {
    "bc": dict(policy_rate=[1e-3, 5e-4]),
    "vae_bc": dict(vae_rate=[1e-3, 5e-4]),
    "clone": {},
}
LEARNERS = [algo for algo in SMALL if algo != "lbrac_v"]  # which has variants
OTHER_PRESETS = {
    "cql": ["corl", "lagrange"],
    "plas": ["medium-replay", "hopper-medium-perturbed"],
    "rebrac": ["hopper-medium"],
    "mopo": ["hopper-medium"],
    "mopp": ["hopper-medium"],
}
PLAYED = dict(episodes=2, evaluations=2, workers=1)


def small(algo: str, **more: Any) -> dict[str, Any]:
    return COMMON | SMALL[algo] | {"episodes": 0} | more


def listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def replicas(run: Path, many: int) -> list[Path]:
    return [run] if many == 1 else [run / f"replica-{r}" for r in range(many)]


def of_policy(policy: Any, rows: Any) -> Entries:
    return {
        "actions": files.array(policy.act(rows)),
        "actions by another seed": files.array(policy.act(rows, seed=1)),
    }


def train(
    algo: str,
    options: dict[str, Any],
    make: Data,
    folder: Path,
) -> Entries:
    """What a call returns, what its policies do once they are read again, and all that
    lies in its folder."""
    data, run = make(), folder / "run"
    policies = listed(mh.train(data, algo, out=run, **options))
    rows = listed(data)[0].observations[:50]
    again = [mh.load_policy(place) for place in replicas(run, len(policies))]
    return {
        "returned": [of_policy(policy, rows) for policy in policies],
        "read again": [of_policy(policy, rows) for policy in again],
        **files.read(run),
    }


def trainings(
    name: str, algo: str, options: dict[str, Any], several: dict[str, Any]
) -> list[Case]:
    """A learner alone, many at once, on two data sets at once."""
    ks = {"k": [1, 2]} if "k" in options else {}
    kinds: dict[str, tuple[dict[str, Any], Data]] = {
        "alone": (dict(seed=0, **PLAYED), fork),
        "several together": (dict(seed=[0, 1], **ks, **several), fork),
        "two data sets": (dict(seed=1), both),
    }
    return [
        Case(f"train {name}: {kind}", partial(train, algo, options | more, make))
        for kind, (more, make) in kinds.items()
    ]


def learner(algo: str) -> list[Case]:
    several = SEVERAL.get(algo, dict(discount=[0.9, 0.99]))
    cases = trainings(algo, algo, small(algo), several)
    for preset in ["paper", *OTHER_PRESETS.get(algo, [])]:
        options = small(algo, preset=preset)
        name = f"train {algo}: preset {preset}"
        cases.append(Case(name, partial(train, algo, options, fork)))
    return cases


def lbrac_v() -> list[Case]:
    """As printed policy and behaviors learn together, pi after the critics; that stays.
    By default both step in one pass; that may change."""
    paper = small("lbrac_v", preset="paper")
    own: dict[str, Any] = dict(joint=True, held_to="own")
    sampled = dict(divergence="sampled", value_scale="none", held_to="own")
    auto = {"k": "auto", "seed": [0, 1]}
    several = dict(discount=[0.9, 0.99])
    changing = "lbrac_v by default (may change)"

    def one(name: str, **options: Any) -> Case:
        return Case(f"train {name}", partial(train, "lbrac_v", options, fork))

    return [
        *trainings("lbrac_v printed", "lbrac_v", paper, several),
        one("lbrac_v printed: k auto", **paper | auto),
        Case("train lbrac_v printed: sets given", given_sets),
        one("lbrac_v joint: exact, no pull", **small("lbrac_v", **own)),
        one("lbrac_v joint: exact, pull", **small("lbrac_v", pull=True, **own)),
        *trainings(changing, "lbrac_v", small("lbrac_v"), several),
        one(f"{changing}: sampled", **small("lbrac_v", **sampled)),
    ]


def given_sets(folder: Path) -> Entries:
    """Behavior sets that the user has, one for every seed and k."""
    how: dict[str, Any] = dict(
        preset="paper", steps=20, policy_width=16, critic_width=16
    )
    sets = mh.fit(fork(), k=[2, 3], seed=[0, 1], **how)
    options = small("lbrac_v", preset="paper", behavior=sets, seed=[0, 1])
    del options["k"], options["behavior_steps"]
    return train("lbrac_v", options, fork, folder)


def given_one(algo: str, method: str, folder: Path, **more: Any) -> Entries:
    behavior = mh.fit(fork(), method, steps=20, policy_width=16)
    options = small(algo, behavior=behavior, seed=[0, 1], **more)
    return train(algo, options, fork, folder)


def of_other_kinds() -> list[Case]:
    """What is no learner's own: lengths, evaluations, what is given or found."""

    def one(name: str, algo: str, make=fork, **options: Any) -> Case:
        asked = small(algo, **options)
        return Case(f"train {name}", partial(train, algo, asked, make))

    def by_set(folder: Path) -> Entries:
        return given_one("mopp", "vq", folder, proposer="set")

    def by_mixture(folder: Path) -> Entries:
        return given_one("fisher_brc", "mixture", folder)

    uneven = dict(steps=85, checkpoint_seconds=0.0)
    played = dict(seed=[0, 1], **PLAYED | dict(evaluations=3))
    return [
        one("td3_bc: an uneven number of updates", "td3_bc", **uneven),
        one("rebrac: several, played on the way", "rebrac", **uneven | played),
        one("bc: diverged", "bc", policy_rate=1e30, **PLAYED),
        one("bc: on hopper, played", "bc", hopper, **PLAYED),
        one("mopo: on hopper, played", "mopo", hopper, **PLAYED),
        one("mopp: on hopper", "mopp", hopper),
        Case("train mopp: a set given", by_set),
        Case("train fisher_brc: a mixture given", by_mixture),
        Case("train bc: a finished run is read", read_finished),
        Case("evaluate", evaluated),
    ]


def read_finished(folder: Path) -> Entries:
    run, options = folder / "run", small("bc", seed=[0, 1])
    mh.train(fork(), "bc", out=run, **options)
    found = mh.train(fork(), "bc", out=run, retrain=False, **options)
    return {"returned": [of_policy(one, fork().observations[:50]) for one in found]}


def evaluated(folder: Path) -> Entries:
    del folder
    policy = mh.train(fork(), "bc", **small("bc"))
    found = {}
    for workers in (1, 2):
        one = mh.evaluate(policy, episodes=3, seed=5, workers=workers)
        found[f"{workers} workers"] = {
            "returns": one.returns.tolist(),
            "normalized": one.normalized,
            "relative": one.relative,
        }
    return found


def dynamics() -> list[Case]:
    """Several epochs, of which the best members are kept, and hardly a policy."""
    more = dict(steps=2, model_steps=800, patience=1)
    cases = []
    for kind, algo in (("gaussian", "mopo"), ("autoregressive", "mopp")):
        options = small(algo, **more)
        together = options | dict(seed=[0, 1], model_rate=[1e-3, 3e-3])
        pairs: dict[str, tuple[dict[str, Any], Data]] = {
            "alone": (options, fork),
            "several together": (together, both),
        }
        cases += [
            Case(f"dynamics {kind}: {name}", partial(train, algo, asked, make))
            for name, (asked, make) in pairs.items()
        ]
    return cases


# Estimators

TINY: dict[str, Any] = dict(steps=80, policy_width=16, critic_width=16, batch_size=32)


def of_behavior(behavior: Any, data: mh.Trajectories) -> Entries:
    rows = data.observations[:50]
    found = {
        "log_prob": behavior.log_prob(data),
        "code_log_probs": behavior.code_log_probs(data),
        "responsibilities": behavior.responsibilities(data),
        "unexplained": behavior.unexplained(data),
        "sample": behavior.sample(rows, 0),
        "codes": behavior.codes,
        "probabilities": behavior.probabilities,
    }
    return files.arrays(found)


def fit(method: str, options: dict[str, Any], make: Data, folder: Path) -> Entries:
    data, run = make(), folder / "run"
    found = listed(mh.fit(data, method, out=run, **options))
    sets = listed(data)
    of = [sets[r * len(sets) // len(found)] for r in range(len(found))]
    again = [mh.Behavior.load(place) for place in replicas(run, len(found))]
    return {
        "returned": [of_behavior(b, d) for b, d in zip(found, of)],
        "read again": [of_behavior(b, d) for b, d in zip(again, of)],
        **files.read(run),
    }


def fits(method: str, kinds: dict[str, tuple[Data, dict[str, Any]]]) -> list[Case]:
    return [
        Case(f"fit {method}: {kind}", partial(fit, method, TINY | options, make))
        for kind, (make, options) in kinds.items()
    ]


def fits_vq() -> list[Case]:
    paper = dict(preset="paper")
    kinds: dict[str, tuple[Data, dict[str, Any]]] = {
        "alone": (fork, dict(k=2, steps=300, compare=True)),
        "with values": (fork, dict(k=2, values=True, checkpoint_seconds=0.0)),
        "k auto": (three, dict(k="auto", steps=600)),
        "several together": (fork, dict(k=[2, 3, "auto"], seed=[0, 1], values=True)),
        "two data sets": (both, dict(k=[2, 3], seed=1)),
        "not merged": (three, dict(k=4, merge=False)),
        "preset paper": (fork, dict(k=2, **paper)),
        "preset paper, several together": (
            fork,
            dict(k=[2, 5], seed=[0, 1], **paper),
        ),
        "preset paper, two data sets": (both, dict(k=3, **paper)),
        "preset large": (fork, dict(k=2, preset="large")),
        "usual k": (fork, {}),
    }
    return fits("vq", kinds)


OF_ONE = "gaussian", "vae", "mixture"


def fits_of_one(method: str) -> list[Case]:
    kinds: dict[str, tuple[Data, dict[str, Any]]] = {
        "alone": (fork, dict(compare=True, steps=200)),
        "several together": (fork, dict(seed=[0, 1])),
        "two data sets": (both, dict(seed=1)),
    }
    return fits(method, kinds)
