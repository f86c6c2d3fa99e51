"""The cost of compiling grows about linearly with the program, and no depth is too deep."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

import genesis
from genesis.codegen.cuda.emit import emit
from genesis.engine.backends import backend_named
from genesis.engine.compilation import compile_graph
from genesis.ir import Device, Graph
from genesis.ir.parser import parse
from genesis.ir.printer import print_graph
from genesis.ir.types import cpu
from genesis.ir.verify import verify
from genesis.passes.pipeline import run_passes
from genesis.runtime.contexts import uncollected
from tests.engine import chains

CUDA = Device("cuda")
Make = Callable[..., Graph]

FOURFOLD = 8.0
"""The most that four times the program may cost: linear is 4, quadratic 16, and timing on a shared machine is rough."""

SIZES = 75, 300, 1200
"""Ops of the programs that are compared."""

EITHER = pytest.mark.parametrize("sizes", [(150, 600), pytest.param(SIZES, marks=pytest.mark.sweep)], ids=str)
"""By default two programs are compared: the largest takes three quarters of the time of all."""

EVERYTHING = [chains.pointwise, chains.composites, chains.backward, chains.rows_written, chains.side_by_side,
              chains.readers, chains.training_step]


def cost(work: Callable[[], object]) -> float:
    """Processor seconds of one run, which no other process adds to. Without Python's cyclic collector: what a full
    collection costs grows with the process, not with the program."""
    gc.collect()
    with uncollected:
        start = time.process_time()
        work()
        return time.process_time() - start


def on_cpu(graph: Graph) -> None:
    """Passes, plan and calls."""
    compile_graph(graph, cpu)


def for_cuda(graph: Graph) -> None:
    """Passes and the text of the kernels; no binaries."""
    _, schedule, *_ = run_passes(graph, backend_named("cuda"))
    for group in schedule.groups:
        emit(group)


def assert_about_linear(measure: Callable[[int], float], sizes: tuple[int, ...]) -> None:
    """Each size costs less than `FOURFOLD` times the one before; a bad measurement has two more chances."""
    for attempt in range(3):
        seconds = [measure(size + 16 * attempt) for size in sizes]
        ratios = [b / a for a, b in pairwise(seconds)]
        if all(ratio < FOURFOLD for ratio in ratios):
            return
    raise AssertionError(f"{sizes} ops cost {[round(s, 4) for s in seconds]} s: ratios {ratios}")


@pytest.mark.parametrize("make", EVERYTHING, ids=lambda make: make.__name__)
@EITHER
def test_compiling_for_the_cpu(make: Make, sizes: tuple[int, ...]) -> None:
    on_cpu(make(64))  # imports and first uses
    assert_about_linear(lambda size: cost(lambda: on_cpu(make(size))), sizes)


@pytest.mark.parametrize("make", EVERYTHING, ids=lambda make: make.__name__)
@EITHER
def test_compiling_for_cuda(make: Make, sizes: tuple[int, ...]) -> None:
    for_cuda(make(64, CUDA))
    assert_about_linear(lambda size: cost(lambda: for_cuda(make(size, CUDA))), sizes)


def test_recording_and_capturing() -> None:
    def record(size: int) -> None:
        x = genesis.zeros(3)  # small: no thread of torch's takes time
        for i in range(size):
            x = x * 1.5 if i % 2 else x.sin()
        x.sum().item()

    record(50)
    assert_about_linear(lambda size: cost(lambda: record(size)), SIZES)


@pytest.mark.slow
def test_compiling_binaries() -> None:
    """Groups are bounded, so four times the chain is four times the kernels, none of them longer."""
    from genesis.codegen.cuda.compile import compile_sources

    def seconds(size: int) -> float:
        _, schedule, *_ = run_passes(chains.pointwise(size, CUDA), backend_named("cuda"))
        sources = [emit(group) for group in schedule.groups]
        start = time.perf_counter()
        compile_sources(sources)
        return time.perf_counter() - start

    seconds(20)  # starts the workers
    assert_about_linear(seconds, (100, 400))


# Depth

DEEP = 2000
"""Ops of a chain; Python gives a function of five frames an op a hundred ops of the stack below."""


@pytest.mark.parametrize("device", [cpu, CUDA], ids=str)
@pytest.mark.parametrize("make", [chains.pointwise, chains.backward, chains.composites], ids=lambda make: make.__name__)
def test_no_pass_recurses_along_a_chain(make: Make, device: Device) -> None:
    """Printing, parsing, verifying, every pass and lowering, with a stack far smaller than the chain is long."""
    graph = make(DEEP if make is chains.pointwise else DEEP // 3, device)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(500)
    try:
        assert parse(print_graph(graph)) == graph
        verify(graph)
        (on_cpu if device is cpu else for_cuda)(graph)
    finally:
        sys.setrecursionlimit(limit)


def test_a_long_loop_that_writes_rows() -> None:
    """A chain of a thousand regions over each other."""
    for_cuda(chains.rows_written(1000, CUDA))
    on_cpu(chains.rows_written(1000))


DEEP_SCRIPT = """
import genesis
from genesis.ir.node import OPS

x = genesis.ones(4, requires_grad=True)
y = x
for i in range(5000):
    y = y * 1.0001 if i % 2 else y.sin()
y.sum().backward()
assert x.grad.sum().item() >= 0

y = genesis.ones(4)           # recorded, never computed, dropped
for i in range(100_000):
    y = y + 1.0
del y

node = OPS["iota"](shape=(4,), axis=0, dtype=genesis.float32)
for i in range(100_000):
    node = OPS["neg"](node)
del node
print("alive")
"""


def test_deep_programs_run_and_are_dropped_without_a_crash() -> None:
    """A process of its own: freeing a chain of 100 000 nodes must not exhaust the C stack."""
    done = subprocess.run([sys.executable, "-c", DEEP_SCRIPT], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]
