"""Fleets on a Ray cluster, each a task; the only file that imports ray.

What a fleet needs of its node is a GPU or cores. Its run directory lies on storage that
all nodes share: when a node dies, Ray starts the task on another one, and the fleet
goes on from its checkpoint. Rows come back to the driver, which alone writes results.
"""

import contextlib
import os
import socket
import warnings
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from manyhands.errors import UserError, require
from manyhands.sweep.benchmark import Outcome
from manyhands.sweep.local import run_process
from manyhands.sweep.making import Making
from manyhands.sweep.plan import Fleet

NODES_LOST = 3  # under one fleet, after which it is begun again
CORES = 4  # of a fleet, where there is no GPU


class Share(NamedTuple):
    """What a fleet has of a node."""

    gpus: float
    cpus: int

    def __str__(self) -> str:
        return f"{self.gpus:g} GPUs and {self.cpus} cores"


@dataclass(frozen=True)
class Ray:
    """On the cluster that RAY_ADDRESS names or that runs here, else on one of this
    machine alone that ends with the benchmark."""

    gpus: float | None = None  # of a fleet; None: one, where the cluster has any
    cpus: int | None = None  # None: one beside a GPU, else a few

    def __post_init__(self) -> None:
        gpus, cpus = self.gpus, self.cpus
        if gpus is not None and (gpus < 0 or (gpus > 1 and gpus % 1)):
            raise UserError(
                "gpus per fleet: expected 0, a part of one such as 0.25, or a whole "
                f"number, got {gpus:g}"
            )
        if cpus is not None and cpus < 1:
            raise UserError(f"cpus per fleet: expected at least 1, got {cpus}")
        _ray()  # absent: say so before anything is written

    def run(
        self, folder: Path, todo: list[Fleet], data: Making
    ) -> Generator[Outcome, None, None]:
        if not todo:
            return
        ray = _ray()
        with _cluster(ray), ThreadPoolExecutor(1) as aside:
            share = choose(
                [n["Resources"] for n in ray.nodes() if n["Alive"]],
                self.gpus,
                self.cpus,
            )
            task = ray.remote(_run).options(
                name="manyhands fleet",
                num_gpus=share.gpus,
                num_cpus=share.cpus,
                max_retries=NODES_LOST,
                scheduling_strategy="SPREAD",  # an idle node before a busy one
            )
            # Nodes have other working directories.
            given = folder.resolve(), Path.cwd(), share.gpus
            waiting = {aside.submit(data.wait, fleet): fleet for fleet in todo}
            tasks = {}
            try:
                while waiting or tasks:
                    for there in [one for one in waiting if one.done()]:
                        fleet, error = waiting.pop(there), there.exception()
                        if isinstance(error, UserError | OSError):
                            yield Outcome(fleet, None, str(error))
                        elif error:
                            raise error
                        else:
                            tasks[task.remote(fleet, *given)] = fleet
                    ended, _ = ray.wait(list(tasks), timeout=0.5) if tasks else ([], [])
                    for one in ended:
                        yield _outcome(ray, one, tasks.pop(one))
                    if not tasks:
                        wait(waiting, return_when=FIRST_COMPLETED)
            finally:
                aside.shutdown(wait=False, cancel_futures=True)
                data.give_up()
                for left in tasks:  # by Ctrl-C
                    ray.cancel(left, force=True)


def choose(
    nodes: list[dict[str, float]], gpus: float | None, cpus: int | None
) -> Share:
    """What a fleet gets. Ray would wait forever for what no node has."""
    has = [(node.get("GPU", 0), node.get("CPU", 0)) for node in nodes]
    if gpus is None:
        gpus = 1 if any(g >= 1 for g, _ in has) else 0
    if cpus is None:
        most = max((int(c) for g, c in has if g >= gpus), default=1)
        cpus = 1 if gpus else max(1, min(CORES, most))
    share = Share(gpus, cpus)
    if not any(g >= gpus and c >= cpus for g, c in has):
        nodes_have = "; ".join(str(Share(g, int(c))) for g, c in sorted(set(has)))
        raise UserError(
            f"cluster: expected a node with {share} for a fleet, got nodes with "
            f"{nodes_have or 'nothing'}"
        )
    return share


def _run(fleet: Fleet, folder: Path, here: Path, gpus: float) -> Outcome:
    """The task, in a process of Ray's on some node. The fleet has one of its own, which
    ends with it however it ends."""
    if not folder.is_dir():
        raise UserError(
            f"{folder}: not found on {socket.gethostname()}; expected a directory on "
            "storage that all nodes share"
        )
    if 0 < gpus < 1:
        # JAX takes most of a GPU at once, whoever else is there.
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 * gpus:.3f}")
    with contextlib.suppress(OSError):  # data files may be named relative to it
        os.chdir(here)
    return run_process(folder, fleet)


def _outcome(ray: Any, ended: Any, fleet: Fleet) -> Outcome:
    try:
        return ray.get(ended)
    except ray.exceptions.RayError as error:  # nodes were lost, or the task raised
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # What a task raised ends with its error; Ray's own begin with it.
        raised = isinstance(error, ray.exceptions.RayTaskError)
        words = lines[-1 if raised else 0] if lines else type(error).__name__
        return Outcome(fleet, None, words, killed=not raised)


@contextlib.contextmanager
def _cluster(ray: Any) -> Iterator[None]:
    """Connected, for as long as this is needed."""
    if ray.is_initialized():  # by the caller, who has use for it afterwards
        yield
        return
    # Ray would report to its makers; this program sends nothing anywhere.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.rpartition(":")
    try:
        if port.isdecimal() and "/" not in host:  # Ray would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        with warnings.catch_warnings():
            # JAX warns of forks; Ray's are other programs a moment later.
            warnings.simplefilter("ignore", RuntimeWarning)
            ray.init(
                include_dashboard=False, log_to_driver=False, logging_level="ERROR"
            )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        words = " ".join(str(error).split())
        if not isinstance(error, OSError) or error.errno is None:  # it is there
            words += " (RAY_AUTH_MODE and versions must be those of its head)"
        raise UserError(
            f"Ray cluster {address or 'of this machine'}: cannot connect: {words}"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _ray() -> Any:
    return require("ray", extra="ray", purpose="--engine ray")
