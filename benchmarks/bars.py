"""Memory-bound workloads as fractions of the copy rate: Genesis, torch eager and torch.compile in one process.

All three read the same memory: torch looks at Genesis's tensors. Results are compared with torch's in float64 before
anything is timed. A time is a device time: the calls are queued behind a long copy, so that the host is ahead, and
three sets of inputs take turns, so that none is in the L2. The rate counts the least traffic (`bar_workloads.py`).

    python benchmarks/bars.py --out
    python benchmarks/bars.py --match softmax --peers "" --kernels     # one family, Genesis alone, every kernel's time
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import record
import torch
from bar_workloads import WORKLOADS, Operand, Workload

import genesis
from genesis.engine import last_plan
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.stream import current_stream

SETS, REPEATS, ROUNDS = 3, 12, 5
COPY_BYTES = 2 << 30
AHEAD_MS = 20  # the host has this long to queue a round
TOLERANCE = {"float32": 1e-5, "bfloat16": 2 ** -6, "int64": 0.0}
"""Largest error, as a part of the largest value of a result: a few roundings to the dtype."""


@dataclass(frozen=True)
class Row:
    """One contestant on one workload, one direction."""

    workload: str
    direction: str
    contestant: str
    ms: float
    fraction: float
    bar: float | None


class Shared:
    """A Genesis tensor's memory for `torch.as_tensor`; 2-byte floats travel as integers."""

    def __init__(self, x: Any):
        typestr = {"float32": "<f4", "bfloat16": "<i2", "int64": "<i8"}[x.dtype.name]
        self.owner = x
        self.__cuda_array_interface__ = {"shape": tuple(x.shape), "typestr": typestr, "data": (x.data_ptr(), False),
                                         "version": 3}


def as_torch(x: Any) -> torch.Tensor:
    """The same memory as a torch tensor."""
    seen = torch.as_tensor(Shared(x), device="cuda")
    return seen.view(torch.bfloat16) if x.dtype.name == "bfloat16" else seen


def draw(operand: Operand) -> Any:
    """An input in Genesis's memory: mostly positive, so that sums are not near zero."""
    if operand.below:
        x = genesis.randint(0, operand.below, operand.shape, device="cuda")
    else:
        x = (genesis.randn(*operand.shape, device="cuda") + 0.5).to(getattr(genesis, operand.dtype))
    genesis.eval(x)
    return x


def call(library: Any, workload: Workload, function: Callable[..., Any], inputs: list[Any], gradient: Any) -> list[Any]:
    """The results, and with a `gradient` those of the inputs that want one."""
    if gradient is None:
        found = function(library, *inputs)
        return list(found) if isinstance(found, tuple) else [found]
    leaves = [x.detach().requires_grad_(o.grad) for x, o in zip(inputs, workload.operands, strict=True)]
    y = function(library, *leaves)
    wanted = [x for x, o in zip(leaves, workload.operands, strict=True) if o.grad]
    return [y, *library.autograd.grad(y, wanted, gradient if workload.incoming else None)]


class Bench:
    """One workload's inputs, in both libraries' eyes."""

    def __init__(self, workload: Workload, spin: tuple[Any, Any]):
        self.workload = workload
        self.spin = spin
        self.sets = [[draw(x) for x in workload.operands] for _ in range(SETS)]
        self.torch_sets = [list(map(as_torch, inputs)) for inputs in self.sets]
        first = workload.operands[0]
        self.gradient = draw(Operand(first.shape, first.dtype)) if workload.incoming else None
        self.torch_gradient = as_torch(self.gradient) if workload.incoming else None
        genesis.cuda.synchronize()

    def gradients(self, both: bool) -> tuple[Any, Any]:
        """What comes into the backward in Genesis and in torch; None forward, True for a scalar's."""
        if not both:
            return None, None
        return (self.gradient, self.torch_gradient) if self.workload.incoming else (True, True)

    def error(self, both: bool) -> float:
        """Genesis's largest error over the tolerance; above 1 is wrong."""
        gradient, torch_gradient = self.gradients(both)
        found = call(genesis, self.workload, self.workload.function, self.sets[0], gradient)
        genesis.eval(*found)
        genesis.cuda.synchronize()
        got = [as_torch(x.detach()) for x in found]
        if not self.workload.exact:
            return self._dropout_error(got, torch_gradient)
        doubled = [x.double() if x.is_floating_point() else x for x in self.torch_sets[0]]
        wide = torch_gradient.double() if isinstance(torch_gradient, torch.Tensor) else torch_gradient
        want = [w.detach() for w in call(torch, self.workload, self.workload.function, doubled, wide)]
        return max(float((g.double() - w).abs().max() / w.abs().max()) / TOLERANCE[str(g.dtype).removeprefix("torch.")]
                   for g, w in zip(got, want, strict=True))

    def _dropout_error(self, got: list[torch.Tensor], gradient: Any) -> float:
        x, y = self.torch_sets[0][0], got[0]
        kept = y != 0
        share = abs(float(kept.double().mean()) - 0.9)
        wrong = ((y.float() - x.float() / 0.9).abs() > 2 ** -7 * x.float().abs() / 0.9) & kept
        mask = (got[1] != 0) == kept if len(got) > 1 else kept | ~kept
        agree = mask | (gradient == 0 if gradient is not None else False) | (x == 0)
        return 0.0 if share < 1e-3 and not bool(wrong.any()) and bool(agree.all()) else 2.0

    def genesis_ms(self, both: bool) -> float:
        """Milliseconds of device time a call."""
        gradient, _ = self.gradients(both)

        def run(position: int) -> None:
            genesis.eval(*call(genesis, self.workload, self.workload.function, self.sets[position], gradient))

        return timed(run, partial(copies_ahead, self.spin), partial(genesis.cuda.Event, enable_timing=True))

    def torch_ms(self, function: Callable[..., Any], both: bool) -> float:
        """Milliseconds of device time a call."""
        _, gradient = self.gradients(both)

        def run(position: int) -> None:
            call(torch, self.workload, function, self.torch_sets[position], gradient)

        return timed(run, sleep_ahead, partial(torch.cuda.Event, enable_timing=True))

    def kernels(self, both: bool) -> list[tuple[str, float]]:
        """Every launch of Genesis's plan with its milliseconds, alone and from the cache."""
        gradient, _ = self.gradients(both)
        held = call(genesis, self.workload, self.workload.function, self.sets[0], gradient)
        genesis.eval(*held)
        stream = current_stream(0).handle
        plan = last_plan()
        found = []
        for label, start in plan.executor.launches():
            found.append((label, timed(lambda _, start=start: start(stream), lambda: None,
                                       partial(genesis.cuda.Event, enable_timing=True))))
        return found


def copies_ahead(spin: tuple[Any, Any], ms: int = AHEAD_MS) -> None:
    """Give Genesis's stream work for so long."""
    for _ in range(ms):
        driver().copy(spin[0].data_ptr(), spin[1].data_ptr(), COPY_BYTES, current_stream(0).handle)


def sleep_ahead(ms: int = AHEAD_MS) -> None:
    """Give torch's stream work for about so long."""
    torch.cuda._sleep(int(2e6 * ms))


def timed(run: Callable[[int], None], ahead: Callable[[], None], event: Callable[[], Any]) -> float:
    """The median over rounds of the mean device time of a call."""
    for position in range(3 * SETS):
        run(position % SETS)
    found = []
    for _ in range(ROUNDS):
        begin, end = event(), event()
        ahead()
        begin.record()
        for position in range(REPEATS):
            run(position % SETS)
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / REPEATS)
    return median(found)


def copy_rate(spin: tuple[Any, Any]) -> float:
    """Bytes a second, read and written, of a large device-to-device copy."""
    stream = current_stream(0).handle
    ms = timed(lambda _: driver().copy(spin[0].data_ptr(), spin[1].data_ptr(), COPY_BYTES, stream), lambda: None,
               partial(genesis.cuda.Event, enable_timing=True))
    return 2 * COPY_BYTES / ms * 1e3


def gpt2_shapes() -> list[tuple[int, ...]]:
    """The shapes of GPT-2 124M's 148 parameters."""
    dim, layer = 768, [(768,), (768,), (2304, 768), (2304,), (768, 768), (768,), (768,), (768,), (3072, 768), (3072,),
                       (768, 3072), (768,)]
    return [(50304, dim), (1024, dim), *layer * 12, (dim,), (dim,)]


def adamw(rate: float, ahead: dict[str, Callable[[], None]]) -> list[Row]:
    """A step of AdamW over float32 parameters beside torch's fused one; both start from the same numbers."""
    shapes = gpt2_shapes()
    values = [genesis.randn(*shape, device="cuda") * 0.02 for shape in shapes]
    gradients = [genesis.randn(*shape, device="cuda") * 1e-3 for shape in shapes]
    genesis.eval(*values, *gradients)
    genesis.cuda.synchronize()
    theirs = [torch.nn.Parameter(as_torch(x).clone()) for x in values]
    mine = [genesis.nn.Parameter(x) for x in values]
    for x, their, g in zip(mine, theirs, gradients, strict=True):
        x.grad, their.grad = g, as_torch(g).clone()
    options = {"lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
    steps = {"genesis": genesis.optim.AdamW(mine, **options),
             "torch fused": torch.optim.AdamW(theirs, fused=True, **options)}
    for optimizer in steps.values():
        optimizer.step()
    genesis.cuda.synchronize()
    error = max(float((as_torch(x.detach()) - their.detach()).abs().max())
                for x, their in zip(mine, theirs, strict=True))
    assert error < 1e-6, f"AdamW differs by {error}"
    events = {"genesis": genesis.cuda.Event, "torch fused": torch.cuda.Event}
    ms = {name: timed(lambda _, step=optimizer.step: step(), ahead[name], partial(events[name], enable_timing=True))
          for name, optimizer in steps.items()}
    nbytes = 28 * sum(map(math.prod, shapes))  # weight, gradient and two moments in, weight and moments out
    print(f"AdamW GPT-2 124M  {ms['genesis']:.3f} ms  bar 0.95 of torch's fused {ms['torch fused']:.3f}: "
          f"{ms['genesis'] / ms['torch fused']:.2f}", flush=True)
    return [Row("AdamW GPT-2 124M", "step", name, each, nbytes / (each * 1e-3) / rate, None)
            for name, each in ms.items()]


def contestants(bench: Bench, peers: list[str]) -> dict[str, Callable[[bool], float]]:
    """By name, what times one direction."""
    function = bench.workload.function
    compiled = torch.compile(function, dynamic=False) if "compile" in peers else function
    every = {"genesis": bench.genesis_ms, "eager": partial(bench.torch_ms, function),
             "compile": partial(bench.torch_ms, compiled)}
    return {name: time for name, time in every.items() if name == "genesis" or name in peers}


def measure(workload: Workload, spin: tuple[Any, Any], rate: float, args: argparse.Namespace) -> tuple[list[Row], bool]:
    """A workload's rows, and whether Genesis's results were right."""
    bench = Bench(workload, spin)
    rows, right = [], True
    for direction, bar, nbytes in (("forward", workload.forward_bar, workload.forward_bytes),
                                   ("both", workload.both_bar, workload.both_bytes)):
        both = direction == "both"
        if bar is None:
            continue
        error = bench.error(both)
        if error > 1:
            print(f"{workload.name} {direction}: WRONG, {error:.2g} times the tolerance", flush=True)
            right = False
        fractions = {}
        for name, time_of in contestants(bench, args.peers.split(",")).items():
            ms = time_of(both)
            fractions[name] = nbytes / (ms * 1e-3) / rate
            rows.append(Row(workload.name, direction, name, ms, fractions[name], bar))
        met = "" if fractions["genesis"] >= bar else "  below"
        print(f"{workload.name:28}{direction:9}{rows[-len(fractions)].ms * 1e3:9.1f} µs  bar {bar:.2f}  "
              + "  ".join(f"{name} {fraction:.2f}" for name, fraction in fractions.items()) + met, flush=True)
        if args.kernels:
            for label, ms in bench.kernels(both):
                print(f"        {label:48}{ms * 1e3:9.1f} µs")
    return rows, right


def parsed(description: str) -> argparse.Namespace:
    """The options of a benchmark of workloads."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--match", default="", help="only workloads with one of these in their name, comma-separated")
    parser.add_argument("--peers", default="eager,compile", help="torch's contestants")
    parser.add_argument("--kernels", action="store_true", help="also time every kernel of Genesis's plans")
    record.add_out(parser)
    return parser.parse_args()


def room_for_copies() -> tuple[Any, Any]:
    """Two memories of `COPY_BYTES`, between which copies keep the stream busy."""
    spin = genesis.zeros(COPY_BYTES, dtype=genesis.int8, device="cuda"), genesis.zeros(
        COPY_BYTES, dtype=genesis.int8, device="cuda")
    genesis.eval(*spin)
    return spin


def measure_each(workloads: Sequence[Any], measure: Callable[[Any], tuple[list[Any], bool]],
                 match: str) -> tuple[list[Any], bool]:
    """The rows of the workloads whose names match, and whether a result was wrong or a workload failed."""
    rows, wrong = [], False
    for workload in workloads:
        if not any(part in workload.name for part in match.split(",")):
            continue
        try:
            found, right = measure(workload)
            rows += found
            wrong |= not right
        except Exception as error:  # the other workloads are still worth their time
            print(f"{workload.name}: {type(error).__name__}: {str(error)[:800]}", flush=True)
            wrong = True
        torch.cuda.empty_cache()
        torch.compiler.reset()
        genesis.cuda.empty_cache()
    return rows, wrong


def main() -> int:
    """Measure every workload that matches, print a table, write JSON."""
    args = parsed(__doc__.splitlines()[0])
    spin = room_for_copies()
    rate = copy_rate(spin)
    print(f"copy {rate / 1e9:.0f} GB/s", flush=True)
    rows, wrong = measure_each(WORKLOADS, lambda workload: measure(workload, spin, rate, args), args.match)
    if "adamw" in args.match or not args.match:
        rows += adamw(rate, {"genesis": partial(copies_ahead, spin), "torch fused": sleep_ahead})
    if args.out:
        record.write(args.out, "bars", copy_gb_per_s=rate / 1e9, rows=[asdict(row) for row in rows])
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
