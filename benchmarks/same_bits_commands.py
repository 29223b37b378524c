"""Cases of `same_bits.py`: what the command line prints and leaves behind, what is
refused, the zoo, and a benchmark."""

import contextlib
import io
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import same_bits_files as files
from same_bits_files import Entries
from same_bits_learning import SMALL, TINY, Case, fork, small

import manyhands as mh

MANYHANDS = [sys.executable, "-m", "manyhands"]
TOOLS = Path(__file__).parents[1] / "tools"
# The program that trains the zoo's agents.
ZOO_TRAIN = [sys.executable, str(TOOLS / "zoo"), "train"]


# The zoo

AGENTS = (
    "hopper halfcheetah --seeds 1 2 --workers 1 --steps 360 --epoch 30 --first 60 "
    "--keep-every 120 --width 16 --batch-size 32"
)


def zoo(folder: Path) -> Entries:
    done = command(folder, *AGENTS.split(), "--out", "run", program=ZOO_TRAIN)
    return printed(done, folder) | files.read(folder / "run")


def zoo_interrupted(folder: Path) -> Entries:
    words = [*ZOO_TRAIN, *AGENTS.split(), "--out", "run"]
    program = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
    log = folder / "run" / "metrics.jsonl"
    while program.poll() is None and not (log.exists() and log.stat().st_size):
        time.sleep(0.005)
    program.send_signal(signal.SIGINT)
    _, said = program.communicate()
    if (folder / "run" / "summary.json").exists():
        raise RuntimeError(f"it was too fast to be interrupted: {said}")
    again = zoo(folder)
    (folder / "straight").mkdir()
    other = files.differences(zoo(folder / "straight"), again)
    return {"exit code": program.returncode, "unlike the straight run": sorted(other)}


def zoos() -> list[Case]:
    return [Case("zoo: train", zoo), Case("interrupted zoo: train", zoo_interrupted)]


# The command line


def command(folder: Path, *words: Any, program=MANYHANDS, **environ: str) -> Any:
    asked = [*program, *map(str, words)]
    # So wide that no number of seconds decides where lines end.
    env = os.environ | {"COLUMNS": "200"} | environ
    return subprocess.run(asked, capture_output=True, text=True, cwd=folder, env=env)


def printed(done: Any, folder: Path) -> Entries:
    """Standard output; of the other one what is no sign of life, which time decides."""
    told = [x for x in done.stderr.splitlines() if x.startswith(("error: ", "note: "))]
    said = "\n".join([*done.stdout.splitlines(), *told])
    return {"exit code": done.returncode, "words": files.words(said, folder)}


def here(folder: Path, *words: str) -> Any:
    """A command in this process, for what needs no process of its own."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    sys.argv, path = ["manyhands", *words], list(sys.path)
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            runpy.run_module("manyhands", run_name="__main__")
        except SystemExit as stop:
            code = stop.code
        finally:
            sys.path[:] = path  # the program may take the working directory off
    said = out.getvalue(), err.getvalue()
    return subprocess.CompletedProcess([], code, *said)


def session(requests: list[str], folder: Path) -> Entries:
    """Some commands, one after another, on one file; and the runs that they leave."""
    mh.save(fork(), folder / "small.npz")
    found: Entries = {}
    for number, request in enumerate(requests, 1):
        done = command(folder, *request.split())
        found[f"{number} {request}"] = printed(done, folder)
    for run in sorted(folder.glob("run*")):
        if run.is_dir():
            found[run.name] = files.read(run, folder)
    return found


FIT = "--steps 80 --policy-width 16 --batch-size 32"
BC = "--algo bc --steps 24 --width 16 --batch-size 32"
LBRAC = "--steps 24 --critic-width 16 --batch-size 32 --warm-up 5"
PLAY = "--episodes 2 --evaluations 2"
SESSIONS = {
    "data": [
        "data make fork-3 --transitions 700 --out made.hdf5",
        "data info made.hdf5",
        "data info small.npz --json",
        "data mix small.npz made.hdf5 --out mixed.npz",
        "data info mixed.npz",
        "data convert mixed.npz converted.hdf5",
        "data info absent.npz",
    ],
    "fit": [
        f"fit small.npz --out run-vq --k 2 --seeds 0 1 {FIT}",
        f"fit small.npz --out run-vq --k 2 {FIT}",
        f"fit small.npz --out run-one --method gaussian --no-figures {FIT}",
    ],
    "train and evaluate": [
        f"train small.npz --out run {BC} {PLAY} --seeds 0 1 --policy-rate 1e-3 5e-4",
        "evaluate run --episodes 3 --workers 1",
        f"train small.npz --out run-alone {BC} {PLAY}",
        "evaluate run-alone --episodes 3 --seed 3",
        "report run-alone",
        "evaluate small.npz",
    ],
    "train from a fit": [
        f"fit small.npz --out run-set --k 2 --preset paper {FIT} --no-figures",
        f"train small.npz --out run --behavior run-set --preset paper {LBRAC} {PLAY}",
        "report run",
    ],
    "train lbrac_v by default (may change)": [
        f"train small.npz --out run --k 2 --behavior-steps 20 {LBRAC} {PLAY}"
    ],
}


def sessions() -> list[Case]:
    return [Case(f"cli: {name}", partial(session, s)) for name, s in SESSIONS.items()]


COMMANDS = """
    demo; data; data info; data make; data mix; data convert; fit; train; evaluate;
    report; benchmark; export-metrics
"""


def help_of(words: list[str], folder: Path) -> Entries:
    return printed(here(folder, *words, "--help"), folder)


def helps() -> list[Case]:
    every = [[], *(name.split() for name in COMMANDS.split(";"))]
    every += [["train", "--algo", algo] for algo in SMALL]
    return [
        Case(f"cli: {' '.join([*words, '--help'])}", partial(help_of, words))
        for words in every
    ]


# What is refused, and how

REFUSED_BY_COMMANDS = """
    fit small.npz --out run --k none
    fit small.npz --out run --k 0
    fit small.npz --out run --k 31
    fit small.npz --out run --method ridge
    fit small.npz --out run --preset huge
    fit small.npz --out run --seeds 0 0
    fit small.npz --out run --method vae --k 2
    fit small.npz --out run --batch-size 0
    train small.npz --out run --algo sac
    train small.npz --out run --algo bc --k 2
    train small.npz --out run --algo bc --width 0
    train small.npz --out run --algo bc --beta 1
    train small.npz --out run --algo bc --seeds -1
    train small.npz --out run --algo bc --preset large
    train small.npz --out run --algo bc --behavior absent
    train small.npz --out run --algo bc --env Absent-v0
    train small.npz --out run --algo bc --episodes -1
    evaluate absent
    benchmark absent --out run
"""
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("fit", "vq", dict(k=[2, 2])),
    ("fit", "vq", dict(k=[])),
    ("fit", "vq", dict(seed=-1)),
    ("fit", "vq", dict(width=3)),
    ("fit", "vq", dict(steps=1.5)),
    ("fit", "mixture", dict(k=2)),
    ("train", "lbrac_v", dict(k=[2, 2])),
    ("train", "lbrac_v", dict(k=1000)),
    ("train", "lbrac_v", dict(k="some")),
    ("train", "lbrac_v", dict(behavior=[])),
    ("train", "lbrac_v", dict(seed=[])),
    ("train", "bc", dict(seed=[0, 0])),
    ("train", "bc", dict(width=[16, 32])),
    ("train", "bc", dict(policy_rate=[])),
    ("train", "bc", dict(policy_rate=-1.0)),
    ("train", "bc", dict(steps=-1)),
    ("train", "bc", dict(env="Absent-v0")),
    ("train", "clone", dict(steps=3, k=2)),
    ("train", "mopp", dict(proposer="set")),
]


def refused_by_commands(folder: Path) -> Entries:
    mh.save(fork(), folder / "small.npz")
    requests = [line.strip() for line in REFUSED_BY_COMMANDS.strip().splitlines()]
    return {one: printed(here(folder, *one.split()), folder) for one in requests}


def said_by(request: Callable[[], Any], folder: Path) -> Entries:
    try:
        request()
        return {"words": "nothing"}
    except Exception as error:  # of whatever kind: that is recorded, too
        return {"words": files.words(f"{type(error).__name__}: {error}", folder)}


def refused(folder: Path) -> Entries:
    return {
        f"{call} {what} {options}": said_by(
            lambda: getattr(mh, call)(fork(), what, **options),  # noqa: B023
            folder,
        )
        for call, what, options in REFUSED
    }


def other_run(folder: Path) -> Entries:
    """A run directory goes on only with the request that began it."""
    run, fitted = folder / "run", folder / "set"

    def train(**change: Any) -> Any:
        return mh.train(fork(), "bc", **small("bc", out=run) | change)

    def fit(**change: Any) -> Any:
        options: dict[str, Any] = TINY | {"out": fitted} | change
        return mh.fit(fork(), **options)

    train()
    fit()
    requests: dict[str, Callable[[], Any]] = {
        "another seed": partial(train, seed=1),
        "another width": partial(train, width=8),
        "another preset": partial(train, preset="paper"),
        "another number of updates": partial(train, steps=3),
        "another k": partial(fit, k=2),
        "fit in a run of train": partial(fit, out=run),
        "train in a run of fit": partial(train, out=fitted),
    }
    return {name: said_by(request, folder) for name, request in requests.items()}


def refusals() -> list[Case]:
    return [
        Case("refused by commands", refused_by_commands),
        Case("refused by functions", refused),
        Case("refused: another run is there", other_run),
    ]


# The benchmark, compiled as it is for users: it makes thousands of updates


@cache
def smoke() -> tuple[Path, Any, Any]:
    folder = Path(tempfile.mkdtemp())
    words = "benchmark smoke --out smoke".split()
    usual = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    plan = command(folder, *words, "--plan", **usual)
    return folder, plan, command(folder, *words, **usual)


def smoke_words(folder: Path) -> Entries:
    place, plan, done = smoke()
    found = printed(done, place)
    # What it will take is an estimate.
    _, _, found["words"] = found["words"].partition("## ")
    names = [str(path.relative_to(place)) for path in place.rglob("*")]
    # Maps on the way are made at checkpoints, which come with time.
    kept = sorted(name for name in names if "maps" not in Path(name).name)
    found["files"] = dict.fromkeys(kept, "there")
    found["not compared"] = {
        "plan": plan.stdout.splitlines(),
        "printed": done.stdout.splitlines(),
    }
    return found


def smoke_rows(label: str, folder: Path) -> Entries:
    place, _, _ = smoke()
    rows = files.metrics(place / "smoke" / "results.jsonl", place)
    mine = {f"k {r['k']}, seed {r['seed']}": r for r in rows if r["label"] == label}
    for row in mine.values():
        maps = row.get("maps", {})
        maps["points"] = maps.get("points", [])[-1:]
        maps.pop("learning", None)
    run = files.read(place / "smoke" / "runs" / "fork-leap-2" / label, place)
    apart = {"files", "rows.json", "maps.json"}
    return {"rows": mine, **{k: v for k, v in run.items() if k not in apart}}


def smoke_sets(folder: Path) -> Entries:
    """The behavior sets that LBRAC-v starts from, which must stay the same."""
    place, _, _ = smoke()
    learner = place / "smoke" / "runs" / "fork-leap-2" / "lbrac_v"
    return files.read(learner / "behavior", place)


def benchmark() -> list[Case]:
    return [
        Case("benchmark smoke: rows of bc", partial(smoke_rows, "bc")),
        Case("benchmark smoke: rows of brac_v", partial(smoke_rows, "brac_v")),
        Case(
            "benchmark smoke: rows of lbrac_v (may change)",
            partial(smoke_rows, "lbrac_v"),
        ),
        Case("benchmark smoke: sets of lbrac_v", smoke_sets),
        Case("benchmark smoke: what it prints", smoke_words),
    ]
