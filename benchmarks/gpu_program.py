"""Kernels and bytes of an update on a GPU, counted on a machine without one.

XLA compiles for a GPU by its description alone; the loop's program is then read. Bytes
are those that kernels read and write at most: a slice counts as the array that it is
taken from, and caches are not known. For comparing two programs, not for times.
It needs JAX's CUDA plugin, in an environment of its own (pip install
jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12, of JAX's version).
Usage: python benchmarks/gpu_program.py [--algos cql lbrac_v] [--replicas 6] [--top 20]
"""

import argparse
import os
import re
from math import prod

import jax
from jax.experimental import topologies
from train import ACTIONS, STATES, prepare, rows_of

from manyhands import fleet

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
FREE = {"get-tuple-element", "parameter", "tuple", "bitcast", "constant"}
SIZES = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "pred": 1, "u8": 1}  # s8: workspace
LINE = re.compile(r"\s+(?:ROOT )?%?(\S+) = (.*?) ([a-z-]+)\((.*?)\)")


def program(asked: str, replicas: int) -> str:
    """What XLA makes of 500 updates."""
    described = topologies.get_topology_desc(
        "h200", "cuda", target_config=H200, topology="1x1x1"
    )
    there = jax.sharding.SingleDeviceSharding(described.devices[0])

    def shapes(tree):
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), tree
        )

    rows = 10_000
    update, batch_size, state, group = prepare(asked, replicas, rows)
    first = jax.ShapeDtypeStruct((), "int32", sharding=there)
    table = shapes(rows_of(rows).rows)
    arguments = update, shapes(state), shapes(group), table, first, 500, batch_size
    text = fleet._together.lower(*arguments, (STATES, ACTIONS)).compile().as_text()
    assert text
    return text


def bytes_of(shape: str) -> int:
    arrays = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shape)
    return sum(
        SIZES.get(kind, 0) * prod(int(n) for n in axes.split(",") if n)
        for kind, axes in arrays
    )


def kernels(text: str) -> list[tuple[int, str, str, str]]:
    """Of the loop's body: bytes, name, results, and what it was made from."""
    parts = re.split(r"\n(?=[%\w].*\{\n)", text)
    body = max(parts, key=lambda part: part.count("custom-call("))
    sizes, found = {}, []
    for line in body.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        name, shape, operation, operands = match.groups()
        sizes[name] = bytes_of(shape)
        if operation in FREE:
            continue
        read = sum(sizes.get(o.split()[-1].lstrip("%"), 0) for o in operands.split(","))
        source = re.search(r'op_name="(.*?)"', line)
        results = re.sub(r"\{[^}]*\}", "", shape)
        found.append(
            (read + sizes[name], name, results, source.group(1) if source else "")
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algos", nargs="+", default=["lbrac_v"])
    parser.add_argument("--replicas", type=int, default=6)
    parser.add_argument("--top", type=int, default=0, help="the largest ones, too")
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    os.environ.setdefault("XLA_FLAGS", FLAGS)
    print(f"an update of {args.replicas} replicas, jax {jax.__version__}")
    for name in args.algos:
        found = kernels(program(name, args.replicas))
        moved = sum(one[0] for one in found) / 1e6
        print(f"{name:16}{len(found):6} kernels{moved:8.0f} MB", flush=True)
        for size, kernel, results, source in sorted(found, reverse=True)[: args.top]:
            print(f"{size / 1e6:10.1f} MB  {kernel[:36]:36} {results[:60]:60} {source}")


if __name__ == "__main__":
    main()
