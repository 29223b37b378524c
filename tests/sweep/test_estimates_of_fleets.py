"""Time and memory of fleets, before they begin."""

import subprocess
from dataclasses import replace
from pathlib import Path

import gymnasium
import jax
import pytest

from manyhands import UserError, datasets
from manyhands.algos.registry import ALGORITHMS, algorithm
from manyhands.cli.benchmark import Benchmark
from manyhands.envs import fork
from manyhands.sweep import cost, estimate, memory
from manyhands.sweep.cost import Costs, Program, programs, rehearse, request_of
from manyhands.sweep.data_sizes import Sizes, sizes_of
from manyhands.sweep.estimate import Asked, Estimate
from manyhands.sweep.plan import Fleet, joined, parts

CHEETAH = Sizes(17, 6, 100_000, 100, "HalfCheetah-v5")
TINY = dict(width=8, batch_size=16)


def fleet(algo: str, seeds: int = 2, **changes) -> Fleet:
    k = (10,) if algorithm(algo).fits_behavior_set else ()
    data, numbers = ("fork:fork-2",), tuple(range(seeds))
    made = Fleet(data, algo, algo, "default", k, numbers, 0, 0, 400)
    return replace(made, **changes)


def on_gpu(folder: Path = Path("absent")) -> Costs:
    """Replicas share the time of the device; nothing is measured."""
    found = Costs(folder, together=True)
    found.left = 0
    return found


@pytest.fixture
def gpu(monkeypatch) -> None:
    monkeypatch.setattr(cost, "PATIENCE", 0.0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(memory, "available", lambda jobs: 1e11)


# Stages


@pytest.mark.parametrize(("limit", "taken"), [("max\n", False), ("123456\n", True)])
def test_a_container_may_have_less_memory_than_its_machine(
    limit, taken, tmp_path, monkeypatch
):
    (tmp_path / "memory.max").write_text(limit)
    absent = tmp_path / "absent"
    monkeypatch.setattr(memory, "CONTAINER", (absent,))
    whole = memory.host_memory()
    assert whole > 1e9
    monkeypatch.setattr(memory, "CONTAINER", (absent, tmp_path / "memory.max"))
    assert memory.host_memory() == (123456 if taken else whole)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_stages_of_every_learner_are_those_that_it_trains(algo):
    learner = algorithm(algo)
    found, policies = rehearse(request_of(fleet(algo), [CHEETAH]))
    planned = request_of(fleet(algo), [CHEETAH]).stages
    assert [stage.steps for stage in found] == [one.steps for one in planned]
    assert len(policies) == 2
    if planned[-1].steps:
        (own,) = programs(found[-1])
        assert own.chunk.update is learner.update
        assert (own.steps, own.replicas) == (planned[-1].steps, 2)
        # As much as a layer of 200 for a batch, forward and backward, and less than
        # what a GPU does in a tenth of a second.
        assert 1e7 < own.flops < 4e12
        assert own.state_bytes > 1e5
    if learner.fits_behavior_set:
        updates = [program.steps for program in programs(found[0])]
        assert len(updates) == 2  # embed first, then with codes
        assert sum(updates) == 30_000  # as `fit` takes for 100,000 transitions


def test_operations_of_a_known_update_are_counted():
    """Behavior cloning: three products forward, twice as many backward."""
    states, actions, width, rows = 17, 6, 64, 32
    options = {"width": width, "batch_size": rows}
    one = fleet("bc", 1, options=options)
    stages, _ = rehearse(request_of(one, [CHEETAH]))
    (own,) = programs(stages[0])
    products = 2 * rows * (states * width + width * width + width * 2 * actions)
    backward = 2 * products - 2 * rows * states * width  # none for the observations
    assert products + backward < own.flops < 1.6 * (products + backward)


def test_the_first_updates_are_timed():
    """On this device, whatever it is."""
    one = fleet("bc", 1, options=TINY | {"steps": 2000})
    stages, _ = rehearse(request_of(one, [CHEETAH]))
    each, compiling = programs(stages[0])[0].measure()
    assert each > 0
    assert compiling >= 0


def test_times_make_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(Program, "measure", lambda program: (0.01, 2.0))
    options = TINY | {"steps": 2000}
    costs = Costs(tmp_path, together=False)
    (sizes,) = costs.sizes(fleet("bc"))
    found = costs.cost(fleet("bc", 1, options=options))
    assert found.measured
    assert found.seconds == pytest.approx(2000 * 0.01 + 2)
    # On a CPU one replica trains after the other, in one program.
    twice = costs.cost(fleet("bc", 2, options=options))
    assert twice.seconds == pytest.approx(2 * 2000 * 0.01 + 2)
    # Without time to measure, by operations and the rate of those that were measured.
    costs.left = 0
    counted = costs.cost(fleet("vae_bc", 1, options=options))
    assert not counted.measured
    mine = costs.programs(fleet("bc", 1, options=options), sizes)[0]
    other = costs.programs(fleet("vae_bc", 1, options=options), sizes)[0]
    rate = 0.01 / mine.flops
    assert counted.seconds == pytest.approx(2000 * rate * other.flops)


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
    costs = on_gpu(tmp_path)

    assert joined(apart, costs.kind, lambda _: 1) == apart
    hopper = (*tasks[:3], "zoo:hopper-medium")
    found = joined(apart, costs.kind, lambda _: 3)
    learnt = [f.data for f in found if f.algo == "bc"]
    assert learnt == [hopper[:2], hopper[2:], tuple(tasks[3:]), apart[-2].data]
    assert [f.data for f in found if f.algo == "mopo"] == learnt
    keys = [key for f in found for key in f.keys]
    assert sorted(map(str, keys)) == sorted(str(k) for f in apart for k in f.keys)
    assert len({f.name for f in found}) == len(found)
    assert all(len(f.name) < 80 for f in found if f.data != apart[-2].data)


def test_sizes_matter_where_behaviors_would_be_fitted_for_another_time(tmp_path):
    costs = on_gpu(tmp_path)

    def fleets_of(*data: str) -> int:
        apart = [fleet("clone", data=(d,), transitions=None) for d in data]
        return len(joined(apart, costs.kind, lambda _: 9))

    # 1, 0.4 and 2 million transitions: 60,000 updates each.
    assert fleets_of(*[f"zoo:hopper-medium{also}" for also in ("", "-replay")]) == 1
    assert fleets_of("zoo:hopper-medium", "zoo:hopper-medium-expert") == 1
    small = datasets.make("hopper-medium", 300)
    datasets.save(small, tmp_path / "small.npz")
    assert fleets_of("zoo:hopper-medium", str(tmp_path / "small.npz")) == 2


def test_worlds_that_end_in_other_ways_are_not_learnt_together(tmp_path):
    """Walker2d and HalfCheetah have the same sizes; one of them falls."""
    costs = on_gpu(tmp_path)
    sets = ["zoo:walker2d-medium", "zoo:halfcheetah-medium", "zoo:walker2d-random"]
    for algo, expected in [("bc", 1), ("mopo", 2), ("mopp", 2)]:
        apart = [fleet(algo, data=(data,)) for data in sets]
        assert len(joined(apart, costs.kind, lambda _: 9)) == expected
    data = datasets.make("fork-2", 300)
    datasets.save(replace(data, env_id="Pendulum-v1"), tmp_path / "a.npz")
    datasets.save(replace(data, env_id="Pendulum-v1"), tmp_path / "b.npz")
    apart = [fleet("mopo", data=(str(tmp_path / f"{n}.npz"),)) for n in "ab"]
    assert joined(apart, costs.kind, lambda _: 9) == apart


def test_how_many_is_decided_by_the_device(tmp_path, gpu, monkeypatch):
    apart = [fleet("bc", 3, data=(f"fork:fork-{k}",)) for k in range(1, 6)]

    def sizes(most: int | None) -> list[int]:
        answer = estimate.answer(tmp_path, Asked(apart, together=most))
        return [len(fleet.data) for fleet in answer.fleets]

    assert sizes(None) == [5]
    assert sizes(2) == [2, 2, 1]
    few = on_gpu(tmp_path).memory(replace(apart[0], data=apart[0].data * 3))
    monkeypatch.setattr(memory, "available", lambda jobs: few)
    assert sizes(None) == [2, 3]
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(memory, "available", lambda jobs: 1e12)
    assert sizes(None) == [1] * 5


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


def test_memory_decides_about_parts(tmp_path, gpu, monkeypatch):
    mopo, few = fleet("mopo", 4), fleet("mopo", 2)
    whole, half = (on_gpu(tmp_path).memory(one) for one in (mopo, few))
    # At least the imagined transitions: 50 rollouts of 5 steps, of 1000 updates.
    assert whole - half > 2 * 250_000 * 4 * (2 * 4 + 2 + 2)

    def answer(limit: float) -> Estimate:
        monkeypatch.setattr(memory, "available", lambda jobs: limit)
        return estimate.answer(tmp_path, Asked([mopo]))

    assert answer(whole).fleets == [mopo]
    found = answer((whole + half) / 2)
    assert [len(part.seeds) for part in found.fleets] == [3, 1]
    with pytest.raises(UserError, match="one run needs .* GB of memory and may use"):
        answer(1e6)


def test_the_table_of_an_estimate(tmp_path, gpu):
    (tmp_path / "broken.npz").write_bytes(b"no data")
    broken = fleet("bc", data=(str(tmp_path / "broken.npz"),))
    asked = Asked([fleet("bc"), broken])
    found = estimate.answer(tmp_path, Asked.from_json(asked.to_json()))
    text = Estimate.from_json(found.to_json()).table()
    first, second, total = text.splitlines()[1:]
    assert first.split()[:2] == ["fork-fork-2/bc", "2"]
    assert first.endswith("operations")
    assert "cannot be read" in second
    assert "all on this device (" in total
    assert total.endswith("of 100.0 GB memory")


def test_where_several_run_at_a_time_the_longest_begins(tmp_path, monkeypatch):
    (tmp_path / "broken.npz").write_bytes(b"no data")
    broken = fleet("bc", data=(str(tmp_path / "broken.npz"),))
    asked = [
        broken,
        *[fleet("bc", 1, options=TINY | {"steps": n}) for n in (100, 9000, 3000)],
    ]
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
