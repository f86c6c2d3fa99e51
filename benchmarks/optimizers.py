"""A step of every optimizer over 17 M parameters of a U-Net, and clipping, beside torch's, alternating in one process.

    python benchmarks/optimizers.py [--rounds 12] [--out]

Milliseconds of processor time, the least of the rounds, one thread. torch has a loop and foreach calls: the faster of
the two counts. The bar is 1 × torch. On a GPU each is one launch, clipping by the norm two more
(`tests/gpu/test_kernel_counts.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from time import process_time
from typing import Any

import record
import torch

import genesis

WIDTHS = 64, 128, 256, 512
NAMES = "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Rprop", "ASGD", "Adamax", "NAdam", "RAdam"
BAR = 1.0


def shapes() -> list[tuple[int, ...]]:
    """Convolutions with biases and norms, down and up again, and a layer over their features."""
    found: list[tuple[int, ...]] = []
    before = 3
    for width in (*WIDTHS, *reversed(WIDTHS)):
        for given in (before, width):
            found += [(width, given, 3, 3), (width,), (width,), (width,)]
        before = width
    return [*found, (1024, 5120), (1024,), (1, 64, 1, 1), (1,)]


def parameters(lib: Any) -> list[Any]:
    """Parameters with gradients, in memory."""
    found = [lib.randn(*shape).requires_grad_() for shape in shapes()]
    for p in found:
        p.grad = lib.randn(*p.shape)
    if lib is genesis:
        genesis.eval(found, [p.grad for p in found])
    return found


def least(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least processor time of each, called in turn."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = process_time()
            call()
            found[name] = min(found[name], process_time() - start)
    return found


def steps_of(name: str) -> dict[str, Callable[[], Any]]:
    """The steps of one optimizer."""
    options = {"lr": 1e-3, **({"momentum": 0.9} if name == "SGD" else {})}
    ours, theirs = parameters(genesis), parameters(torch)
    return {"genesis": getattr(genesis.optim, name)(ours, **options).step,
            **{f"torch, foreach={how}": getattr(torch.optim, name)(theirs, foreach=how, **options).step
               for how in (False, True)}}


def clipping(share: float) -> dict[str, Callable[[], Any]]:
    """Clipping by the norm, to a share of the one before in each call; ours is computed before the call ends."""
    def calls(lib: Any, bound: float = 1e3) -> Iterator[None]:
        own = parameters(lib)
        while True:
            lib.nn.utils.clip_grad_norm_(own, bound)
            if lib is genesis:
                genesis.eval([p.grad for p in own])
            bound *= share
            yield
    return {lib.__name__: partial(next, calls(lib)) for lib in (genesis, torch)}


CLIPPING = {"clip_grad_norm_": 0.9, "clip_grad_norm_, short enough": 1.01}
"""Rows of clipping: the share of the norm before that each call allows."""


def main() -> None:
    """Time all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    record.add_out(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{sum(map(prod, shapes())) / 1e6:.1f} M parameters in {len(shapes())} tensors")
    rows = []
    for name in (*NAMES, *CLIPPING):
        found = least(clipping(CLIPPING[name]) if name in CLIPPING else steps_of(name), args.rounds)
        ratio = found["genesis"] / min(seconds for how, seconds in found.items() if how != "genesis")
        rows.append({"name": name, **found, "ratio": ratio})
        print(f"{name:30}" + "".join(f"{how} {seconds * 1e3:7.1f} ms   " for how, seconds in found.items())
              + f"{ratio:.2f} × torch")
    if args.out:
        record.write(args.out, "optimizers", bar=BAR, rows=rows)


if __name__ == "__main__":
    main()
