"""What fleets are counted to take, before they begin: no training."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import pytest

from manyhands import UserError, datasets
from manyhands.algos.registry import ALGORITHMS, algorithm
from manyhands.cli.benchmark import Benchmark
from manyhands.envs import fork
from manyhands.sweep import device_speed, estimate, programs
from manyhands.sweep.counting import COMPILE, PROCESS, Counter
from manyhands.sweep.data_sizes import sizes_of
from manyhands.sweep.device_speed import GPU_PRODUCT, GPU_RATE, Speed
from manyhands.sweep.estimate import Asked, Estimate
from manyhands.sweep.plan import Fleet, joined, parts
from manyhands.sweep.programs import Program, Sizes

CHEETAH = Sizes(17, 6, 100_000, 1000, "HalfCheetah-v5")
H200 = Speed("gpu: NVIDIA H200", 1e11, GPU_RATE, GPU_PRODUCT, True)


def fleet(algo: str, seeds: int = 2, **changes) -> Fleet:
    k = (10,) if algorithm(algo).first == "vq" else ()
    data, numbers = ("fork:fork-2",), tuple(range(seeds))
    made = Fleet(data, algo, algo, "default", k, numbers, 0, 0, 400)
    return replace(made, **changes)


def counter(folder: Path = Path("absent"), sizes: Sizes = CHEETAH) -> Counter:
    """On an H200, of data sets of this size."""
    found = Counter(folder, H200)
    found._sizes["fork:fork-2"] = sizes
    return found


# Counting


@pytest.mark.parametrize(("limit", "taken"), [("max\n", False), ("123456\n", True)])
def test_a_container_may_have_less_memory_than_its_machine(
    limit, taken, tmp_path, monkeypatch
):
    (tmp_path / "memory.max").write_text(limit)
    absent = tmp_path / "absent"
    monkeypatch.setattr(device_speed, "CONTAINER", (absent,))
    whole = device_speed.host_memory()
    assert whole > 1e9
    monkeypatch.setattr(device_speed, "CONTAINER", (absent, tmp_path / "memory.max"))
    assert device_speed.host_memory() == (123456 if taken else whole)


def test_operations_are_counted_in_loops_too():
    def some(x, matrix):
        def one(x, _):
            return jnp.tanh(x @ matrix), None

        return jax.lax.scan(one, x, None, length=7)[0]

    shapes = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((5, 3), (3, 3)))
    work = Program("some", some, tuple(shapes), steps=1, replicas=1).work()
    assert work.products == 7
    assert work.flops == 7 * (2 * 5 * 3 * 3 + 5 * 3)  # and the tanh
    assert work.saved == 7 * 4 * 5 * 3


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_can_be_counted(algo):
    found = programs.programs(fleet(algo, episodes=2), CHEETAH)
    learner = algorithm(algo)
    options = next(iter(learner.presets.values()))
    names = [program.name for program in found]
    assert ("dynamics" in names) == (learner.before is not None)
    assert ("plans" in names) == learner.acts_on_device
    if learner.first == "vq":
        assert names[:2] == ["behaviors"] * 2
        # All K and seeds are one program each time.
        several = programs.programs(fleet(algo, episodes=2, k=(2, 10)), CHEETAH)
        assert [(p.name, p.replicas) for p in several] == [(n, 4) for n in names]
    updates = {program.update: program.steps for program in found}
    assert updates.get(learner.update, 0) == options.steps
    for program in found:
        assert program.replicas == 2
        assert program.state_bytes > 1e5
        # As much as a layer of 200 for a batch, forward and backward, and less than
        # what a GPU does in a tenth of a second.
        assert 1e7 < program.work().flops < 4e12


# results/algos_speed.md: microseconds per update of 1, 5 and 25 replicas
MEASURED = {
    "bc": (68, 74, 104),
    "td3_bc": (181, 223, 433),
    "iql": (179, 235, 451),
    "brac_v": (210, 296, 639),
    "lbrac_v": (294, 449, 1065),
    "fisher_brc": (305, 452, 1039),
    "plas": (304, 483, 1171),
    "rebrac": (387, 734, 2498),
    "bcq": (497, 977, 3074),
    "cql": (608, 1305, 4825),
}
FACTOR = 1.5


def assert_near(counted: float, microseconds: float) -> None:
    assert 1 / FACTOR < counted / (microseconds * 1e-6) < FACTOR


@pytest.mark.parametrize("algo", MEASURED)
def test_what_was_measured_on_a_gpu_is_what_is_counted(algo):
    first = hasattr(algorithm(algo).presets["default"], "behavior_steps")
    steps = {"steps": 10**6} | ({"behavior_steps": 1} if first else {})
    for seeds, measured in zip((1, 5, 25), MEASURED[algo]):
        one = fleet(algo, seeds, episodes=0, options=steps)
        assert_near(counter().seconds(one) / 10**6, measured)


def test_so_is_the_fit():
    """results/fit_speed.md"""
    for seeds, measured in {1: 274, 5: 373, 25: 878, 100: 2832}.items():
        steps = {"behavior_steps": 10**6}
        one = fleet("clone", seeds, preset="paper", episodes=0, options=steps)
        assert_near(counter().seconds(one) / 10**6, measured)


def test_replicas_share_launches_on_a_gpu_and_nothing_on_a_cpu():
    gpu, cpu = counter(), counter()
    cpu.speed = H200._replace(together=False)
    few, many = fleet("bc", 1), fleet("bc", 20)
    fixed = PROCESS + COMPILE
    times = [[one.seconds(f) - fixed for f in (few, many)] for one in (gpu, cpu)]
    assert times[0][1] < 2 * times[0][0]
    assert times[1][1] == pytest.approx(20 * times[1][0])


def test_data_that_is_not_made_yet_is_known_by_its_name(tmp_path):
    found = sizes_of(tmp_path, "zoo:hopper-medium-replay", 400)
    # A preset says how many transitions; else as many as there usually are.
    assert found == Sizes(11, 3, 400, 1, "Hopper-v5")
    usual = sizes_of(tmp_path, "zoo:hopper-medium-replay", None)
    assert usual.transitions == 402_000
    guess = sizes_of(tmp_path, "fork:leap-2", 400)
    env = gymnasium.make(guess.env)
    assert env.observation_space.shape == (guess.observations,)
    assert env.action_space.shape == (guess.actions,)
    assert guess.episode == fork.HORIZON
    with pytest.raises(UserError, match="expected a built-in data set"):
        sizes_of(tmp_path, "zoo:nobody-medium", None)


def test_results_correct_what_was_counted(tmp_path):
    counter = Counter(tmp_path, H200)
    both = "fork:fork-2", "fork:fork-3"
    bc, brac = fleet("bc", data=both), fleet("brac_v")
    counted = counter.seconds(bc)
    row = {
        "label": "bc",
        "algo": "bc",
        "preset": "default",
        "k": None,
        "episodes": 0,
        "curve": [],
        "transitions": 400,
        "options": {},
        "environment": {"device": H200.device},
        "fleet_seconds": 3 * counted,
        "fleet_resumed": False,
    }
    rows = [row | {"seed": seed, "data": data} for data in both for seed in (0, 1)]
    # Those of other devices or of a part of the time say nothing.
    other = {"fleet_seconds": 99.0, "seed": 2, "data": both[0]}
    rows += [row | other | {"environment": {"device": "abacus"}}]
    rows += [row | other | {"fleet_resumed": True}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "results.jsonl").write_text(lines)
    found = counter.cost(bc)
    assert found.measured
    assert found.seconds == pytest.approx(3 * counted)
    assert not counter.cost(brac).measured


# Which train together


def test_data_sets_of_one_shape_are_joined_evenly(tmp_path):
    tasks = [
        f"zoo:{t}-heterogeneous-{k}" for t in ("hopper", "walker2d") for k in "123"
    ]
    apart = [
        fleet(algo, data=(data,), transitions=1000)
        for data in [*tasks, "zoo:hopper-medium", str(tmp_path / "absent.npz")]
        for algo in ("bc", "mopo")
    ]
    counter = Counter(tmp_path, H200)

    assert joined(apart, counter.kind, lambda _: 1) == apart
    hopper = (*tasks[:3], "zoo:hopper-medium")
    found = joined(apart, counter.kind, lambda _: 3)
    learnt = [f.data for f in found if f.algo == "bc"]
    assert learnt == [hopper[:2], hopper[2:], tuple(tasks[3:]), apart[-2].data]
    assert [f.data for f in found if f.algo == "mopo"] == learnt
    keys = [key for f in found for key in f.keys]
    assert sorted(map(str, keys)) == sorted(str(k) for f in apart for k in f.keys)
    assert len({f.name for f in found}) == len(found)
    assert all(len(f.name) < 80 for f in found if f.data != apart[-2].data)


def test_sizes_matter_where_behaviors_would_be_fitted_for_another_time(tmp_path):
    counter = Counter(tmp_path, H200)

    def fleets_of(*data: str) -> int:
        apart = [fleet("bc", data=(d,), transitions=None) for d in data]
        return len(joined(apart, counter.kind, lambda _: 9))

    # 1, 0.4 and 2 million transitions: 60,000 updates each.
    assert fleets_of(*[f"zoo:hopper-medium{also}" for also in ("", "-replay")]) == 1
    assert fleets_of("zoo:hopper-medium", "zoo:hopper-medium-expert") == 1
    small = datasets.make("hopper-medium", 300)
    datasets.save(small, tmp_path / "small.npz")
    assert fleets_of("zoo:hopper-medium", str(tmp_path / "small.npz")) == 2


def test_worlds_that_end_in_other_ways_are_not_learnt_together(tmp_path):
    """Walker2d and HalfCheetah have the same sizes; one of them falls."""
    counter = Counter(tmp_path, H200)
    sets = ["zoo:walker2d-medium", "zoo:halfcheetah-medium", "zoo:walker2d-random"]
    for algo, expected in [("bc", 1), ("mopo", 2), ("mopp", 2)]:
        apart = [fleet(algo, data=(data,)) for data in sets]
        assert len(joined(apart, counter.kind, lambda _: 9)) == expected
    data = datasets.make("fork-2", 300)
    datasets.save(replace(data, env_id="Pendulum-v1"), tmp_path / "a.npz")
    datasets.save(replace(data, env_id="Pendulum-v1"), tmp_path / "b.npz")
    apart = [fleet("mopo", data=(str(tmp_path / f"{n}.npz"),)) for n in "ab"]
    assert joined(apart, counter.kind, lambda _: 9) == apart


def test_how_many_is_decided_by_the_device(tmp_path, monkeypatch):
    apart = [fleet("bc", 3, data=(f"fork:fork-{k}",)) for k in range(1, 6)]

    def sizes(most: int | None, **speed) -> list[int]:
        monkeypatch.setattr(Speed, "here", lambda jobs: H200._replace(**speed))
        answer = estimate.answer(tmp_path, Asked(apart, together=most))
        return [len(fleet.data) for fleet in answer.fleets]

    assert sizes(None) == [5]
    assert sizes(None, together=False) == [1] * 5
    assert sizes(2, together=False) == [2, 2, 1]
    few = Counter(tmp_path, H200).memory(replace(apart[0], data=apart[0].data * 3))
    assert sizes(None, memory=few) == [2, 3]


# Memory


def test_a_fleet_is_cut_into_as_few_parts_as_fit():
    whole = fleet("lbrac_v", 5, k=(2, 5))

    def at_most(runs: int) -> list[Fleet]:
        return parts(whole, lambda part: len(part.keys) <= runs)

    assert at_most(10) == [whole]
    assert [part.seeds for part in at_most(6)] == [(0, 1, 2), (3, 4)]
    assert at_most(6)[0].name == "fork-fork-2/lbrac_v/seeds-0-1-2"
    single = at_most(1)
    assert [(part.k, part.seeds) for part in single[4:6]] == [
        ((2,), (4,)),
        ((5,), (0,)),
    ]
    assert at_most(0) == []
    for runs in (10, 6, 3, 1):
        keys = [key for part in at_most(runs) for key in part.keys]
        assert sorted(map(str, keys)) == sorted(map(str, whole.keys))
        assert len({part.name for part in at_most(runs)}) == len(at_most(runs))


def test_memory_decides_about_parts(tmp_path, monkeypatch):
    mopo, few = fleet("mopo", 4), fleet("mopo", 2)
    counter = Counter(tmp_path, H200)
    whole, half = (counter.memory(f) for f in (mopo, few))
    # At least the imagined transitions: 50 rollouts of 5 steps, of 1000 updates.
    assert whole - half > 2 * 250_000 * 4 * (2 * 4 + 2 + 2)

    def answer(memory: float) -> Estimate:
        here = H200._replace(memory=memory)
        monkeypatch.setattr(Speed, "here", lambda jobs: here)
        return estimate.answer(tmp_path, Asked([mopo]))

    assert answer(whole).fleets == [mopo]
    found = answer((whole + half) / 2)
    assert [len(part.seeds) for part in found.fleets] == [3, 1]
    with pytest.raises(UserError, match="one run needs .* GB of memory and may use"):
        answer(1e6)


def test_what_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(Speed, "here", lambda jobs: H200)
    (tmp_path / "broken.npz").write_bytes(b"no data")
    broken = fleet("bc", data=(str(tmp_path / "broken.npz"),))
    asked = Asked([fleet("bc"), broken])
    found = estimate.answer(tmp_path, Asked.from_json(asked.to_json()))
    assert found == Estimate.from_json(found.to_json())
    first, second, total = found.table().splitlines()[1:]
    assert first.split()[:2] == ["fork-fork-2/bc", "2"]
    assert "cannot be read" in second
    assert "all on this device (gpu: NVIDIA H200)" in total
    assert total.endswith("of 100.0 GB memory")


def test_where_several_run_at_a_time_the_longest_begins(tmp_path, monkeypatch):
    (tmp_path / "broken.npz").write_bytes(b"no data")
    broken = fleet("bc", data=(str(tmp_path / "broken.npz"),))
    asked = [broken, fleet("bc"), fleet("cql"), fleet("iql")]
    monkeypatch.setattr(Speed, "here", lambda jobs: H200)
    monkeypatch.setattr(estimate, "ask", lambda *asked: estimate.answer(*asked[:2]))

    def order(jobs: int) -> list[Fleet]:
        return Benchmark("smoke", tmp_path, jobs=jobs)._estimated(asked)

    assert order(1) == asked
    assert order(2) == [asked[2], asked[3], asked[1], broken]


def test_a_defect_of_the_estimate_stops_nobody(tmp_path, monkeypatch, capsys):
    ended = {"args": [], "stdout": "", "stderr": "Traceback\n\nOSError: no\n"}
    codes = [1, estimate.REFUSED]
    monkeypatch.setattr(
        estimate.subprocess,
        "run",
        lambda *a, **k: subprocess.CompletedProcess(returncode=codes.pop(0), **ended),
    )
    command = Benchmark("smoke", tmp_path)
    assert command._estimated([fleet("bc")]) == [fleet("bc")]
    assert "no estimate of time and memory: OSError: no" in capsys.readouterr().err
    with pytest.raises(UserError, match="^OSError: no$"):
        command._estimated([fleet("bc")])


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(40, "40 s"), (89, "89 s"), (120, "2.0 min"), (7200, "2.0 h"), (1e6, "11.6 days")],
)
def test_durations(seconds, said):
    assert estimate.duration(seconds) == said
