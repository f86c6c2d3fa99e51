"""What recording one op costs: the median time of a call that computes nothing.

    python benchmarks/recording.py [--out]

Every call makes a node that does not exist yet, as a new step does. Freeing the results and their
nodes is part of the time, as it is of a step's. A batch is shorter than what is taken for an endless
loop: the turns of that are computed while it is recorded (`genesis/engine/limits.py`).
"""

from __future__ import annotations

import argparse
import gc
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import record

import genesis
from genesis.nn import functional as F

LIMIT_NS = 8000
RESULTS = Path(__file__).resolve().parent / "results"


def inputs(count: int) -> list[Any]:
    """Fresh tensors in memory: no two have a node in common."""
    found = [genesis.zeros(8, 16) for _ in range(count)]
    genesis.eval(found)
    return found


def operations() -> dict[str, Callable[[Any], Any]]:
    """The calls to measure, by how a user writes them."""
    y, weight, bias = inputs(1)[0], genesis.ones(16), genesis.zeros(16)
    parameter = genesis.ones(8, 16, requires_grad=True)
    rows = genesis.tensor([3, 0, 2])
    genesis.eval([weight, bias, parameter, rows])
    return {
        "x + y": lambda x: x + y,
        "x * 2.0": lambda x: x * 2.0,
        "x.exp()": lambda x: x.exp(),
        "x.view(16, 8)": lambda x: x.view(16, 8),
        "x.view(16, 8) + 1.0": lambda x: x.view(16, 8) + 1.0,
        "F.layer_norm(x, (16,), w, b)": lambda x: F.layer_norm(x, (16,), weight, bias),
        "x.sum()": lambda x: x.sum(),
        "x.sum(-1, keepdim=True)": lambda x: x.sum(-1, keepdim=True),
        "x * w (requires grad)": lambda x: x * parameter,
        "x @ y.mT": lambda x: x @ y.mT,
        "x.add_(1.0)": lambda x: x.add_(1.0),
        "x[2:4]": lambda x: x[2:4],
        "x[rows]": lambda x: x[rows],
        "x.tril()": lambda x: x.tril(),
        "stack([x, y])": lambda x: genesis.stack([x, y]),
    }


def measure(call: Callable[[Any], Any], batch: int, rounds: int) -> dict[str, float]:
    """Median and least nanoseconds of a call, over rounds of a batch of calls."""
    found = []
    for _ in range(rounds):
        xs = inputs(batch)
        gc.collect()
        gc.disable()
        start = perf_counter_ns()
        kept = [call(x) for x in xs]
        del kept
        found.append((perf_counter_ns() - start) / batch)
        gc.enable()
    return {"median_ns": round(statistics.median(found)), "least_ns": round(min(found))}


def main() -> None:
    """Measure, print a table, and with --out write it as JSON."""
    parser = argparse.ArgumentParser(description="What recording one op costs.")
    record.add_out(parser)
    parser.add_argument("--batch", type=int, default=100, help="calls in a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=25, help="rounds (default: %(default)s)")
    options = parser.parse_args()
    table = {name: measure(call, options.batch, options.rounds) for name, call in operations().items()}
    print(f"{'op':32} {'median':>10} {'least':>10}")
    for name, row in table.items():
        mark = "" if row["median_ns"] <= LIMIT_NS else f"   above {LIMIT_NS} ns"
        print(f"{name:32} {row['median_ns']:7.0f} ns {row['least_ns']:7.0f} ns{mark}")
    if options.out:
        record.write(options.out, "recording", limit_ns=LIMIT_NS, ops=table)


if __name__ == "__main__":
    main()
