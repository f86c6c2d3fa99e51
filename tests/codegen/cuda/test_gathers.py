"""Loops that read at places that are data: how lanes share the elements, and what a check of an index costs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import genesis
from genesis.codegen.cuda.compile import compile_sources
from genesis.codegen.cuda.emit import emit
from genesis.engine.backends import cuda_backend
from genesis.ir import Graph, Node
from genesis.ir.ops import indexing, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.row_number import in_range
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


@pytest.mark.parametrize(("columns", "dtype", "block"), [
    (100, bfloat16, 128), (72, bfloat16, 128), (100, float32, 128), (104, bfloat16, 128), (65, bfloat16, 16),
    (70, bfloat16, 16), (300, bfloat16, 64)])
def test_rows_that_are_read_through_an_index_are_not_read_in_pieces_of_a_sector(columns: int, dtype: DType,
                                                                               block: int) -> None:
    """Blocks of 16 of 100 bfloat16 waste fewer lanes than one of 128: 200,000 rows took 33.6 µs in them on an H200.
    Where no two elements are loaded at once idle lanes would be loads that do nothing."""
    table, index = an_input(0, (50, columns), dtype), an_input(1, (9,), int64)
    places = torch.randint(0, 50, (9,), generator=torch.Generator().manual_seed(0))
    schedule = check([table, index], indexing.take(table, index, axis=0) * 2.0, data=[some(table), places])
    [group] = schedule.groups
    assert emit(group).constexprs["RBLOCK"] == block


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
