"""Fleets on clusters that are real, and lose nodes that are."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyhands.cli import main
from manyhands.errors import UserError
from manyhands.sweep import local, ray_engine
from manyhands.sweep.benchmark import benchmark
from manyhands.sweep.making import Making
from manyhands.sweep.plan import Fleet, fleets
from manyhands.sweep.preset import parse
from manyhands.sweep.ray_engine import Ray, Share, choose
from manyhands.sweep.results import Results

linux = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
# Ray leaves files and processes to the garbage collector.
untidy = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::FutureWarning",
)

QUICK = {"name": "bc", "steps": 20}
# Fits a behavior set first, and then takes some seconds.
TWO_STAGES = {
    "name": "lbrac_v",
    "k": [2],
    "behavior_steps": 300,
    "steps": 4000,
    "warm_up": 10,
    "batch_size": 64,
    "critic_width": 32,
}


def content(*algos: dict[str, Any], seeds: tuple[int, ...] = (0,)) -> dict[str, Any]:
    about = {"data": ["fork:fork-2"], "transitions": 800, "episodes": 0}
    return about | {"seeds": list(seeds), "algo": [dict(algo) for algo in algos]}


@pytest.fixture
def cluster(monkeypatch) -> Iterator[Any]:
    """A head without cores; tests add nodes."""
    pytest.importorskip("ray", reason="needs ray: pip install 'manyhands[ray]'")
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's workers give way to everybody else: beside a busy test they would starve.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def wait_for(what: Callable[[], Any], seconds: float = 120) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s")


def holders(path: Path, words: str = "") -> list[int]:
    """Processes that have a file open, whose command line contains these words."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            files = [os.readlink(file) for file in (place / "fd").iterdir()]
            command = (place / "cmdline").read_text()
        except OSError:  # not ours, or it has ended
            continue
        if str(path.resolve()) in files and words in command:
            found.append(int(place.name))
    return found


def writers(folder: Path, fleet: Fleet) -> list[int]:
    return holders(folder / "runs" / fleet.name / "log.txt", "run_fleet")


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(status.partition("PPid:")[2].split()[0])
        yield pid


def raylet(node: Any) -> int:
    return node.all_processes["raylet"][0].process.pid


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def where(folder: Path, fleet: Fleet, nodes: list[Any]) -> tuple[int, Any]:
    """The process of a fleet and its node, once the second stage has begun."""
    wait_for((folder / "runs" / fleet.name / "metrics.jsonl").exists, 300)
    (pid,) = writers(folder, fleet)
    (node,) = [n for n in nodes if raylet(n) in ancestors(pid)]
    return pid, node


@untidy
def test_a_fleet_that_fails_does_not_stop_the_others(cluster, tmp_path, monkeypatch):
    cluster.add_node(num_cpus=2)
    monkeypatch.chdir(tmp_path)  # a relative folder must do
    given = parse("some", content(QUICK, QUICK | {"label": "broken"}, seeds=(0, 1)))
    broken = fleets(given, ("broken",))[0]
    place = Path("out") / "runs" / broken.name
    place.mkdir(parents=True)
    (place / "config.json").write_text("not JSON")
    said = []

    failed = benchmark(
        given,
        Path("out"),
        Ray(cpus=1),
        progress=lambda done, of, words: said.append(words),
    )
    assert [outcome.fleet for outcome in failed] == [broken]
    log = (place / "log.txt").read_text().splitlines()
    assert failed[0].error == log[-1]
    rows = Results(Path("out")).rows()
    assert [(row["label"], row["seed"]) for row in rows] == [("bc", 0), ("bc", 1)]
    assert len(said) == 3  # one fleet that ends, two attempts at the other


class Held:
    """Data of which one set cannot be made, and another one takes forever."""

    def __init__(self):
        self.given_up = threading.Event()

    def wait(self, fleet: Fleet) -> None:
        if fleet.data == ("fork:bad",):
            raise UserError("could not be made")
        if fleet.data == ("fork:slow",):
            assert self.given_up.wait(120)
            raise UserError("nobody makes it any more")

    def give_up(self) -> None:
        self.given_up.set()


@untidy
def test_fleets_go_on_while_other_data_is_made(cluster, tmp_path):
    cluster.add_node(num_cpus=1)
    fleet = fleets(parse("some", content(QUICK)))[0]
    with Making(tmp_path, [fleet]) as making:
        making.wait(fleet)
    todo = [
        replace(fleet, data=("fork:bad",)),
        fleet,
        replace(fleet, data=("fork:slow",)),
    ]
    outcomes = Ray(cpus=1).run(tmp_path, todo, Held())  # pyright: ignore
    first, second = next(outcomes), next(outcomes)
    assert (first.fleet, first.rows) == (todo[0], None)
    assert first.error == "could not be made"
    assert second.fleet == fleet
    assert second.rows
    outcomes.close()  # and does not wait for the third


@untidy
@linux
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_ends_leaves_no_process_behind(by, cluster, tmp_path):
    cluster.add_node(num_cpus=2, num_gpus=1)  # or so Ray believes
    preset = tmp_path / "some.toml"
    lines = [f"{key} = {value!r}" for key, value in TWO_STAGES.items()]
    preset.write_text(
        'data = ["fork:fork-2"]\ntransitions = 800\nseeds = [0]\nepisodes = 0\n'
        + "\n".join(["[[algo]]", *lines])
    )
    fleet = fleets(parse("some", content(TWO_STAGES)))[0]
    words = f"-m manyhands benchmark {preset} --out {tmp_path / 'out'} --engine ray"
    words += " --gpus-per-fleet 0.5"
    driver = subprocess.Popen([sys.executable, *words.split()])
    (pid,) = wait_for(lambda: writers(tmp_path / "out", fleet))
    environ = Path(f"/proc/{pid}/environ").read_text().split("\0")
    assert "CUDA_VISIBLE_DEVICES=0" in environ
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION=0.450" in environ
    driver.send_signal(by)
    assert driver.wait(30) == (130 if by == signal.SIGINT else -by)
    wait_for(lambda: not alive(pid), 30)
    assert not writers(tmp_path / "out", fleet)


@untidy
@linux
def test_a_node_is_killed_in_the_middle_of_a_fleet(cluster, tmp_path):
    nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
    given = parse("some", content(TWO_STAGES, QUICK, QUICK | {"label": "third"}))
    fleet = fleets(given)[0]
    behavior = tmp_path / "runs" / fleet.name / "behavior" / "summary.json"

    def kill() -> int:
        pid, node = where(tmp_path, fleet, nodes)
        cluster.remove_node(node, allow_graceful=False)
        wait_for(lambda: not alive(pid), 30)
        assert not (tmp_path / "runs" / fleet.name / "rows.json").exists()
        return behavior.stat().st_mtime_ns

    with ThreadPoolExecutor(1) as aside:
        killing = aside.submit(kill)
        failed = benchmark(given, tmp_path, Ray(cpus=1))
        fitted = killing.result()
    assert not failed
    keys = [(row["label"], row["k"]) for row in Results(tmp_path).rows()]
    assert sorted(keys) == [("bc", None), ("lbrac_v", "2"), ("third", None)]
    assert not (tmp_path / "failures.jsonl").exists()
    assert behavior.stat().st_mtime_ns == fitted  # it went on, and not from the start


def test_shares():
    cpu, gpu = {"CPU": 16.0}, {"CPU": 8.0, "GPU": 2.0}
    assert choose([cpu], None, None) == Share(0, 4)
    assert choose([{"CPU": 2.0}], None, None) == Share(0, 2)
    assert choose([cpu, gpu], None, None) == Share(1, 1)
    assert choose([cpu, gpu], 0, None) == Share(0, 4)
    assert choose([cpu, gpu], 0.25, 2) == Share(0.25, 2)


@pytest.mark.parametrize(("gpus", "cpus"), [(4, None), (0.5, 9), (None, 17)])
def test_what_no_node_has_is_refused(gpus, cpus):
    nodes = [{"CPU": 16.0}, {"CPU": 8.0, "GPU": 2.0}, {}]
    with pytest.raises(UserError, match=r"^cluster: expected a node with .* 16 cores;"):
        choose(nodes, gpus, cpus)


@pytest.mark.parametrize("words", ["gpus 1.5", "gpus -1", "cpus 0"])
def test_shares_that_cannot_be(words):
    name, value = words.split()
    with pytest.raises(UserError, match=f"^{name} per fleet: expected"):
        Ray(**{name: float(value) if name == "gpus" else int(value)})


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = f"benchmark smoke --out {tmp_path / 'out'} --engine ray"
    assert main.run(words.split()) == 1
    assert "pip install 'manyhands[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words", ["--engine ray --jobs 2", "--gpus-per-fleet 1", "--cpus-per-fleet 2"]
)
def test_options_of_the_other_engine_are_refused(words, tmp_path, capsys):
    words = f"benchmark smoke --out {tmp_path / 'out'} {words}"
    assert main.run(words.split()) == 1
    assert "only with --engine" in capsys.readouterr().err


def test_storage_that_is_not_shared_is_named(tmp_path):
    fleet = fleets(parse("some", content(QUICK)))[0]
    with pytest.raises(UserError, match="expected a directory on storage"):
        ray_engine._run(fleet, tmp_path / "absent", tmp_path, 0)


def test_a_run_that_another_process_writes_is_left_alone(tmp_path, monkeypatch):
    """The fleet of an earlier attempt, whose caller has ended."""
    pytest.importorskip("fcntl", reason="no locks on this system")
    monkeypatch.setattr(local, "PATIENCE", 0.3)
    fleet = fleets(parse("some", content(QUICK)))[0]
    log = tmp_path / "runs" / fleet.name / "log.txt"
    log.parent.mkdir(parents=True)
    with log.open("ab") as file:
        assert local._claim(file, local.Live())
        program = [sys.executable, "-c", "input()"]
        other = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=file)
    with other:
        outcome = local.run_process(tmp_path, fleet)
        assert other.stdin
        other.stdin.write(b"\n")
    assert outcome.rows is None
    assert "another process is still at work" in outcome.error
    with log.open("ab") as file:
        assert local._claim(file, local.Live())


def test_a_cluster_that_is_not_there(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs ray: pip install 'manyhands[ray]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    fleet = fleets(parse("some", content(QUICK)))[0]
    with pytest.raises(UserError, match=f"^Ray cluster 127.0.0.1:{port}: cannot"):
        next(Ray().run(tmp_path, [fleet], lambda fleet: None))
