"""Replay of a plan of a thousand small kernels, each of which needs the one before, beside a CUDA graph of torch.

    python benchmarks/graph_replay.py [--kernels 1000] [--out]

Times are GPU times a kernel, by CUDA events around many replays. The bar: 1.0 µs a kernel. "branches" is the same
number of kernels as four chains that need each other only at the end: they overlap.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from typing import Any

import record

BAR = 1.0
ROUNDS, REPLAYS = 7, 20


def chain(x: Any, length: int) -> Any:
    """So many elementwise kernels, one after another."""
    for _ in range(length):
        x = (x * 1.5).abs()
    return x


def genesis_times(sizes: list[int], kernels: int) -> dict[str, float]:
    """Microseconds a kernel, by program and size."""
    import genesis
    genesis.config.fuse = False
    found = {}
    for size in sizes:
        x = genesis.ones(size, device="cuda")
        genesis.eval(x)
        programs: dict[str, Callable[[Any], Any]] = {
            "chain": lambda x: chain(x, kernels // 2),
            "branches": lambda x: [chain(x + k, kernels // 8) for k in range(4)],
        }
        for name, program in programs.items():
            run = genesis.compile(lambda x, program=program: program(x))

            def replay(run: Any = run, x: Any = x) -> None:
                with genesis.no_grad():
                    genesis.eval(run(x))
            found[f"{name} of {size}"] = events_time(genesis.cuda, replay) / steps_of_last_plan()
    return found


def steps_of_last_plan() -> int:
    """How many launches the plan has that ran last."""
    from genesis.engine import last_plan
    plan = last_plan()
    assert plan is not None
    return len(plan.plan.steps)


def torch_times(sizes: list[int], kernels: int) -> dict[str, float]:
    """The same chain as a CUDA graph of torch."""
    import torch
    found = {}
    for size in sizes:
        x = torch.ones(size, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            chain(x, 3)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            chain(x, kernels // 2)
        found[f"chain of {size}"] = events_time(torch.cuda, graph.replay) / kernels
    return found


def events_time(cuda: Any, replay: Callable[[], None]) -> float:
    """Microseconds a replay."""
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    for _ in range(3):
        replay()
    times = []
    for _ in range(ROUNDS):
        start.record()
        for _ in range(REPLAYS):
            replay()
        end.record()
        cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / REPLAYS)
    return median(times)


def main() -> None:
    """Measure, print, and write with --out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 65536])
    record.add_out(parser)
    options = parser.parse_args()
    rows = genesis_times(options.sizes, options.kernels)
    peer = torch_times(options.sizes, options.kernels)
    print(f"{'µs a kernel':<24}{'genesis':>10}{'torch':>10}")
    for name, time in rows.items():
        print(f"{name:<24}{time:>10.3f}{peer.get(name, float('nan')):>10.3f}" + ("  missed" if time > BAR else ""))
    if options.out is not None:
        record.write(options.out, "graph_replay", kernels=options.kernels, genesis=rows, torch_times=peer)


if __name__ == "__main__":
    main()
