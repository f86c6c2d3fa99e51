"""Short rows at odd places: lanes lie across the rows, which go through shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.ir import Graph, Node
from genesis.ir.ops import composite
from genesis.ir.ops import movement as m
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.types import DType, bfloat16, float16, float32, int32, int64
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.programs import TOLERANCE, an_input, some
from tests.codegen.cuda.run_interpreted import empty, run_source
from tests.sweeping import by_default

FEW = replace(H200, multiprocessors=1)
"""A GPU that two programs keep busy: a few hundred rows are many for it."""

Program = Callable[[int, int, DType], tuple[tuple[Node, ...], tuple[Node, ...]]]


def across(value: Node, columns: int) -> Node:
    """A value of each row, at each of its columns."""
    rows, = value.shape
    return m.expand(m.reshape(value, shape=(rows, 1)), shape=(rows, columns))


def softmax(rows: int, columns: int, dtype: DType) -> Any:
    x = an_input(0, (rows, columns), dtype)
    return (x,), (composite.softmax(x, axis=1),)


def norm(rows: int, columns: int, dtype: DType) -> Any:
    x = an_input(0, (rows, columns), dtype)
    weight, bias = (an_input(i, (columns,), dtype) for i in (1, 2))
    return (x, weight, bias), (composite.layer_norm(x, weight, bias, eps=1e-5, ndim=1),)


def gradient(rows: int, columns: int, dtype: DType) -> Any:
    """Two operands and a value of each row; a result for each element and one for each row."""
    g, y = (an_input(i, (rows, columns), dtype) for i in range(2))
    scale = an_input(2, (rows,), float32)
    product = p.mul(p.mul(p.cast(g, dtype=float32), p.cast(y, dtype=float32)), across(scale, columns))
    total = r.sum(product, axes=(1,))
    return (g, y, scale), (p.cast(p.sub(product, across(total, columns)), dtype=dtype), total)


def extremes(rows: int, columns: int, dtype: DType) -> Any:
    x = an_input(0, (rows, columns), dtype)
    return (x,), (r.argmax(x, axis=1), r.min(x, axes=(1,)), r.sum(x, axes=(1,)))


def entropy(rows: int, columns: int, dtype: DType) -> Any:
    x, targets = an_input(0, (rows, columns), dtype), an_input(1, (rows,), int64)
    return (x, targets), (composite.cross_entropy(x, targets),)


def normalized(rows: int, columns: int, dtype: DType) -> Any:
    """Rows over their norms, and of what that makes of a gradient the sum and the part that has it."""
    x, g = (an_input(i, (rows, columns), dtype) for i in range(2))
    size = across(p.sqrt(r.sum(p.mul(x, x), axes=(1,))), columns)
    y = p.div(x, size)
    total = r.sum(p.div(p.mul(p.neg(g), y), size), axes=(1,))
    return (x, g), (y, p.mul(p.add(y, g), across(total, columns)))


def kernels(program: Program, rows: int, columns: int, dtype: DType) -> tuple[Graph, list[KernelSource], list[Any]]:
    operands, results = program(rows, columns, dtype)
    graph = decomposed(Graph(operands, results))
    groups = list(fuse(graph).groups)
    return graph, [emit(group, FEW) for group in groups], groups


def check(program: Program, rows: int, columns: int, dtype: DType) -> None:
    graph, found, groups = kernels(program, rows, columns, dtype)
    assert "g_rows_to_shared" in found[0].source
    data = [some(x) % columns if x.dtype is int64 else some(x) for x in graph.inputs]
    memory = dict(zip(graph.inputs, data, strict=True))
    for group, kernel in zip(groups, found, strict=True):
        memory.update({node: empty(node) for node in group.outputs})
        run_source(kernel, memory)
    exact = [x.double() if x.is_floating_point() else x for x in data]
    for node, want in zip(graph.roots, evaluate(graph, exact, ()), strict=True):
        allowed = TOLERANCE.get(node.dtype.name, 0) * (1 if node.dtype is not float32 else 4)
        torch.testing.assert_close(memory[node].to(want.dtype), want, rtol=allowed, atol=allowed, equal_nan=True)


def called(x: object) -> str:
    """A case's name: without addresses, so that all processes collect the same ones."""
    return getattr(x, "__name__", str(x))


@pytest.mark.parametrize(("program", "rows", "columns", "dtype"), [
    *((program, *case) for program in (softmax, norm, extremes, entropy) for case in (
        (64, 5, bfloat16), (300, 7, float32), (259, 11, float16), (77, 27, float32), (131, 51, float16),
        (129, 52, bfloat16), (257, 59, float32), (90, 66, float16), (65, 85, bfloat16))),
    (gradient, 130, 5, bfloat16), (gradient, 131, 51, float16), (gradient, 66, 85, bfloat16)], ids=called)
def test_what_the_interpreter_computes_of_them(program: Program, rows: int, columns: int, dtype: DType) -> None:
    check(program, rows, columns, dtype)


@pytest.mark.parametrize(("rows", "columns"), [(300, 9), (131, 19), (257, 67)])
def test_nothing_idle_is_divided(rows: int, columns: int) -> None:
    """A division of or by 0 is a call, for the whole warp: half of the block of rows of 67 is idle."""
    check(normalized, rows, columns, float32)
    text = kernels(normalized, rows, columns, float32)[1][0].source
    assert text.count("div_rn(tl.where(") == 2 == text.count("div_rn(")


@pytest.mark.parametrize("columns", [101, 127])
def test_rows_that_four_threads_share(columns: int) -> None:
    check(softmax, 70, columns, float16)
    check(extremes, 96, columns, bfloat16)


def test_many_short_rows_are_several_for_a_thread() -> None:
    _, (kernel,), _ = kernels(softmax, 20_000, 5, bfloat16)
    assert kernel.constexprs["XBLOCK"] > 128 and kernel.num_warps == 4
    check(extremes, 16 * 256 + 3, 5, float16)


def test_integers_are_summed() -> None:
    x = an_input(0, (131, 9), int32)
    check(lambda *_: ((x,), (r.sum(x, axes=(1,)), r.max(x, axes=(1,)))), 131, 9, int32)


def test_a_nan_and_infinities_are_of_their_rows_alone() -> None:
    graph, (kernel,), (group,) = kernels(softmax, 130, 51, float32)
    x = some(graph.inputs[0])
    x[3, 50], x[64, 0], x[129, 17] = float("nan"), float("inf"), float("-inf")
    memory = {graph.inputs[0]: x, **{node: empty(node) for node in group.outputs}}
    run_source(kernel, memory)
    torch.testing.assert_close(memory[graph.roots[0]], torch.softmax(x, 1), equal_nan=True, rtol=4e-5, atol=4e-5)


def test_a_part_of_wider_rows_is_read_as_it_comes() -> None:
    x = an_input(0, (131, 60), float16)
    part = m.slice(x, starts=(0, 3), stops=(131, 54), steps=(1, 1))
    group, = fuse(decomposed(Graph((x,), (composite.softmax(part, axis=1),)))).groups
    assert "g_rows_to_shared" not in emit(group, FEW).source


def ptx_of(program: Program, columns: int, dtype: DType) -> str:
    operands, results = program(100_000, columns, dtype)
    group, *_ = fuse(decomposed(Graph(operands, results))).groups
    return compiled_by_triton(emit(group).key_parts(), 90).asm["ptx"]


@by_default("softmax-51", "extremes-27", "gradient-85")
@pytest.mark.parametrize(("program", "columns"), [
    (softmax, 51), (norm, 51), (extremes, 27), (gradient, 85), (norm, 101)],
    ids=called)
def test_machine_code_has_vectors_and_no_shuffles(program: Program, columns: int) -> None:
    """A layout in which lanes lie along the rows would reduce by a shuffle for each element."""
    ptx = ptx_of(program, columns, bfloat16)
    assert ptx.count("shfl.sync") < 32
    assert "ld.global.v4" in ptx and "st.shared.v4" in ptx


def test_where_lanes_along_rows_are_as_good_nothing_changes() -> None:
    def of(program: Program, columns: int, dtype: DType, rows: int = 100_000) -> str:
        operands, results = program(rows, columns, dtype)
        group, *_ = fuse(decomposed(Graph(operands, results))).groups
        return emit(group).source

    assert "g_rows_to_shared" in of(softmax, 51, float16)
    assert "g_rows_to_shared" not in of(softmax, 56, float16), "rows begin with a vector"
    assert "g_rows_to_shared" not in of(softmax, 131, float16), "a shuffle serves many elements"
    assert "g_rows_to_shared" not in of(softmax, 51, float16, 4000), "too few rows for a lane each"
    assert "g_rows_to_shared" not in of(gradient, 85, float32), "memory takes longer than instructions"


# Rows side by side

def check_columns(shape: tuple[int, int, int], dtype: DType, program: str) -> KernelSource:
    """Reductions over the middle axis, whose rows lie side by side."""
    x = an_input(0, shape, dtype)
    results = {"softmax": lambda: (composite.softmax(x, axis=1),), "log_softmax": lambda: (
        composite.log_softmax(x, axis=1),), "extremes": lambda: (
            r.argmax(x, axis=1), r.sum(x, axes=(1,)))}[program]()
    graph = decomposed(Graph((x,), results))
    memory = {x: some(x)}
    kernels = []
    for group in fuse(graph).groups:
        kernels.append(emit(group, FEW))
        memory.update({node: empty(node) for node in group.outputs})
        run_source(kernels[-1], memory)
    for node, want in zip(graph.roots, evaluate(graph, [memory[x].double()], ()), strict=True):
        allowed = TOLERANCE.get(node.dtype.name, 0) * (1 if node.dtype is not float32 else 4)
        torch.testing.assert_close(memory[node].to(want.dtype), want, rtol=allowed, atol=allowed, equal_nan=True)
    return kernels[0]


@pytest.mark.parametrize("program", ["softmax", "log_softmax", "extremes"])
@pytest.mark.parametrize(("shape", "dtype"), [
    ((97, 8, 11), bfloat16), ((64, 8, 11), float16), ((61, 5, 3), float32), ((70, 2, 7), float16),
    ((33, 27, 9), bfloat16), ((40, 51, 5), float32), ((31, 100, 6), bfloat16), ((50, 8, 31), float16)])
def test_rows_side_by_side(shape: tuple[int, int, int], dtype: DType, program: str) -> None:
    """Softmax over 8 of 11 columns stored 22 bytes at a time: bf16[199, 64, 32, 8, 11] 89.8 µs (H200; torch 72.9)."""
    kernel = check_columns(shape, dtype, program)
    assert "g_rows_to_shared" in kernel.source


def test_columns_of_vectors_are_read_as_they_lie() -> None:
    assert "g_rows_to_shared" not in check_columns((64, 9, 16), bfloat16, "softmax").source
    assert "g_rows_to_shared" not in check_columns((16, 9, 55), float16, "softmax").source
