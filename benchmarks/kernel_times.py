"""Where an update's time goes on a GPU: a profile of some updates, kernel by kernel.

Of an update's time what is not in kernels is in gaps between them.
Usage: python benchmarks/kernel_times.py [--algos lbrac_v cql] [--replicas 1 25]
       [--top 30] [--out FOLDER for the compiled programs]
"""

import argparse
import re
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import jax
from train import prepare, rows_of

from manyhands import fleet

UPDATES = 200


def profile(asked: str, replicas: int, out: Path | None):
    """Seconds of an update; the calls and microseconds of each kernel in it."""
    update, batch_size, state, group = prepare(asked, replicas, 100_000)
    data = rows_of(100_000)

    def advance(state):
        state, _ = fleet.advance(update, state, group, data, 0, UPDATES, batch_size)
        return jax.block_until_ready(state)

    if out:
        sizes = data.observation_size, data.action_size
        rest = data.rows, jax.numpy.int32(0), UPDATES, batch_size, sizes
        text = fleet._together.lower(update, state, group, *rest).compile().as_text()
        name = re.sub(r"\W", "-", asked)
        out.mkdir(exist_ok=True)
        (out / f"{name}-{replicas}.hlo").write_text(text or "")
    state = advance(advance(state))
    started = time.perf_counter()
    state = advance(state)
    seconds = (time.perf_counter() - started) / UPDATES
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            advance(state)
        (file,) = Path(folder).rglob("*.xplane.pb")
        found = jax.profiler.ProfileData.from_file(str(file))
    kernels = defaultdict(lambda: [0, 0.0])
    for plane in found.planes:
        if "device:GPU" not in plane.name:
            continue
        for line in plane.lines:
            if "Stream" not in line.name:
                continue
            for event in line.events:
                about = {str(key): value for key, value in event.stats}
                one = kernels[event.name, str(about.get("hlo_op", ""))]
                one[0] += 1
                one[1] += event.duration_ns / 1e3
    return seconds, {
        name: (calls / UPDATES, us / UPDATES) for name, (calls, us) in kernels.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algos", nargs="+", default=["lbrac_v"])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 25])
    parser.add_argument("--top", type=int, default=30)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for asked in args.algos:
        for replicas in args.replicas:
            seconds, kernels = profile(asked, replicas, args.out)
            calls = sum(one[0] for one in kernels.values())
            busy = sum(one[1] for one in kernels.values())
            print(
                f"{asked}, {replicas} replicas: {seconds * 1e6:.0f} us an update,"
                f" {calls:.0f} kernels, {busy:.0f} us in them",
                flush=True,
            )
            slowest = sorted(kernels.items(), key=lambda pair: -pair[1][1])
            for (name, op), (calls, us) in slowest[: args.top]:
                print(f"{us:9.2f} us {calls:6.1f} x  {op[:34]:34} {name[:90]}")


if __name__ == "__main__":
    main()
