"""Loops that read at places that are data: how lanes share the elements, and what a check of an index costs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import genesis
from genesis.codegen.cuda import tiles
from genesis.codegen.cuda.compile import compile_sources
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import cuda_backend
from genesis.ir import Graph, Node
from genesis.ir.ops import indexing, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.row_number import in_range
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, bfloat16, float32, int64
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.gpus import GPUS
from tests.codegen.cuda.idle_gpu import Kept
from tests.codegen.cuda.programs import an_input, check, inputs, some


def checked(index: Node, size: int) -> Node:
    """The index with its check, as the frontend records it on a GPU."""
    return in_range(index, size=size, dim=1, negative=True, ignored=None, name="gather", line="")


@pytest.mark.parametrize(("axis", "shape"), [(1, (3, 50)), (0, (7, 40)), (1, (2, 5, 30))])
def test_what_elements_read_for_themselves_is_a_flat_loop(axis: int, shape: tuple[int, ...]) -> None:
    x, index = an_input(0, shape), an_input(1, shape, int64)
    places = torch.randint(0, shape[axis], shape, generator=torch.Generator().manual_seed(0))
    schedule = check([x, index], p.exp(indexing.gather(x, index, axis=axis)), data=[some(x), places])
    [group] = schedule.groups
    assert "RBLOCK" not in emit(group).source


@pytest.mark.parametrize(("shape", "axis", "flat"), [((7, 40), 1, True), ((3, 5, 9), 2, True), ((3, 9, 40), 1, False)])
def test_what_one_index_takes_of_all_rows_is_a_flat_loop(shape: tuple[int, ...], axis: int, flat: bool) -> None:
    """Triton knew of no direction in such a load, and lanes took rows."""
    x, index = an_input(0, shape), an_input(1, (60,), int64)
    places = torch.randint(0, shape[axis], (60,), generator=torch.Generator().manual_seed(0))
    schedule = check([x, index], p.exp(indexing.take(x, index, axis=axis)), data=[some(x), places])
    [group] = schedule.groups
    assert ("RBLOCK" not in emit(group).source) == flat


def test_rows_that_are_read_backwards_are_a_flat_loop() -> None:
    x, = inputs((7, 40))
    schedule = check([x], movement.flip(x, axes=(1,)) * 2.0)
    [group] = schedule.groups
    assert "RBLOCK" not in emit(group).source


def test_rows_that_are_read_whole_have_lanes_for_their_places() -> None:
    """Neighbours of a row are read together wherever it lies."""
    table, index = an_input(0, (9, 40)), an_input(1, (6,), int64)
    schedule = check([table, index], indexing.take(table, index, axis=0) * 2.0, data=[some(table), torch.arange(6)])
    [group] = schedule.groups
    assert "RBLOCK" in emit(group).source


def look_up(columns: int, dtype: DType, part: int = 0, rows: int = 50, by: float = 2.0) -> str:
    """The text of a look-up's kernel, whose values are compared with torch's; of the first columns of longer rows with
    `part`. A kernel is made once: another number makes another one."""
    count = min(90, 12_000 // columns)
    table, index = an_input(0, (rows, columns + part), dtype), an_input(1, (count,), int64)
    places = torch.randint(-rows, rows, (count,), generator=torch.Generator().manual_seed(0))
    read = movement.slice(table, starts=(0, 0), stops=(rows, columns), steps=(1, 1)) if part else table
    taken = indexing.take(read, p.where(p.lt(index, 0), index + rows, index), axis=0)
    [group] = check([table, index], taken * by, data=[some(table), places]).groups
    return emit(group).source


@pytest.mark.parametrize(("columns", "dtype", "vector"), [
    (100, bfloat16, 4), (72, bfloat16, 8), (100, float32, 4), (66, float32, 2), (104, bfloat16, 8), (300, bfloat16, 4),
    (1024, bfloat16, 8)])
def test_rows_that_are_read_through_an_index_are_vectors(columns: int, dtype: DType, vector: int) -> None:
    """Each knows its row: no lane idles, whatever a row's length (H200, 200,000 rows of 72 bfloat16: 16.2 µs in blocks
    of 128 for a row, 9.8 so, torch.compile 11.2)."""
    text = look_up(columns, dtype)
    assert f"x // {columns // vector}" in text and "tl.gather" not in text
    table, index = an_input(0, (50, columns), dtype), an_input(1, (90,), int64)
    graph = Graph((table, index), (indexing.take(table, index, axis=0),))
    [group] = run_passes(graph, cuda_backend(GPUS[90]))[1].groups
    kernel = emit(group, GPUS[90])
    assert kernel.constexprs["RBLOCK"] == vector
    assembly = compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
    assert f"ld.global.v{vector * dtype.itemsize // 4}.b32" in assembly


@pytest.mark.parametrize(("columns", "dtype"), [
    (65, float32), (65, bfloat16), (70, bfloat16), (33, float32), (9, float32), (301, bfloat16)])
def test_odd_rows_that_are_read_through_an_index_are_packed(columns: int, dtype: DType) -> None:
    """A program finds each of its rows once, and lanes have neighbouring words, wherever a row begins (H200, 110,769
    rows of 65 float32: 18.9 µs in blocks of 16, 10.9 so, torch.compile 17.5)."""
    text = look_up(columns, dtype)
    element = f"tl.multiple_of(first + tl.arange(0, 256), {4 // dtype.itemsize})"
    assert "x_part0 = tl.gather(" in text and element in text


@pytest.mark.parametrize(("columns", "dtype", "vector"), [
    (100, bfloat16, 4), (66, float32, 2), (300, bfloat16, 4), (76, float32, 4)])
def test_rows_of_any_length_that_are_read_through_an_index_are_packed_in_vectors(
        monkeypatch: pytest.MonkeyPatch, columns: int, dtype: DType, vector: int) -> None:
    """A length that is a number for the kernel alone was read in words, each element of which found its row: 31
    instructions (H200, 65,216 rows of 300 bfloat16 16.9 µs; 11 by their bytes)."""
    with Trace(N=4000, C=columns, K=6000) as trace:
        trace.literals = frozenset("C")
        rows, length, count = (trace.symbol(name) for name in "NCK")
        table, index = an_input(0, (rows, length), dtype), an_input(1, (count,), int64)
        graph = Graph((table, index), (indexing.take(table, index, axis=0),))
        [group] = run_passes(graph, cuda_backend(GPUS[90]))[1].groups
        kernel = emit(group, GPUS[90])
        assembly = compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
    assert "row_of_vector" in kernel.source
    assert f"ld.global.v{vector * dtype.itemsize // 4}.b32" in assembly
    monkeypatch.setattr(tiles, "_in_vectors", lambda *_: None)
    assert "row_of_vector" in look_up(columns, dtype, by=3.0)


@pytest.mark.parametrize(("columns", "part", "dtype"), [
    (65, 65, bfloat16), (70, 1, bfloat16), (72, 3, bfloat16), (96, 1, float32), (64, 2, bfloat16), (7, 1, float32)])
def test_rows_that_are_parts_of_longer_ones_are_not_read_in_wider_words_than_both(columns: int, part: int,
                                                                                dtype: DType) -> None:
    """Of 65 of 130 elements a row begins at a multiple of two in the table and anywhere in the result."""
    text = look_up(columns, dtype, part)
    if columns % 2 or part % 2:
        assert "multiple_of(x_part" not in text


def test_an_index_outside_is_told_of_packed_rows_and_of_vectors() -> None:
    """The first and last of a program's rows belong to other programs, too."""
    for columns in (65, 72):
        with Kept() as backend:
            x = genesis.empty(500, columns, device="cuda")
            index = genesis.empty(3000, dtype=genesis.int64, device="cuda")
            genesis.eval(x, index)
            genesis.eval(x[index])
            assert sum("report" in source.source for source in backend.sources) == 1


@pytest.mark.parametrize("architecture", [80, 90, 120])
def test_a_checked_gather_moves_nothing_through_shared_memory(architecture: int) -> None:
    """Neither the elements, which lanes have four by four, nor the indices for the report of one outside."""
    x, index = an_input(0, (3000, 1100), bfloat16), an_input(1, (3000, 1100), int64)
    graph = Graph((x, index), (indexing.gather(x, checked(index, 1100), axis=1),))
    [group] = run_passes(graph, cuda_backend(GPUS[architecture]))[1].groups
    [image] = compile_sources([emit(group, GPUS[architecture])], gpu=GPUS[architecture])
    assert image.shared_bytes == 0


@pytest.mark.parametrize(("program", "checks"), [
    (lambda x: x.max(1).values, 0), (lambda x: x.min(0).values, 0),
    (lambda x: x.gather(1, x.argmax(1, keepdim=True)), 0),
    (lambda x: x[x.argmax(0)], 0), (lambda x: x.gather(0, x.argmin(1)[None]), 1), (lambda x: x[x.argmax(0) - 1], 1)],
    ids=["max", "min", "argmax", "rows", "of a longer row", "a negative index may be meant"])
def test_where_a_row_has_its_largest_element_is_inside_it(program: Callable[[genesis.Tensor], genesis.Tensor],
                                                          checks: int) -> None:
    """Its index needs no check: 803 instructions for 680, and a load of the report, for the smallest of 9."""
    with Kept() as backend:
        x = genesis.empty(30, 70, device="cuda")
        genesis.eval(x)
        genesis.eval(program(x))
        assert sum("report" in source.source for source in backend.sources) == checks
