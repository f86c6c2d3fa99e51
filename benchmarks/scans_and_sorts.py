"""Scans, sorts, the largest few, and rows of tables: Genesis, torch eager and torch.compile in one process.

Like `bars.py`, whose clock and shared memory it uses: results are compared with torch's before anything is timed, the
rate counts the least traffic (every input once, every output once; with the backward also the incoming gradient and
the outgoing ones), and sets of inputs take turns so that none is in the L2.

    python benchmarks/scans_and_sorts.py --out
    python benchmarks/scans_and_sorts.py --match topk --peers "" --kernels
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import record
import torch
from bar_workloads import Operand
from bars import COPY_BYTES, Row, as_torch, copy_rate, measure_each, parsed, room_for_copies, timed

import genesis
from genesis.engine import last_plan
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.stream import current_stream

SETS = 3
AHEAD_MS = 12
TOLERANCE = {"torch.float32": 1e-5, "torch.bfloat16": 2 ** -6, "torch.float64": 1e-9}
"""Largest error, as a part of the largest value; integers and what is chosen from the input must be equal."""

ITEMSIZE = {"float32": 4, "bfloat16": 2, "int64": 8}


@dataclass(frozen=True)
class Workload:
    """A function of tensors and its bars.

    Attributes:
        function: (library, *tensors) → a tensor or several.
        check: the same with results that can be compared, where those of `function` cannot be (ties).
        result: shape and dtype of the first result, for the incoming gradient.
        outputs: bytes of all results.
        bars: direction → (kind of bar, value): "copy" is a fraction of the copy rate, a contestant's name how many
            times its speed is promised.
    """

    name: str
    function: Callable[..., Any]
    operands: tuple[Operand, ...]
    result: Operand
    outputs: int
    bars: tuple[tuple[str, str, float | None], ...]
    check: Callable[..., Any] | None = None
    skewed: bool = False

    def nbytes(self, both: bool) -> int:
        """Least traffic. Of a table only the rows that are read count, of its gradient all."""
        read = sum(min(x.nbytes, self.result.nbytes) if x.grad and self.operands[-1].below else x.nbytes
                   for x in self.operands)
        back = self.result.nbytes + sum(x.nbytes for x in self.operands if x.grad)
        return read + self.outputs + (back if both else 0)


def nbytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * ITEMSIZE[dtype]


def scan(name: str, shape: tuple[int, ...], dim: int, *bars: tuple[str, str, float | None],
         dtype: str = "bfloat16") -> Workload:
    x = Operand(shape, dtype)
    pair = name in ("cummax", "cummin")

    def run(library: Any, x: Any) -> Any:
        found = getattr(library, name)(x, dim)
        return found[0] if pair else found

    def both_results(library: Any, x: Any) -> Any:
        found = getattr(library, name)(x, dim)
        return tuple(found) if pair else found

    what = "1-D" if len(shape) == 1 else "rows" if dim == len(shape) - 1 else "columns"
    return Workload(f"{name} {what} {dtype}", run, (x,), x, x.nbytes, bars, check=both_results if pair else None)


def sort(shape: tuple[int, ...], dtype: str, *bars: tuple[str, str, float | None]) -> Workload:
    x = Operand(shape, dtype, grad=False)
    return Workload(f"sort {shape} {dtype}", lambda library, x: tuple(library.sort(x, dim=-1)), (x,), x,
                    x.nbytes + nbytes(shape, "int64"), bars,
                    check=lambda library, x: tuple(library.sort(x, dim=-1, stable=True)))


def topk(shape: tuple[int, ...], k: int, dtype: str, *bars: tuple[str, str, float | None]) -> Workload:
    """Which of equal elements are chosen is not compared, what they are is."""
    x, few = Operand(shape, dtype, grad=False), (*shape[:-1], k)

    def chosen(library: Any, x: Any) -> Any:
        values, indices = library.topk(x, k)
        placed = library.sort(indices, dim=-1)[0]
        return values, library.gather(x, len(shape) - 1, indices), (placed[..., 1:] > placed[..., :-1]).all()

    return Workload(f"topk {k} of {shape} {dtype}", lambda library, x: tuple(library.topk(x, k)), (x,), x,
                    nbytes(few, dtype) + nbytes(few, "int64"), bars, check=chosen)


def embedding(rows: int, size: int, count: int, dtype: str, skewed: bool,
              *bars: tuple[str, str, float | None]) -> Workload:
    """`skewed`: ids as often as words are (Zipf), so that some rows are hit hundreds of times."""
    table, ids = Operand((rows, size), dtype), Operand((count,), "int64", grad=False, below=rows)
    result = Operand((count, size), dtype)
    return Workload(f"embedding {count}x{size} of {rows} {dtype}{' Zipf' if skewed else ''}",
                    lambda library, w, i: library.nn.functional.embedding(i, w), (table, ids), result, result.nbytes,
                    bars, skewed=skewed)


def take(rows: int, size: int, count: int, *bars: tuple[str, str, float | None]) -> Workload:
    table, ids = Operand((rows, size)), Operand((count,), "int64", grad=False, below=rows)
    result = Operand((count, size))
    return Workload(f"index_select {count}x{size} of {rows}", lambda library, x, i: library.index_select(x, 0, i),
                    (table, ids), result, result.nbytes, bars)


ROWS = (8192, 8192)
WORKLOADS: tuple[Workload, ...] = (
    scan("cumsum", ROWS, 1, ("forward", "copy", 0.85), ("both", "copy", 0.75)),
    scan("cumsum", ROWS, 0, ("forward", "copy", None), ("both", "copy", None)),
    scan("cumsum", (1 << 26,), 0, ("forward", "copy", None)),
    scan("cumsum", (1024, 1 << 16), 1, ("forward", "copy", None)),
    scan("cumprod", ROWS, 1, ("forward", "copy", None)),
    scan("cummax", ROWS, 1, ("forward", "copy", None)),
    scan("logcumsumexp", ROWS, 1, ("forward", "copy", None)),
    sort((16384, 4096), "bfloat16", ("forward", "eager", 1.0)),
    sort((16384, 4096), "float32", ("forward", "eager", None)),
    sort((1 << 24,), "float32", ("forward", "eager", None)),
    topk((4096, 50304), 50, "bfloat16", ("forward", "eager", 4.0)),
    topk((4096, 50304), 1000, "bfloat16", ("forward", "eager", None)),
    topk((1 << 26,), 50, "float32", ("forward", "eager", None)),
    embedding(50304, 768, 16384, "bfloat16", False, ("forward", "copy", 0.8), ("both", "compile", 1.5)),
    embedding(50304, 768, 16384, "bfloat16", True, ("both", "compile", 1.5)),
    take(65536, 1024, 65536, ("forward", "copy", None), ("both", "copy", None)),
)


def draw(operand: Operand, skewed: bool) -> Any:
    """An input in Genesis's memory."""
    if operand.below:
        uniform = genesis.rand(*operand.shape, device="cuda")
        # Inverse of Zipf's distribution: log(rank) is uniform.
        ranks = ((uniform * math.log(operand.below)).exp() - 1) if skewed else uniform * operand.below
        x = ranks.to(genesis.int64).minimum(genesis.full((), operand.below - 1, device="cuda"))
    else:
        x = (genesis.randn(*operand.shape, device="cuda") + 0.5).to(getattr(genesis, operand.dtype))
    genesis.eval(x)
    return x


class Bench:
    """One workload's inputs, in both libraries' eyes."""

    def __init__(self, workload: Workload, spin: tuple[Any, Any]):
        self.workload, self.spin = workload, spin
        self.sets = [[draw(x, workload.skewed) for x in workload.operands] for _ in range(SETS)]
        self.torch_sets = [list(map(as_torch, inputs)) for inputs in self.sets]
        self.gradient = draw(workload.result, False)
        self.torch_gradient = as_torch(self.gradient)
        genesis.cuda.synchronize()

    def call(self, library: Any, function: Callable[..., Any], inputs: list[Any], gradient: Any) -> list[Any]:
        """The results, and with a gradient those of the inputs that want one."""
        operands = self.workload.operands
        leaves = [x.detach().requires_grad_(o.grad and gradient is not None)
                  for x, o in zip(inputs, operands, strict=True)]
        found = function(library, *leaves)
        several = list(found) if isinstance(found, tuple) else [found]
        if gradient is None:
            return several
        wanted = [x for x, o in zip(leaves, operands, strict=True) if o.grad]
        return [*several, *library.autograd.grad(several[0], wanted, gradient)]

    def error(self, both: bool) -> float:
        """Genesis's largest error over the tolerance; above 1 is wrong."""
        function = self.workload.check or self.workload.function
        found = self.call(genesis, function, self.sets[0], self.gradient if both else None)
        genesis.eval(*found)
        genesis.cuda.synchronize()
        chosen = self.workload.name.startswith(("sort", "topk", "cummax", "embedding", "index_select"))
        inputs = [x.double() if x.is_floating_point() and not chosen else x for x in self.torch_sets[0]]
        gradient = self.torch_gradient.double() if not chosen else self.torch_gradient
        torch.cuda.synchronize()
        wanted = self.call(torch, function, inputs, gradient if both else None)
        worst = 0.0
        for mine, want in zip(found, wanted, strict=True):
            mine = mine.detach()
            got = torch.as_tensor(mine.cpu().numpy(), device="cuda") if mine.dtype.name == "bool" else as_torch(mine)
            if not got.is_floating_point():
                worst = max(worst, 0.0 if torch.equal(got, want) else 2.0)
                continue
            difference = (got.double() - want.detach().double()).abs().max() / want.detach().double().abs().max()
            worst = max(worst, float(difference) / TOLERANCE[str(got.dtype)])
        return worst

    def genesis_ms(self, both: bool) -> float:
        """Milliseconds of device time a call."""
        stream = current_stream(0).handle
        gradient = self.gradient if both else None

        def run(position: int) -> None:
            genesis.eval(*self.call(genesis, self.workload.function, self.sets[position], gradient))

        def ahead() -> None:
            for _ in range(AHEAD_MS):
                driver().copy(self.spin[0].data_ptr(), self.spin[1].data_ptr(), COPY_BYTES, stream)

        return timed(run, ahead, partial(genesis.cuda.Event, enable_timing=True))

    def torch_ms(self, function: Callable[..., Any], both: bool) -> float:
        """Milliseconds of device time a call."""
        gradient = self.torch_gradient if both else None

        def run(position: int) -> None:
            self.call(torch, function, self.torch_sets[position], gradient)

        return timed(run, lambda: torch.cuda._sleep(int(2e6 * AHEAD_MS)), partial(torch.cuda.Event, enable_timing=True))

    def kernels(self, both: bool) -> list[tuple[str, float]]:
        """Every launch of Genesis's plan with its milliseconds, alone and from the cache."""
        held = self.call(genesis, self.workload.function, self.sets[0], self.gradient if both else None)
        genesis.eval(*held)
        stream = current_stream(0).handle
        return [(label, timed(lambda _, start=start: start(stream), lambda: None,
                              partial(genesis.cuda.Event, enable_timing=True)))
                for label, start in last_plan().executor.launches()]


def measure(workload: Workload, spin: tuple[Any, Any], rate: float, args: argparse.Namespace) -> tuple[list[Row], bool]:
    """A workload's rows, and whether Genesis's results were right."""
    bench = Bench(workload, spin)
    compiled = torch.compile(workload.function, dynamic=False)
    functions = {"eager": workload.function, "compile": compiled}
    rows, right = [], True
    for direction, against, bar in workload.bars:
        both = direction == "both"
        error = bench.error(both)
        if not error <= 1:
            print(f"{workload.name} {direction}: WRONG, {error:.2g} times the tolerance", flush=True)
            right = False
        times = {"genesis": bench.genesis_ms(both)}
        for name in filter(None, args.peers.split(",")):
            if name == "eager" or against == name or workload.name.startswith("cumsum rows"):
                times[name] = bench.torch_ms(functions[name], both)
        fractions = {name: workload.nbytes(both) / (ms * 1e-3) / rate for name, ms in times.items()}
        rows += [Row(workload.name, direction, name, ms, fractions[name], bar) for name, ms in times.items()]
        reached = fractions["genesis"] if against == "copy" else times.get(against, 0.0) / times["genesis"]
        wanted = "" if bar is None else f"  bar {bar} x {against}: {reached:.2f}{'' if reached >= bar else '  below'}"
        print(f"{workload.name:46}{direction:8}{times['genesis'] * 1e3:9.1f} µs  "
              + "  ".join(f"{name} {fraction:.2f}" for name, fraction in fractions.items())
              + "".join(f"  {ms / times['genesis']:.2f} x {name}" for name, ms in times.items() if name != "genesis")
              + wanted, flush=True)
        if args.kernels:
            for label, ms in bench.kernels(both):
                print(f"        {label:48}{ms * 1e3:9.1f} µs", flush=True)
    return rows, right


def main() -> int:
    """Measure every workload that matches, print a table, write JSON."""
    args = parsed(__doc__.splitlines()[0])
    spin = room_for_copies()
    rate = copy_rate(spin)
    print(f"copy {rate / 1e9:.0f} GB/s; fractions of it, and times faster than torch", flush=True)
    rows, wrong = measure_each(WORKLOADS, lambda workload: measure(workload, spin, rate, args), args.match)
    if args.out:
        record.write(args.out, "scans_and_sorts", copy_gb_per_s=rate / 1e9, rows=[asdict(row) for row in rows])
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
