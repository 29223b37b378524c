"""Kernels and bytes of an update on a GPU, counted on a machine without one.

XLA compiles for a GPU by its description alone; the loop's program is then read. Bytes
are those that kernels read and write: every array once for each kernel, of slices what
is taken or put; caches are not known. What a loop within an update does counts as often
as it goes round. Products are cuBLAS's kernels. For comparing two programs, not for
times. Of MOPO and MOPP, which learn dynamics first and may plan, every part is counted
(plans: of a step of an evaluation of twenty episodes a replica).
It needs JAX's CUDA plugin, in an environment of its own (pip install
jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12, of JAX's version).
Usage: python benchmarks/gpu_program.py [--algos cql lbrac_v] [--replicas 6] [--top 20]
       python benchmarks/gpu_program.py --algos mopo mopp --task hopper --replicas 3
"""

import argparse
import os
import re
from collections.abc import Callable, Iterator
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from train import ACTIONS, STATES, prepare, rows_of

from manyhands import fleet
from manyhands.agents.tasks import TASKS
from manyhands.algos.policy import Policy
from manyhands.algos.registry import algorithm
from manyhands.sweep.cost import Program, programs, rehearse, request_of
from manyhands.sweep.data_sizes import Sizes
from manyhands.sweep.plan import Fleet

# Without trials of algorithms, for which there would have to be a GPU.
FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 150000000000 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
device_description_str: "NVIDIA H200"
"""
SLICES = {"slice", "dynamic-slice", "gather"}
PUT = {"dynamic-update-slice": 1, "scatter": 2}  # which operand is put into the first
FREE = {"get-tuple-element", "parameter", "tuple", "bitcast", "constant"}
SIZES = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "pred": 1, "u8": 1}  # s8: workspace
LOOP = re.compile(r'body=%?([^\s,]+).*?known_trip_count":\{"n":"(\d+)"')
LINE = re.compile(r"\s+(ROOT )?%?(\S+) = (.*?) ([a-z-]+)\((.*?)\)")
MARK = re.compile(r"/\*index=\d+\*/")  # at every fifth operand


UPDATES, ROWS, EPISODES = 500, 10_000, 20


def described() -> Callable:
    """Arrays, or shapes, as shapes on a GPU that need not be there."""
    device = topologies.get_topology_desc(
        "h200", "cuda", target_config=H200, topology="1x1x1"
    ).devices[0]
    there = jax.sharding.SingleDeviceSharding(device)

    def shape(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there)

    return lambda tree: jax.tree.map(shape, tree)


def compiled(
    asked: str, task: str, replicas: int, shapes: Callable
) -> Iterator[tuple[str, str]]:
    """The name of every program, and what XLA makes of it."""
    learner = algorithm(asked.split(":")[0])
    if all(need.learner != "dynamics" for need in learner.needs):
        update, batch_size, state, group = prepare(asked, replicas, ROWS)
        table = rows_of(ROWS).rows
        yield (
            asked,
            advancing(
                update, shapes((state, group, table)), batch_size, (STATES, ACTIONS)
            ),
        )
        return
    sizes = TASKS[task].observations, TASKS[task].actions
    stages, policies = of_a_table(asked, task)
    for name, one in stages:
        several = jax.tree.map(lambda x: _with_lead(x, replicas), one.arguments)
        state, _, _, config, fitted = several
        seeds = jnp.zeros(replicas, jnp.uint32)
        zeros = jnp.zeros(replicas, jnp.int32)
        group = fleet.Replicas(seeds, zeros, zeros, config, fitted)
        columns = 2 * (sizes[0] + sizes[1]) + 3
        table = jax.ShapeDtypeStruct((ROWS, columns), "float32")
        given = shapes((state, group, table))
        yield (
            f"{asked} {name}",
            advancing(one.chunk.update, given, one.chunk.batch_size, sizes),
        )
    if learner.acts_on_device:
        (policy,) = policies
        rows = jnp.zeros((EPISODES, sizes[0]))
        keys = jax.random.split(jax.random.key(0), EPISODES)
        given = policy.model, policy.box, rows, keys
        several = jax.tree.map(lambda x: _with_lead(x, replicas), given)
        text = jax.jit(jax.vmap(learner.act)).lower(*shapes(several)).compile()
        yield f"{asked} plans", text.as_text() or ""


def of_a_table(asked: str, task: str) -> tuple[list[tuple[str, Program]], list[Policy]]:
    """The programs of a run as in a table, and the policy that has learnt nothing."""
    about = TASKS[task]
    sizes = Sizes(about.observations, about.actions, ROWS, 10, about.env_id)
    one = Fleet((task,), asked, asked, "default", (), (0,), EPISODES, 0, None)
    request = request_of(one, [sizes])
    stages, policies = rehearse(request)
    names = [planned.name for planned in request.stages]
    found = [(n, p) for n, stage in zip(names, stages) for p in programs(stage)]
    return found, policies


def _with_lead(x, many: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((many, *x.shape), x.dtype)


def advancing(update, given, batch_size: int, sizes: tuple[int, int]) -> str:
    """Some updates of the fleet."""
    state, group, table = given
    first = jax.ShapeDtypeStruct((), "int32", sharding=table.sharding)
    arguments = update, state, group, table, first, UPDATES, batch_size, sizes
    return fleet._together.lower(*arguments).compile().as_text() or ""


def bytes_of(shape: str) -> int:
    arrays = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shape)
    return sum(
        SIZES.get(kind, 0) * prod(int(n) for n in axes.split(",") if n)
        for kind, axes in arrays
    )


class Step(NamedTuple):
    name: str
    shape: str
    operation: str
    given: list[str]  # names of steps
    last: bool  # what its part gives back
    line: str


class Kernel(NamedTuple):
    size: int  # bytes
    name: str
    results: str
    source: str  # what it was made from
    times: int  # in an update
    product: bool


def kernels(text: str) -> list[Kernel]:
    """Of one round of the outermost loop; of all of a program without such a loop."""
    parts = {}
    for part in re.split(r"\n(?=[%\w].*\{\n)", MARK.sub("", text)):
        name = re.match(r"(ENTRY )?%?([^\s(]+)", part)
        if name:
            parts["ENTRY" if name.group(1) else name.group(2)] = part
    loops = [p for p in re.findall(LOOP, parts["ENTRY"]) if int(p[1]) == UPDATES]
    return _in_part(parts, loops[0][0] if loops else "ENTRY", 1)


def _in_part(parts: dict[str, str], which: str, times: int) -> list[Kernel]:
    steps, found = _steps(parts[which]), []
    for step in steps.values():
        if step.operation in FREE:
            continue
        if step.operation == "while":
            body, rounds = re.findall(LOOP, step.line)[0]
            found += _in_part(parts, body, times * int(rounds))
            continue
        if step.operation == "fusion":
            inner = _steps(parts[re.findall(r"calls=%?([^\s,]+)", step.line)[0]])
        else:  # a kernel of one step
            inner = {n: steps[n]._replace(operation="parameter") for n in step.given}
            inner[step.name] = step._replace(last=True)
        source = re.search(r'op_name="(.*?)"', step.line)
        results = re.sub(r"\{[^}]*\}", "", step.shape)
        made_from = source.group(1) if source else ""
        product = 'custom_call_target="__cublas' in step.line
        found.append(
            Kernel(_moved(inner), step.name, results, made_from, times, product)
        )
    return found


def _steps(part: str) -> dict[str, Step]:
    found = {}
    for match in filter(None, map(LINE.match, part.splitlines())):
        last, name, shape, operation, given = match.groups()
        names = [o.split()[-1].lstrip("%") for o in given.split(",") if o.strip()]
        found[name] = Step(name, shape, operation, names, bool(last), match.string)
    return found


def _moved(steps: dict[str, Step]) -> int:
    """Bytes that a kernel of these steps reads and writes."""
    results = _results(steps, next(one for one in steps.values() if one.last))
    given = [one for one in steps.values() if one.operation == "parameter"]
    read = sum(_read(steps, results, one) for one in given)
    return read + sum(_written(steps, one) for one in results)


def _results(steps: dict[str, Step], last: Step) -> list[Step]:
    if last.operation not in ("tuple", "bitcast"):
        return [last]
    return [one for name in last.given for one in _results(steps, steps[name])]


def _read(steps: dict[str, Step], results: list[Step], array: Step) -> int:
    """The array once; less if all that is done with it is to take or put slices."""
    whole, read = bytes_of(array.shape), 0
    for user in steps.values():
        if array.name not in user.given:
            continue
        if user.operation == "bitcast":
            read += _read(steps, results, user)
        elif array.name != user.given[0]:
            read += whole
        elif user.operation in SLICES:
            read += bytes_of(user.shape)
        elif user.operation not in PUT or user not in results:
            read += whole
    return min(read, whole)


def _written(steps: dict[str, Step], result: Step) -> int:
    """All of it, or what is put into an array that was given: in its place."""
    if result.operation in PUT:
        into = _results(steps, steps[result.given[0]])[0]
        if into.operation == "parameter":
            result = steps[result.given[PUT[result.operation]]]
    return bytes_of(result.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algos", nargs="+", default=["lbrac_v"])
    parser.add_argument("--replicas", type=int, default=6)
    parser.add_argument("--task", default="halfcheetah", help="of MOPO's and MOPP's")
    parser.add_argument("--top", type=int, default=0, help="the largest ones, too")
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    os.environ.setdefault("XLA_FLAGS", FLAGS)
    shapes = described()
    print(f"an update of {args.replicas} replicas, jax {jax.__version__}")
    for asked in args.algos:
        for name, text in compiled(asked, args.task, args.replicas, shapes):
            found = kernels(text)
            many = sum(one.times for one in found)
            products = sum(one.times for one in found if one.product)
            moved = sum(one.times * one.size for one in found) / 1e6
            print(
                f"{name:16}{many:6} kernels, {products:4} products{moved:8.0f} MB",
                flush=True,
            )
            found.sort(key=lambda one: -one.times * one.size)
            for one in found[: args.top]:
                print(
                    f"{one.times:5} x{one.size / 1e6:8.1f} MB  {one.name[:36]:36} "
                    f"{one.results[:60]:60} {one.source}"
                )


if __name__ == "__main__":
    main()
