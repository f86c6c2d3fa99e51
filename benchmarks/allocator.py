"""What a user pays for device memory: allocation and release in pairs, beside torch's caching allocator.

    python benchmarks/allocator.py --out       # a GPU with torch
    python benchmarks/allocator.py --pretend   # no GPU: Genesis alone, on a driver that does nothing

Each workload is one list of requests, made from a seed; both sides run it in the same loop, in turns, through what
their users hold: `CUDAStorage(nbytes, device)` and `torch.empty(nbytes, dtype=torch.uint8, device="cuda")`. A pair is
one allocation and the release of it or of an earlier one. Times are means over a round, the median of the rounds; the
floor is the same loop around an empty Python class with a constructor and a finalizer. Driver calls are segments taken
and given back, each of which takes up to a millisecond on a GPU.

The bars are ratios to torch's time in the same run.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import record

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
ROUNDS = 9

Workload = list[tuple[int, int]]
"""(slot, nbytes): what the slot held is released, then that much is put there; 0 bytes only release."""

BARS = {"same size": 1.43, "over 1 MB": 3.92, "transformer step": 1.89, "under pressure": 4.83}
PRESSURE_LIMIT = 4 * GIB
ALIVE = 0.5


def same_size(round_: int, pairs: int = 4000) -> Workload:
    """One block again and again."""
    return [(0, 64 * KIB)] * pairs


def over_a_megabyte(round_: int, pairs: int = 4000) -> Workload:
    """Blocks of 2 to 64 MiB, two of them alive."""
    sizes = [2 * MIB, 3 * MIB, 5 * MIB, 8 * MIB, 16 * MIB, 31 * MIB, 64 * MIB]
    return [(at % 2, sizes[at % len(sizes)]) for at in range(pairs)]


def transformer_step(round_: int, layers: int = 12, batch: int = 8, length: int = 1024, width: int = 768) -> Workload:
    """A forward that keeps what the backward reads, the backward that lets go of it, and temporaries in between."""
    tokens = 2 * batch * length  # bytes of a column in bfloat16
    kept = [tokens * width, tokens * 3 * width, tokens * width, tokens * width, tokens * 4 * width, tokens * 4 * width]
    steps: Workload = []
    for layer in range(layers):
        for at, nbytes in enumerate(kept):
            steps += [(layer * 8 + at, nbytes), (1000, tokens * width), (1000, 0)]
    for layer in reversed(range(layers)):
        for at, nbytes in reversed(list(enumerate(kept))):
            steps += [(1000, nbytes), (1001, width * width * 4), (layer * 8 + at, 0), (1000, 0)]
    return steps + [(1001, 0)]


def under_pressure(round_: int, pairs: int = 4000) -> Workload:
    """Blocks of 1 to 64 MiB, other sizes in each round, with half of what the process may take alive.

    Where holes are too small for a request, cached memory goes back to the driver; where that does not help, a tenth of
    the blocks is let go of (`run`).
    """
    draw = random.Random(round_)
    alive: dict[int, int] = {}
    steps: Workload = []
    for slot in range(pairs):
        nbytes = int(MIB * 2 ** draw.uniform(0, 6))
        while sum(alive.values()) + nbytes > ALIVE * PRESSURE_LIMIT:
            gone = draw.choice(list(alive))
            del alive[gone]
            steps.append((gone, 0))
        alive[slot] = nbytes
        steps.append((slot, nbytes))
    return steps + [(slot, 0) for slot in alive]


WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "same size": same_size, "over 1 MB": over_a_megabyte, "transformer step": transformer_step,
    "under pressure": under_pressure,
}


def run(steps: Sequence[tuple[int, int]], make: Callable[[int], Any]) -> float:
    """Seconds for a whole workload. When memory runs out, the oldest tenth of the blocks is let go of."""
    slots: dict[int, Any] = {}
    start = perf_counter()
    for slot, nbytes in steps:
        slots[slot] = None
        while nbytes:
            try:
                slots[slot] = make(nbytes)
                break
            except RuntimeError:  # what both sides' out of memory is
                alive = [key for key, block in slots.items() if block is not None]
                for key in alive[:max(1, len(alive) // 10)]:
                    slots[key] = None
    return perf_counter() - start


def _nothing(nbytes: int) -> None:
    return None


class Empty:
    """The least that a Python class with a finalizer costs."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int):
        self.nbytes = nbytes

    def __del__(self) -> None:
        pass


def measure(workload: Callable[[int], Workload], makers: dict[str, Callable[[int], Any]],
            settle: Callable[[], None], calls: Callable[[], dict[str, int]]) -> tuple[dict[str, float], dict[str, int]]:
    """Nanoseconds a pair for each maker, the loop's own time taken off, and `calls` made since the first rounds."""
    found: dict[str, list[float]] = {name: [] for name in makers}
    for round_ in range(ROUNDS + 2):
        if round_ == 2:
            before = calls()
        steps = workload(round_)
        pairs = sum(1 for _, nbytes in steps if nbytes)
        own = min(run(steps, _nothing) for _ in range(3))
        for name, make in makers.items():
            settle()
            seconds = run(steps, make) - own
            if round_ >= 2:  # the first rounds fill the caches
                found[name].append(seconds / pairs * 1e9)
    made = {name: count - before[name] for name, count in calls().items()}
    return {name: median(times) for name, times in found.items()}, made


def driver_calls(stats: dict[str, int]) -> int:
    """Segments taken and given back so far, of the statistics that Genesis and torch both have."""
    return stats["num_device_alloc"] + stats["num_device_free"]


def main() -> None:
    """Run the workloads and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretend", action="store_true", help="Genesis alone, on a driver that does nothing")
    record.add_out(parser)
    options = parser.parse_args()

    import genesis
    makers: dict[str, Callable[[int], Any]] = {"python": Empty}
    statistics: dict[str, Callable[[], dict[str, int]]] = {"genesis": genesis.cuda.memory_stats}
    if options.pretend:
        from idle_gpu import IdleDriver

        from genesis.runtime.cuda import cuda_python_driver
        cuda_python_driver.install(IdleDriver())
    else:
        import torch
        makers["torch"] = lambda nbytes: torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        statistics["torch"] = torch.cuda.memory_stats
    gpu, storage = genesis.device("cuda"), genesis.cuda.CUDAStorage
    makers["genesis"] = lambda nbytes: storage(nbytes, gpu)

    def calls() -> dict[str, int]:
        return {name: driver_calls(ask()) for name, ask in statistics.items()}

    found: dict[str, dict[str, float]] = {}
    made: dict[str, dict[str, int]] = {}
    for name, workload in WORKLOADS.items():
        total = genesis.cuda.get_device_properties().total_memory
        fraction = PRESSURE_LIMIT / total if name == "under pressure" else 1.0
        genesis.cuda.empty_cache()
        genesis.cuda.set_per_process_memory_fraction(fraction)
        if "torch" in makers:
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(fraction)
        found[name], made[name] = measure(workload, makers, genesis.cuda.synchronize, calls)
    missed = report(found, made)
    if options.out:
        record.write(options.out, "allocator", bars=BARS, ns=found, driver_calls=made, missed=missed)


def report(found: dict[str, dict[str, float]], made: dict[str, dict[str, int]]) -> list[str]:
    """Print the table; the workloads below their bar."""
    print(f"{'ns a pair':20}{'genesis':>10}{'torch':>10}{'python':>10}{'ratio':>8}{'bar':>8}{'driver calls':>16}")
    missed = []
    for name, times in found.items():
        ratio = times["torch"] / times["genesis"] if "torch" in times else float("nan")
        if ratio < BARS[name]:
            missed.append(name)
        print(f"{name:20}{times['genesis']:10.0f}{times.get('torch', float('nan')):10.0f}{times['python']:10.0f}"
              f"{ratio:8.2f}{BARS[name]:8.2f}{' / '.join(map(str, made[name].values())):>16}")
    return missed


if __name__ == "__main__":
    main()
