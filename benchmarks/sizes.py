"""Sizes that change: how many kernels each loop compiles, and what a new value and one met before cost.

    python benchmarks/sizes.py                      # on the GPU; also symbolic against fixed kernels
    python benchmarks/sizes.py --idle               # no GPU: kernels are written and counted, and do nothing
    python benchmarks/sizes.py --loop lengths --steps 100

Loops: training a small GPT over lengths from 1 to 1024; a convolutional network over images of 16 to 256 a side; a
cache that grows by `cat`, attended to at each step; training over batches of 1 to 512. Times are processor time of the
step's recording, look-up, filling in and launching; the host waits for nothing in between. "late" kernels were compiled
in the second half of the steps. Then the same values come again ("met before").
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from idle_gpu import idle_gpu

import genesis
import genesis.nn.functional as F
from genesis import engine, nn
from genesis.engine.backends import backend_named
from genesis.models import GPT, GPTConfig

Run = Callable[[], Any]


@dataclass
class Found:
    """What a loop's steps were like.

    Attributes:
        kernels: different kernels compiled; `late` of them in the second half of the steps with new values.
        templates: plans that were compiled.
        new, known: ms of a step whose value was met for the first time and compiled nothing, and of one met before.
        fill: ms of finding the plan, for a new value, for each 100 kernels.
        fixed: reasons why sizes stayed numbers.
    """

    kernels: int = 0
    late: int = 0
    templates: int = 0
    new: list[float] = field(default_factory=list)
    known: list[float] = field(default_factory=list)
    fill: list[float] = field(default_factory=list)
    fixed: set[str] = field(default_factory=set)


def lengths(steps: int, chance: random.Random) -> Iterator[Run]:
    """A training step of a GPT with two layers over sequences of random length."""
    model = GPT(GPTConfig(vocab_size=512, context=1024, layers=2, heads=4, dim=64)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        yield _gpt_step(model, optimizer, 8, chance.randint(1, 1024))


def batches(steps: int, chance: random.Random) -> Iterator[Run]:
    """A training step of a GPT with two layers over random numbers of sequences."""
    model = GPT(GPTConfig(vocab_size=512, context=64, layers=2, heads=4, dim=64)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        yield _gpt_step(model, optimizer, chance.randint(1, 512), 64)


def _gpt_step(model: Any, optimizer: Any, batch: int, length: int) -> Run:
    tokens = genesis.zeros(batch, length, dtype=genesis.int64).cuda()
    genesis.eval(tokens)

    def run() -> None:
        loss = model(tokens, tokens)[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return run


def images(steps: int, chance: random.Random) -> Iterator[Run]:
    """A training step of a convolutional network over images of random height and width."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(32, 10)).to("cuda")
    optimizer = genesis.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x = genesis.zeros(8, 3, chance.randint(16, 256), chance.randint(16, 256)).cuda()
        genesis.eval(x)

        def run(x: Any = x) -> None:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield run


def cache(steps: int, chance: random.Random) -> Iterator[Run]:
    """A token's keys and values are appended to a cache, and all of it is attended to."""
    kept: dict[str, Any] = {name: genesis.zeros(1, 4, 1, 64).cuda() for name in ("k", "v")}
    query = genesis.zeros(1, 4, 1, 64).cuda()
    genesis.eval(query, *kept.values())
    for _ in range(steps):
        def run() -> None:
            k, v = (genesis.cat([kept[name], query * 2], 2) for name in ("k", "v"))
            y = F.scaled_dot_product_attention(query, k, v)
            genesis.eval(k, v, y)
            kept.update(k=k, v=v)
        yield run


LOOPS = {"lengths": lengths, "images": images, "cache": cache, "batches": batches}


@contextmanager
def counting(found: Found) -> Iterator[Callable[[], int]]:
    """Counts different kernels that are compiled inside."""
    from genesis.engine import plans
    backend, seen = type(backend_named("cuda")), set()
    compiled, find = backend.compile, plans.find

    def counted(self: Any, sources: Any) -> Any:
        seen.update(repr(source.key_parts()) for source in sources)
        return compiled(self, sources)

    def timed(*given: Any) -> Any:
        start = time.process_time()
        plan = find(*given)
        if plan.origin == "other size" and len(plan.plan.steps) > 1:
            found.fill.append((time.process_time() - start) * 1e5 / len(plan.plan.steps))
        found.templates += plan.origin == "compiled" and plan.backend.keeps_plans
        if plan.fixed_sizes and plan.backend.keeps_plans:
            found.fixed.add(plan.fixed_sizes)
        return plan

    backend.compile, plans.find = counted, timed  # type: ignore[method-assign, assignment]
    try:
        yield lambda: len(seen)
    finally:
        backend.compile, plans.find = compiled, find  # type: ignore[method-assign]


def measured(name: str, steps: int, seed: int = 0) -> Found:
    """Run a loop of new values, then the same values again where it draws them."""
    found = Found()
    genesis.manual_seed(0)
    engine.reset()
    with counting(found) as kernels:
        for again in range(1 if name == "cache" else 2):
            for at, run in enumerate(LOOPS[name](steps, random.Random(seed))):
                before, start = found.templates, time.process_time()
                run()
                spent = (time.process_time() - start) * 1e3
                if at == steps // 2 and not again:
                    found.late = kernels()
                if again:
                    found.known.append(spent)
                elif found.templates == before:
                    found.new.append(spent)
            if not again:
                found.kernels = kernels()
        found.late = found.kernels - found.late
    return found


def fixed_against_symbolic(length: int) -> tuple[float, float]:
    """µs of a training step whose kernels name its length, and of one whose kernels take it as an argument."""
    def timed(first: int) -> float:
        engine.reset()
        genesis.manual_seed(0)
        model = GPT(GPTConfig(vocab_size=512, context=1024, layers=4, heads=8, dim=512)).to("cuda")
        optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-3)
        if first != length:
            _gpt_step(model, optimizer, 8, first)()
        run = _gpt_step(model, optimizer, 8, length)
        rounds = []
        for _ in range(30):
            genesis.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(5):
                run()
            genesis.cuda.synchronize()
            rounds.append((time.perf_counter() - start) * 2e5)
        return min(rounds)
    return timed(length), timed(length + 16)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", action="store_true", help="a pretended GPU whose kernels do nothing")
    parser.add_argument("--loop", choices=LOOPS, help="only this one")
    parser.add_argument("--steps", type=int, default=200, help="values that each loop draws (default: %(default)s)")
    parser.add_argument("--why", action="store_true", help="print why plans were compiled again")
    arguments = parser.parse_args()
    with idle_gpu() if arguments.idle else nullcontext():
        print(f"{'loop':8} {'steps':>6} {'plans':>6} {'kernels':>8} {'late':>5} {'new value':>10} {'met before':>11} "
              f"{'fill/100':>9}")

        def told(plan: Any) -> None:
            if arguments.why and plan.recompilation is not None:
                print(*plan.recompilation.lines(), sep="\n")

        for name in [arguments.loop] if arguments.loop else LOOPS:
            with engine.observe(told):
                row = measured(name, arguments.steps)
            times = [f"{statistics.median(x):.2f}" if x else "-" for x in (row.new, row.known, row.fill)]
            print(f"{name:8} {arguments.steps:6} {row.templates:6} {row.kernels:8} {row.late:5} {times[0]:>7} ms "
                  f"{times[1]:>8} ms {times[2]:>6} ms")
            for reason in sorted(row.fixed):
                print(f"    sizes stayed numbers: {reason}")
        if not arguments.idle:
            for length in (200, 1000):
                fixed, symbolic = fixed_against_symbolic(length)
                print(f"a step of 8 × {length}: {fixed:.0f} µs fixed, {symbolic:.0f} µs symbolic "
                      f"({symbolic / fixed - 1:+.1%})")


if __name__ == "__main__":
    main()
