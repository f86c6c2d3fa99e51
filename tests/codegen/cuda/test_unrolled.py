"""Short reductions over windows: a load for each tap, addresses without 64 bits, lanes along neighbours."""

from __future__ import annotations

import re

import pytest
import torch

from genesis.codegen.cuda import unrolled
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.index_arithmetic import index_expression, known_comparison
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import backend_named
from genesis.ir import OPS, Graph, Node, literal
from genesis.ir.ops import indexing, leaves, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import one_factor
from genesis.ir.types import DType, bfloat16, float32, int64
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.index_map import ZERO, offset, scale, variable
from genesis.passes.graph.canonicalize import canonicalize
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import GPU, an_input, check, inputs, some
from tests.codegen.cuda.run_interpreted import run_schedule
from tests.sweeping import each_value

HOW = {"window": (3, 3), "stride": (2, 2), "padding": (1, 1), "include_pad": True, "divisor": 0}


def kernel_of(x: Node, y: Node) -> KernelSource:
    """The one kernel of a program."""
    group, = fuse(canonicalize(decomposed(Graph((x,), (y,))))).groups
    return emit(group)


def mean(x: Node) -> Node:
    """Windows of 3 by 3, every second one, with padding."""
    return OPS["avg_pool"](x, sizes=tuple((size + 1) // 2 for size in x.shape[2:]), **HOW)


def spread(g: Node, shape: tuple[int, int]) -> Node:
    """The gradient of `mean`."""
    return OPS["avg_pool_backward"](g, shape=shape, **HOW)


def test_a_window_is_a_load_for_each_tap_from_one_address() -> None:
    kernel = kernel_of(*((x := an_input(0, (64, 32, 56, 56))), mean(x)))
    loads = re.findall(r"tl\.load\(in0 \+ (\(.*?\))(?: \+ \((-?\d+)\))?, mask", kernel.source)
    assert len(loads) == 9 and len({address for address, _ in loads}) == 1
    assert sorted(int(step or 0) for _, step in loads) == [-57, -56, -55, -1, 0, 1, 55, 56, 57]
    assert "RBLOCK" not in kernel.source and "int64" not in kernel.source and "tl.where" not in kernel.source


@pytest.mark.parametrize("literals", [frozenset("CHW"), frozenset[str]()], ids=["numbers", "arguments"])
def test_taps_of_symbolic_sizes_are_rows_of_one_address(monkeypatch: pytest.MonkeyPatch,
                                                        literals: frozenset[str]) -> None:
    """A tap was a position in all windows, which symbolic sizes take apart anew: each had an address of its own, and a
    number that a kernel takes as an argument (H200: 22.6 µs of a pool, where its instructions take 14)."""
    monkeypatch.setattr(unrolled, "ENOUGH", 1 << 40)  # one result a lane
    with Trace(N=6, C=60, H=109, W=110) as trace:
        trace.literals = literals
        shape = tuple(trace.symbol(name) for name in "NCHW")
        x = an_input(0, shape, bfloat16)
        how = {"window": (3, 3), "stride": (1, 1), "padding": (0, 0), "include_pad": True, "divisor": 0}
        kernel = kernel_of(x, OPS["avg_pool"](x, sizes=tuple(one_factor(size - 2) for size in shape[2:]), **how))
        loads = re.findall(r"tl\.load\(in0 \+ (\(.*?\))(?: \+ \((-?\d+)\))?, mask", kernel.source)
        steps = [int(step or 0) for _, step in loads]
        rows = {address for address, _ in loads}
        if literals:
            assert len(rows) == 1 and sorted(steps) == [0, 1, 2, 110, 111, 112, 220, 221, 222]
        else:
            assert len(rows) == 3 and sorted(steps) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert len([name for name in kernel.signature if name.startswith("size")]) == (0 if literals else 6)
        assert compiled_by_triton(kernel.key_parts(), 90).asm["cubin"]


def test_a_gradient_reads_the_few_windows_that_see_an_element_and_divides_once() -> None:
    g = an_input(0, (64, 32, 28, 28))
    source = kernel_of(g, spread(g, (56, 56))).source
    assert source.count("tl.load(in0") == 4 and source.count("div_rn") == 1 and "int64" not in source


def test_windows_without_overlap_have_one() -> None:
    g = an_input(0, (64, 32, 28, 28))
    how = {"window": (2, 2), "stride": (2, 2), "padding": (0, 0), "include_pad": True, "divisor": 0}
    source = kernel_of(g, OPS["avg_pool_backward"](g, shape=(56, 56), **how)).source
    assert source.count("tl.load(in0") == 1 and "mask=x_mask, " in source and "tl.arange(0, RBLOCK)" in source


@pytest.mark.parametrize(("window", "dtype", "neighbours"), [(2, bfloat16, 2), (2, float32, 2), (4, bfloat16, 4),
                                                             (3, bfloat16, 0), (8, float32, 4)])
def test_neighbours_of_one_window_find_and_read_it_once(window: int, dtype: DType, neighbours: int) -> None:
    """Of 16 elements a thread of the gradient of max_pool2d 2 by 2 were 664 instructions, and are 312 (sm_90)."""
    g = an_input(0, (6, 7, 4, 8), dtype)
    how = {"window": (window,) * 2, "stride": (window,) * 2, "padding": (0, 0), "include_pad": True, "divisor": 0}
    shape = (4 * window, 8 * window)
    kernel = kernel_of(g, OPS["avg_pool_backward"](g, shape=shape, **how))
    assert kernel.constexprs.get("RBLOCK", 0) == neighbours
    check([g], OPS["avg_pool_backward"](g, shape=shape, **how), most_programs=512)


@each_value
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(64, 32, 56, 56), (3, 32, 13, 11), (8, 16, 4, 500)])
def test_lanes_run_along_results_and_nothing_goes_through_shared_memory(shape: tuple[int, ...], dtype: DType) -> None:
    for kernel in (kernel_of(*((x := an_input(0, shape, dtype)), mean(x))),
                   kernel_of(*((g := an_input(0, shape, dtype)), spread(g, (2 * shape[2], 2 * shape[3]))))):
        text = compiled_by_triton(kernel.key_parts(), 90).asm["ttgir"]
        assert "convert_layout" not in text
        each = int(re.search(r"sizePerThread = \[(?:1, )?(\d+)\]", text)[1])  # type: ignore[index]
        assert each * dtype.itemsize <= 4, "32 lanes read a line of memory"


def test_sums_of_looked_up_rows_run_along_the_rows() -> None:
    table, index = an_input(0, (50, 96)), an_input(1, (40, 4), int64)
    schedule = check([table, index], r.sum(indexing.take(table, index, axis=0), axes=(1,)))
    assert emit(schedule.groups[0]).source.count("tl.load(in0") == 4
    table, index = an_input(0, (50_000, 96)), an_input(1, (40_000, 4), int64)
    group, = fuse(Graph((table, index), (r.sum(indexing.take(table, index, axis=0), axes=(1,)),))).groups
    ptx = compiled_by_triton(emit(group).key_parts(), 90).asm["ptx"]
    assert "ld.global.v4.b32" in ptx and "st.global.v4.b32" in ptx, "rows are read in vectors"


def test_softmax_of_a_window_waits_for_its_reductions() -> None:
    x, = inputs((6, 40))
    at = p.add(leaves.iota(shape=(30, 3), axis=0, dtype=int64, device=GPU),
               leaves.iota(shape=(30, 3), axis=1, dtype=int64, device=GPU))
    seen = indexing.take(x, at, axis=1)
    largest = r.max(seen, axes=(2,), keepdims=True)
    check([x], r.sum(p.exp(p.sub(seen, movement.expand(largest, shape=seen.shape))), axes=(2,)))


def test_index_expressions_are_sums_and_quotients_of_coordinates() -> None:
    i = leaves.iota(shape=(10, 4), axis=0, dtype=int64, device=GPU)
    k = leaves.iota(shape=(10, 4), axis=1, dtype=int64, device=GPU)
    x, r_ = variable("x", 10), variable("r", 4)
    assert str(index_expression(p.floor_divide(i * 3 + k, literal(2)), (x, r_))) == "(r + x*3)//2"
    assert index_expression(p.minimum(k, literal(3)), (x, r_)) == r_
    assert index_expression(p.minimum(k, literal(2)), (x, r_)) is None
    assert index_expression(i * 2**30, (x, r_)) is None, "more than 32 bits"
    assert index_expression(p.mul(i, k), (x, r_)) is None


def test_comparisons_are_known_where_the_ranges_are_apart() -> None:
    x = variable("x", 10)
    assert known_comparison("lt", x, offset(ZERO, 10)) is True and known_comparison("ge", x, offset(ZERO, 10)) is False
    assert known_comparison("le", x, offset(ZERO, 9)) is True and known_comparison("gt", x, ZERO) is None
    assert known_comparison("eq", x, x) is True and known_comparison("ne", x, offset(x, 1)) is True
    assert known_comparison("eq", scale(x, 2), x) is None


def largest(x: Node) -> Schedule:
    """The largest of windows of 2 by 2 beside each other, and where they are."""
    how = {"window": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
    pooled = OPS["max_pool"](x, sizes=tuple(size // 2 for size in x.shape[2:]), **how)
    results = tuple(OPS["item"](pooled, index=i) for i in (0, 1))
    return run_passes(Graph((x,), results), backend_named("h200")).schedule


def test_windows_beside_each_other_are_read_where_they_lie() -> None:
    """Large images were copied first: 41 µs with the gradient, 27 in torch.compile (H200)."""
    group, = largest(an_input(0, (43, 256, 28, 32), bfloat16)).groups
    assert emit(group).source.count("tl.load(in0") == 4
    x = an_input(0, (2, 3, 6, 8))
    data = some(x)
    want = torch.nn.functional.max_pool2d(data, 2, return_indices=True)
    for got, wanted in zip(run_schedule(largest(x), [data]), want, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
