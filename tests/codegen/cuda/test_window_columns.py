"""Windows below each other: a lane makes several results, and loads once what they share."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import genesis
import genesis.nn.functional as F
from genesis import engine
from genesis.codegen.cuda import unrolled
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import FakeCUDABackend
from genesis.ir import OPS, Graph, Node
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import one_factor
from genesis.ir.types import DType, bfloat16, float16, float32, float64, int64
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.canonicalize import canonicalize
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import an_input, check, some
from tests.gpu.compare import array, numbers
from tests.sweeping import each_value

DOWN = "x_down = tl.minimum("


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are few results."""
    monkeypatch.setattr(unrolled, "ENOUGH", 1)


def how(window: int, stride: int, padding: int = 0) -> dict[str, tuple[int, int]]:
    return {"window": (window, window), "stride": (stride, stride), "padding": (padding, padding)}


def pooled(x: Node, window: int, stride: int, padding: int = 0) -> Node:
    """Means of windows that are whole, or end in padding."""
    sizes = tuple(one_factor((size + 2 * padding - window) // stride + 1) for size in x.shape[2:])
    return OPS["avg_pool"](x, sizes=sizes, include_pad=True, divisor=0, **how(window, stride, padding))


def kernel_of(x: Node, y: Node) -> KernelSource:
    """The one kernel of a program."""
    group, = fuse(canonicalize(decomposed(Graph((x,), (y,))))).groups
    return emit(group)


@each_value
@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "window", "stride", "padding"), [
    ((1, 2, 10, 9), 3, 1, 0), ((2, 1, 13, 40), 3, 1, 1), ((1, 3, 7, 6), 3, 1, 0), ((2, 2, 17, 5), 3, 2, 1),
    ((3, 1, 12, 33), 5, 1, 2), ((1, 1, 11, 130), 2, 1, 0), ((1, 2, 6, 20), 3, 1, 0)])
def test_pools_and_their_gradients(shape: tuple[int, ...], window: int, stride: int, padding: int,
                                   dtype: DType) -> None:
    x = an_input(0, shape, dtype)
    y = pooled(x, window, stride, padding)
    check([x], y)
    g = an_input(0, y.shape, dtype)
    check([g], OPS["avg_pool_backward"](g, shape=shape[2:], include_pad=True, divisor=0,
                                        **how(window, stride, padding)))


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("rows", range(8, 14))
def test_the_last_results_are_made_again_where_rows_are_no_multiple(rows: int) -> None:
    x = an_input(0, (2, 2, rows, 21))
    assert DOWN in kernel_of(x, pooled(x, 3, 1, 1)).source
    check([x], pooled(x, 3, 1, 1))


@pytest.mark.usefixtures("everywhere")
def test_two_programs_may_make_the_last_rows() -> None:
    """Rows that are made again are another program's where a block of lanes ends between them."""
    x = an_input(0, (1, 16, 53, 53), bfloat16)
    y = pooled(x, 3, 1)
    kernel = kernel_of(x, y)
    assert DOWN in kernel.source and kernel.constexprs["XBLOCK"] % 51
    check([x], y)


@pytest.mark.usefixtures("everywhere")
def test_the_largest_and_its_place() -> None:
    x = an_input(0, (2, 2, 14, 19))
    decompose = OPS["max_pool"].decompose
    assert decompose is not None
    values, places = decompose(x, sizes=(14, 19), **how(3, 1, 1), dilation=(1, 1))
    schedule = check([x], values, places)
    assert DOWN in emit(schedule.groups[0]).source


def test_shared_rows_are_loaded_once() -> None:
    """Four windows of 3 by 3 below each other see 6 rows."""
    x = an_input(0, (6, 64, 109, 109), bfloat16)
    source = kernel_of(x, pooled(x, 3, 1)).source
    assert source.count("tl.load(in0") == 18 and source.count("tl.store(out0") == 4 and DOWN in source
    kernel = kernel_of(x, pooled(x, 3, 1))
    compiled = compiled_by_triton(kernel.key_parts(), 90)
    assert compiled.asm["ptx"].count("ld.global.b16") <= 18 * kernel.constexprs["XBLOCK"] // 4


@each_value
@pytest.mark.parametrize("dtype", [float32, bfloat16, float64], ids=str)
@pytest.mark.parametrize("columns", [112, 104])
def test_lanes_go_along_rows(columns: int, dtype: DType) -> None:
    """Also where a thread has one neighbour at a time: eight rows a warp, of four elements each, took 2.3 times as
    long as torch's on an H200."""
    x = an_input(0, (1, 200, 112, columns), dtype)
    text = compiled_by_triton(kernel_of(x, pooled(x, 3, 1)).key_parts(), 90).asm["ttgir"]
    layouts = re.findall(r"threadsPerWarp = \[(\d+), (\d+)\].*order = \[(\d), (\d)\]", text)
    assert layouts and all(int(along) >= 8 and first == "1" for _, along, first, _ in layouts)


@pytest.mark.parametrize(("shape", "window", "stride", "why"), [
    ((64, 64, 112, 112), 2, 2, "windows that share nothing"), ((2, 4, 40, 40), 3, 1, "few results"),
    ((512, 512, 5, 5), 3, 1, "three rows")])
def test_where_a_lane_makes_one_result(shape: tuple[int, ...], window: int, stride: int, why: str) -> None:
    x = an_input(0, shape, bfloat16)
    assert DOWN not in kernel_of(x, pooled(x, window, stride)).source, why


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("width", [3, 7, 40])
def test_what_is_looked_up_is_no_window(width: int) -> None:
    """Elements below each other that are looked up by one index share its loads: a lane that made several of them had
    rows and columns of its own, and was told of its first row before it knew its place in one."""
    x, index = an_input(0, (5, 39, width)), an_input(1, (width,), int64)
    y = OPS["take"](x, index, axis=2)
    group, = fuse(Graph((x, index), (y,))).groups
    kernel = emit(group)
    assert DOWN not in kernel.source and compiled_by_triton(kernel.key_parts(), 90).asm["cubin"]
    places = torch.randint(0, width, (width,), generator=torch.Generator().manual_seed(0))
    check([x, index], y, data=[some(x), places])


def test_few_results_are_known_whatever_their_class_reaches_to() -> None:
    """Batches of 2 to 15 are a class: a guard says that these are few, where its typical size would be many."""
    with Trace(N=2, H=64) as trace:
        x = an_input(0, (trace.symbol("N"), 16, trace.symbol("H"), trace.symbol("H")))
        assert DOWN not in kernel_of(x, pooled(x, 3, 1)).source and trace.guards


@pytest.mark.parametrize("literals", [frozenset("CHW"), frozenset[str]()], ids=["numbers", "arguments"])
def test_symbolic_sizes(literals: frozenset[str]) -> None:
    with Trace(N=6, C=60, H=109, W=110) as trace:
        trace.literals = literals
        x = an_input(0, tuple(trace.symbol(name) for name in "NCHW"), float16)
        kernel = kernel_of(x, pooled(x, 3, 1))
        assert DOWN in kernel.source and kernel.source.count("tl.load(in0") == 18
        assert compiled_by_triton(kernel.key_parts(), 90).asm["cubin"]
        decompose = OPS["max_pool"].decompose
        assert decompose is not None
        values, places = decompose(x, sizes=tuple(one_factor(size - 2) for size in x.shape[2:]), **how(3, 1),
                                   dilation=(1, 1))
        group, = fuse(canonicalize(decomposed(Graph((x,), (values, places))))).groups
        assert DOWN in emit(group).source


@pytest.mark.usefixtures("everywhere")
def test_values_whatever_came_before() -> None:
    with FakeCUDABackend(HostDriver(memory_bytes=64 << 20)):
        engine.reset()
        for shape in ((2, 3, 12, 14), (1, 2, 23, 17), (3, 2, 9, 30), (2, 1, 34, 11)):
            data = numbers(*shape).astype(np.float32)
            found = []
            for device in ("cuda", "cpu"):
                x = genesis.tensor(data, device=device, requires_grad=True)
                y = F.avg_pool2d(x, 3, 1, 1) + F.max_pool2d(x, 3, 1, 1)
                (y * y).sum().backward()
                assert x.grad is not None
                found.append([array(y.detach()), array(x.grad)])
            for ours, wanted in zip(*found, strict=True):
                torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(wanted), rtol=1e-5, atol=1e-5)
