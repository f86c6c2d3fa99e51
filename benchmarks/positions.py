"""Positions that change: how many plans loops over them compile, and what a new one costs.

    python benchmarks/positions.py                  # on the GPU
    python benchmarks/positions.py --check          # and every tensor beside the CPU's at the end
    python benchmarks/positions.py --idle           # no GPU: kernels are written and counted, and do nothing

Each turn reads or writes a tensor at the next position. Columns: turns, plans that were compiled and filled in, ms of
a turn that compiled one, and of the others for the first time (medians, by the clock, each waited for).
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

os.environ["GENESIS_PLAN_CACHE"] = "0"

from idle_gpu import idle_gpu  # the variable is read when plans are first asked for

import genesis
import genesis.nn.functional as F
from genesis import engine, nn


def ramp(device: str, *shape: int) -> Any:
    """Numbers between -1 and 1, the same on all devices."""
    count = 1
    for size in shape:
        count *= size
    found = (genesis.arange(float(count)) * 0.37).sin().reshape(shape)
    genesis.eval(found)
    return found.to(device)


def ring(device: str) -> Iterator[Any]:
    """A token's keys and values go to a row of a cache, all of which is attended to."""
    k, v = ramp(device, 1, 4, 32, 64), ramp(device, 1, 4, 32, 64)
    w, x = ramp(device, 256, 256), ramp(device, 1, 256)
    for at in range(32):
        q = (x @ w).view(1, 4, 1, 64) * 0.1
        k[:, :, at:at + 1], v[:, :, at:at + 1] = q * 2, q * 3
        y = F.scaled_dot_product_attention(q, k, v)
        genesis.eval(y, k, v)
        yield y, k, v


def as_much_as_was_written(device: str) -> Iterator[Any]:
    """The same, and only the rows that were written are attended to."""
    k, q = ramp(device, 1, 4, 256, 64), ramp(device, 1, 4, 1, 64)
    for at in range(255):
        k[:, :, at:at + 1] = q * 2
        y = F.scaled_dot_product_attention(q, k[:, :, :at + 1], k[:, :, :at + 1])
        genesis.eval(y, k)
        yield y, k


def a_row(device: str) -> Iterator[Any]:
    """A row of a table."""
    table, x = ramp(device, 64, 250), ramp(device, 4, 250)
    for at in range(64):
        y = (x + table[at]).softmax(-1)
        genesis.eval(y)
        yield (y,)


def batches(device: str) -> Iterator[Any]:
    """Training over slices of the data."""
    genesis.manual_seed(0)
    data, net = ramp(device, 256, 32), nn.Linear(32, 8).to(device)
    optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)
    for at in range(0, 256, 4):
        optimizer.zero_grad()
        net(data[at:at + 4]).square().mean().backward()
        optimizer.step()
        yield (net.weight,)


def tokens(device: str) -> Iterator[Any]:
    """A column of tokens from the one before."""
    t = (genesis.arange(128) % 50).reshape(2, 64).to(device)
    table = ramp(device, 50, 32)
    for at in range(63):
        t[:, at + 1] = (table[t[:, at]] @ table.T).argmax(-1)
        genesis.eval(t)
        yield (t,)


def layers(device: str) -> Iterator[Any]:
    """One cache for all layers."""
    cache, x, w = ramp(device, 6, 2, 4, 64, 64), ramp(device, 4, 64), ramp(device, 64, 64)
    for at in range(48):
        y = x
        for layer in range(6):
            y = y @ w * 0.1
            cache[layer, 0, :, at], cache[layer, 1, :, at] = y * 2, y * 3
            y = y + (cache[layer, 0] * cache[layer, 1]).sum(1)
        genesis.eval(y, cache)
        yield y, cache


LOOPS = (ring, as_much_as_was_written, a_row, batches, tokens, layers)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", action="store_true", help="a pretended GPU whose kernels do nothing")
    parser.add_argument("--check", action="store_true", help="compare every turn's tensors with the CPU's")
    arguments = parser.parse_args()
    with idle_gpu() if arguments.idle else nullcontext():
        print(f"{'loop':24} {'turns':>5} {'compiled':>9} {'filled in':>9} {'ms':>8} {'ms':>6}", flush=True)
        for loop in LOOPS:
            engine.reset()
            plans: list[Any] = []
            compiled, filled, worst, turns = [], [], 0.0, 0
            expected = loop("cpu") if arguments.check else None
            found = loop("cuda")
            while True:
                with engine.observe(plans.append):
                    before, start = sum(plan.origin == "compiled" for plan in plans), time.perf_counter()
                    given = next(found, None)
                    if given is None:
                        break
                    genesis.cuda.synchronize()
                    spent = (time.perf_counter() - start) * 1e3
                turns += 1
                new = sum(plan.origin == "compiled" for plan in plans) > before
                (compiled if new else filled).append(spent)
                for x, y in zip(given, next(expected, ()) if expected is not None else (), strict=False):
                    worst = max(worst, (x.detach().cpu().double() - y.detach().double()).abs().max().item())
            origins = Counter(plan.origin for plan in plans if plan.backend.name == "cuda")
            median = [f"{statistics.median(x):.2f}" if x else "-" for x in (compiled, filled)]
            print(f"{loop.__name__:24} {turns:5} {origins['compiled']:9} {origins['other size']:9} {median[0]:>8} "
                  f"{median[1]:>6}" + (f"  worst difference {worst:.1e}" if arguments.check else ""), flush=True)


if __name__ == "__main__":
    main()
