"""What evaluating beside the training costs the training, in percent of its time.

LBRAC-v on Hopper, several replicas, with and without evaluations along the way, turn
about. Only the time from the first log line (everything is compiled) to the last update
counts, not what evaluations take after it; how long one takes alone is shown too.
Usage: python benchmarks/evaluation.py [--updates 40000] [--replicas 5]
"""

import argparse
import time

import jax

import manyhands as mh


def seconds(data, behavior, evaluations: int, args: argparse.Namespace) -> float:
    times: dict[int, float] = {}  # when so many updates were done first
    mh.train(
        data,
        "lbrac_v",
        behavior=behavior,
        seed=range(args.replicas),
        steps=args.updates,
        evaluations=evaluations,
        episodes=args.episodes,
        workers=args.workers,
        progress=lambda done, shown: times.setdefault(done, time.perf_counter()),
    )
    return times[args.updates] - times[min(times)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=40_000)
    parser.add_argument("--replicas", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--fit-steps", type=int, default=2000)
    args = parser.parse_args()
    data = mh.make("hopper-heterogeneous-5", 50_000)
    behavior = mh.fit(data, k=5, steps=args.fit_steps)
    policy = mh.train(data, "clone", behavior=behavior, episodes=0)
    many = args.replicas * args.episodes
    mh.evaluate(policy, episodes=many, workers=args.workers)  # compiles
    started = time.perf_counter()
    mh.evaluate(policy, episodes=many, workers=args.workers)
    alone = time.perf_counter() - started
    with_, without = [], []
    for _ in range(args.turns):
        without.append(seconds(data, behavior, 0, args))
        with_.append(seconds(data, behavior, args.evaluations, args))
    device = jax.devices()[0]
    print(f"{device.platform} {device.device_kind}, jax {jax.__version__}")
    print(
        f"{args.replicas} replicas, {args.updates} updates but for the first log line's"
    )
    print("without evaluations, s:", *[f"{s:.2f}" for s in without])
    print(
        f"with {args.evaluations} of {many} episodes, s:", *[f"{s:.2f}" for s in with_]
    )
    print(f"one such evaluation of a short clone, alone, s: {alone:.2f}")
    print(f"slower by {100 * (min(with_) / min(without) - 1):.1f} %")


if __name__ == "__main__":
    main()
