"""The kernels of a model's training step: Genesis' launches and those of torch.compile, by what they take.

Steps are those of `model_steps.py`. Each of Genesis' launches is timed alone between two events; torch's kernels are
read from its profiler, means of a few steps. So a line of one side can be looked for on the other.

    python benchmarks/kernels_beside.py --row gpt2-b16
    python benchmarks/kernels_beside.py --row llama-1b --layers 4 --lines 30     # a layer's share: less to compile
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from in_turn import wait_for_turn
from launches import timed_launches
from model_steps import BATCHES, GenesisSide, Side, TorchSide, sizes_of
from step_models import ROWS

PROFILED = 2
"""Steps of torch's that its profiler looks at."""


def torch_kernels(step: Callable[[int], Any]) -> dict[str, dict[str, float]]:
    """Milliseconds and counts a step of what torch's step runs on the GPU, by kernel."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    step(0)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for i in range(PROFILED):
            step(i)
        torch.cuda.synchronize()
    spent: dict[str, list[float]] = defaultdict(list)
    for event in found.events():
        if str(event.device_type).endswith("CUDA"):
            spent[event.name].append(event.time_range.elapsed_us() / 1e3)
    rows = sorted(spent.items(), key=lambda row: -sum(row[1]))
    return {name: {"ms": sum(times) / PROFILED, "count": len(times) / PROFILED} for name, times in rows}


def step_times(runs: Mapping[str, Callable[[int], Any]], sides: Mapping[str, Side], steps: int,
               rounds: int) -> dict[str, float]:
    """Milliseconds of a step, by contestant: medians of rounds that take turns."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            run(0)
            sides[name].synchronize()
            start = time.perf_counter()
            for i in range(steps):
                run(i)
            sides[name].synchronize()
            found[name].append((time.perf_counter() - start) / steps * 1e3)
    return {name: median(each) for name, each in found.items()}


def told(name: str, rows: Mapping[str, Mapping[str, float]], lines: int) -> None:
    """Print the longest of a side's kernels."""
    total, count = (sum(row[key] for row in rows.values()) for key in ("ms", "count"))
    print(f"{name}: {total:.2f} ms in {count:.0f} kernels", flush=True)
    for label, row in list(rows.items())[:lines]:
        print(f"  {row['ms']:8.3f} ms {row['count']:5.0f} x {row['ms'] / row['count'] * 1e3:8.1f} us  {label[:150]}",
              flush=True)


def main() -> None:
    """Prepare both sides, then time and look."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", default="gpt2-b16", choices=tuple(ROWS))
    parser.add_argument("--layers", type=int, default=0, help="fewer than the model's")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--in-turn", action="store_true", help="prepare, then wait for a line of stdin")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = sizes_of(args, args.row)
    theirs = TorchSide(args.row, sizes, "cuda")
    ours = GenesisSide(args.row, sizes, "cuda", theirs.weights)
    compiled = theirs.step("compile")
    runs: dict[str, Callable[[int], Any]] = {
        "compile": lambda i: compiled(*theirs.data[i % BATCHES]),
        "genesis": lambda i: ours.run(*ours.data[i % BATCHES])}
    for run in runs.values():
        for i in range(3):
            run(i).item()
    if args.in_turn and not wait_for_turn():
        return
    found = step_times(runs, {"compile": theirs, "genesis": ours}, args.steps, args.rounds)
    print(f"{args.row}, {sizes}: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in found.items())
          + f", {found['compile'] / found['genesis']:.3f} x", flush=True)
    runs["genesis"](0)
    ours.synchronize()
    told("genesis, each launch alone", timed_launches(), args.lines)
    told("torch.compile", torch_kernels(runs["compile"]), args.lines)


if __name__ == "__main__":
    main()
