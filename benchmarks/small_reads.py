"""Reading one small value in each iteration of a loop, as reinforcement learning and logging do, beside torch.

    python benchmarks/small_reads.py [--out]

Microseconds of processor time a call, the least of several rounds' means, one thread. The bar is 25 µs for a read of
two ops. Where the loop writes in place, memory that others see is overwritten before the read.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import process_time
from typing import Any

import record
import torch

import genesis

BAR = 25e-6
ROUNDS, CALLS = 12, 300


def programs(lib: Any) -> dict[str, Callable[[], Any]]:
    """The loops' bodies, in Genesis or in torch."""
    x, w, many = lib.ones(4), lib.ones(4, requires_grad=True), lib.ones(64)
    policy = lib.nn.Sequential(lib.nn.Linear(4, 16), lib.nn.Tanh(), lib.nn.Linear(16, 2))
    seen = {"mean": lib.zeros(4), "total": lib.zeros(()), "ema": lib.zeros(4), "at": 0}

    def mean_of_all() -> Any:
        seen["mean"] = seen["mean"] * 0.9 + x * 0.1
        return seen["mean"][0].item()

    def in_place() -> Any:
        seen["total"] += 1.5
        return seen["total"].item()

    def in_place_mean() -> Any:
        seen["ema"].mul_(0.9).add_(x)
        return seen["ema"].sum().item()

    def one_after_the_other() -> Any:
        seen["at"] = (seen["at"] + 1) % 64
        return many[seen["at"]].item()

    def action() -> Any:
        with lib.no_grad():
            return policy(lib.tensor([0.1, 0.2, 0.3, 0.4])).argmax().item()
    return {
        "(x * 2).sum().item()": lambda: (x * 2).sum().item(),
        "(w * x).sum().item(), with gradients": lambda: (w * x).sum().item(),
        "float(x.max())": lambda: float(x.max()),
        "bool((x > 0).all())": lambda: bool((x > 0).all()),
        "tensor(3.0).item()": lambda: lib.tensor(3.0).item(),
        "many[i].item()": one_after_the_other,
        "mean = mean * 0.9 + x * 0.1; mean[0].item()": mean_of_all,
        "total += 1.5; total.item()": in_place,
        "ema.mul_(0.9).add_(x); ema.sum().item()": in_place_mean,
        "policy(tensor(observation)).argmax().item()": action,
    }


def seconds(call: Callable[[], Any]) -> float:
    """Processor time of a call."""
    for _ in range(30):
        call()
    found = []
    for _ in range(ROUNDS):
        start = process_time()
        for _ in range(CALLS):
            call()
        found.append((process_time() - start) / CALLS)
    return min(found)


def main() -> None:
    """Time all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_out(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    theirs, rows = programs(torch), []
    for name, call in programs(genesis).items():
        rows.append({"name": name, "genesis": seconds(call), "torch": seconds(theirs[name])})
        print(f"{name:48}{rows[-1]['genesis'] * 1e6:8.1f} µs   torch {rows[-1]['torch'] * 1e6:6.1f}")
    if args.out:
        record.write(args.out, "small_reads", bar=BAR, rows=rows)


if __name__ == "__main__":
    main()
