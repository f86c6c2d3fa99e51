"""Kernels that take sizes as arguments beside kernels that name them: the same step in one process, on the GPU.

    python benchmarks/symbolic_kernels.py                    # all cases
    python benchmarks/symbolic_kernels.py --case decode      # only this one
    python benchmarks/symbolic_kernels.py --idle             # no GPU: only how many kernels there are, and take sizes

The first size of a program is named by its kernels; after another size of its class was met they take it as an
argument. So each case is timed with its size first, and behind one that is larger by 16. The two alternate, and the
least of all rounds counts. What is timed is the plan of the step alone, run over the same memories again and again:
recording the step takes the host longer than small steps take the GPU. Plans from disk would mix the two: they are
off. A position (`cache[:, :, at:at + 1] = k`) is an argument from the first program on, but for the first row: that is
what it is compared with.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

os.environ["GENESIS_PLAN_CACHE"] = "0"

from idle_gpu import idle_gpu  # the variable is read when plans are first asked for

import genesis
import genesis.nn.functional as F
from genesis import engine, nn
from genesis.engine.compilation import Compiled
from genesis.models import GPT, GPTConfig
from genesis.runtime.plan import Launch

Run = Callable[[], Any]
Made = Callable[[], Callable[[int], Run]]
"""Makes a model; what it gives makes the step of a size."""

OTHER: int = 16
"""How much larger the size is that is met first."""


def gpt() -> Callable[[int], Run]:
    """A training step of a GPT of four layers over 8 sequences."""
    model = GPT(GPTConfig(vocab_size=512, context=1040, layers=4, heads=8, dim=512)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-3)

    def of(length: int) -> Run:
        tokens = genesis.zeros(8, length, dtype=genesis.int64).cuda()
        genesis.eval(tokens)
        return _training(lambda: model(tokens, tokens)[1], optimizer)
    return of


def convolutions() -> Callable[[int], Run]:
    """A training step of a convolutional network over 32 images, as high as the size and half as wide again."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to("cuda")
    optimizer = genesis.optim.SGD(model.parameters(), lr=1e-2)

    def of(side: int) -> Run:
        x = genesis.randn(32, 3, side, side * 3 // 2).cuda()
        genesis.eval(x)
        return _training(lambda: model(x).square().mean(), optimizer)
    return of


def decode() -> Callable[[int], Run]:
    """A token of 32 sequences in bfloat16: keys and values are appended to four layers' caches, and attended to."""
    layers = [nn.Linear(768, 3 * 768).to("cuda", genesis.bfloat16) for _ in range(4)]

    def of(length: int) -> Run:
        caches = [[genesis.randn(32, 12, length, 64).to("cuda", genesis.bfloat16) for _ in range(2)] for _ in layers]
        x = genesis.randn(32, 1, 768).to("cuda", genesis.bfloat16)
        genesis.eval(x, *(cache for pair in caches for cache in pair))

        def run() -> None:
            with genesis.no_grad():
                y = x
                grown = []
                for layer, (k, v) in zip(layers, caches, strict=True):
                    q, key, value = layer(y).view(32, 1, 3, 12, 64).permute(2, 0, 3, 1, 4)
                    k, v = genesis.cat([k, key], 2), genesis.cat([v, value], 2)
                    y = y + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(32, 1, 768)
                    grown += [k, v]
                genesis.eval(y, *grown)
        return run
    return of


def ring() -> Callable[[int], Run]:
    """The same with caches of 1024 rows, one of which is written: the size is its position."""
    layers = [nn.Linear(768, 3 * 768).to("cuda", genesis.bfloat16) for _ in range(4)]
    caches = [[genesis.zeros(32, 12, 1024, 64, dtype=genesis.bfloat16).cuda() for _ in range(2)] for _ in layers]
    x = genesis.randn(32, 1, 768).to("cuda", genesis.bfloat16)
    genesis.eval(x, *(cache for pair in caches for cache in pair))

    def of(at: int) -> Run:
        def run() -> None:
            with genesis.no_grad():
                y = x
                for layer, (k, v) in zip(layers, caches, strict=True):
                    q, key, value = layer(y).view(32, 1, 3, 12, 64).permute(2, 0, 3, 1, 4)
                    k[:, :, at:at + 1], v[:, :, at:at + 1] = key, value
                    y = y + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(32, 1, 768)
                genesis.eval(y, *(cache for pair in caches for cache in pair))
        return run
    return of


def _training(loss_of: Callable[[], Any], optimizer: Any) -> Run:
    def run() -> None:
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return run


CASES: dict[str, tuple[Made, int]] = {
    "decode": (decode, 777), "ring": (ring, 700), "gpt 1000": (gpt, 1000), "convolutions": (convolutions, 200),
    "convolutions, odd": (convolutions, 181), "gpt 200": (gpt, 200), "gpt 1007": (gpt, 1007)}
"""Name → what makes it, and the size."""


def steps(name: str) -> Iterator[tuple[str, Run]]:
    """("fixed" or "symbolic", the step), each in an engine of its own."""
    made, size = CASES[name]
    for kind, first in (("fixed", 0 if made is ring else size), ("symbolic", size + OTHER)):
        engine.reset()
        genesis.manual_seed(0)
        of = made()
        warm = of(first)
        warm()  # makes the weights and the optimizer's state, too
        warm()
        yield kind, of(0 if made is ring and kind == "fixed" else size)


def planned(run: Run) -> tuple[Compiled, Run]:
    """The plan of a step, and what runs it again over the memories that the step had."""
    found: list[tuple[Compiled, list[Any], list[Any]]] = []
    start = Compiled.start

    def noted(self: Compiled, memories: Any, numbers: Any) -> Any:
        found.append((self, list(memories), list(numbers)))
        return start(self, memories, numbers)
    Compiled.start = noted  # type: ignore[method-assign]
    try:
        run()
    finally:
        Compiled.start = start  # type: ignore[method-assign]
    compiled, memories, numbers = found[-1]
    return compiled, lambda: compiled.run(memories, numbers)


def sizes_of(compiled: Compiled) -> tuple[int, int]:
    """Launches of a plan, and numbers that these are given: sizes that kernels do not name."""
    kernels = [step for step in compiled.plan.steps if isinstance(step, Launch)]
    return len(kernels), sum(type(x) is int for step in kernels for x in step.args)


def measured(run: Run, rounds: int = 12, count: int = 10) -> float:
    """µs of a run, the least of some rounds."""
    found = []
    for _ in range(rounds):
        genesis.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            run()
        genesis.cuda.synchronize()
        found.append((time.perf_counter() - start) * 1e6 / count)
    return min(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", action="store_true", help="a pretended GPU whose kernels do nothing")
    parser.add_argument("--case", choices=CASES, help="only this one")
    parser.add_argument("--turns", type=int, default=2, help="how often the two alternate (default: %(default)s)")
    arguments = parser.parse_args()
    with idle_gpu() if arguments.idle else nullcontext():
        print(f"{'case':18} {'launches':>8} {'numbers':>10} {'fixed':>10} {'symbolic':>10}", flush=True)
        for name in [arguments.case] if arguments.case else CASES:
            times: dict[str, list[float]] = {"fixed": [], "symbolic": []}
            counts: dict[str, tuple[int, int]] = {}
            for _ in range(arguments.turns):
                for kind, run in steps(name):
                    compiled, again = planned(run)
                    counts[kind] = sizes_of(compiled)
                    times[kind].append(measured(again, 1 if arguments.idle else 12))
            fixed, symbolic = (min(times[kind]) for kind in ("fixed", "symbolic"))
            print(f"{name:18} {counts['fixed'][0]:3}/{counts['symbolic'][0]:<4} "
                  f"{counts['fixed'][1]:4}/{counts['symbolic'][1]:<5} {fixed:7.0f} µs {symbolic:7.0f} µs "
                  f"{symbolic / fixed - 1:+.1%}", flush=True)


if __name__ == "__main__":
    main()
