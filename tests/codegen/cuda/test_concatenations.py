"""Concatenations of several parts: loops side by side, each of which writes where its part lies."""

from __future__ import annotations

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import KernelSource
from genesis.ir import Graph, Node
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, bfloat16, bool_, float32, int64
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.programs import an_input, check
from tests.codegen.cuda.run_interpreted import compile_cubin
from tests.sweeping import each_value


def checked(operands: list[Node], whole: Node, **limits: int) -> KernelSource:
    """The one kernel of a program, which was run."""
    group, = check(operands, whole, **limits).groups
    source = emit(group)
    assert source.grid[0]
    return source


def loops(source: KernelSource) -> int:
    """The loops side by side in a kernel; 1 where it is one loop."""
    return max(1, source.source.count("(program_id, "))


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_parts_of_any_sizes_lie_where_they_belong(axis: int, dtype: DType) -> None:
    sizes = (3, 1, 7, 4)
    operands = [an_input(i, tuple(size + 64 * (axis == 2) if at == axis else (2, 3, 70)[at] for at in range(3)), dtype)
                for i, size in enumerate(sizes)]
    assert loops(checked(operands, movement.concat(*operands, axis=axis))) == 4


def test_a_stack_has_a_loop_for_each_part_without_conditions() -> None:
    operands = [an_input(i, (5, 4, 70)) for i in range(8)]
    whole = movement.concat(*[movement.reshape(x, shape=(5, 1, 4, 70)) for x in operands], axis=1)
    source = checked(operands, whole)
    assert loops(source) == 8 and "tl.where" not in source.source and source.source.count("tl.load(") == 8
    assert compile_cubin(source)


def test_what_is_computed_views_and_equal_operands_are_parts_too() -> None:
    x, y = an_input(0, (8, 100)), an_input(1, (8, 133))
    cut = movement.slice(y, starts=(0, 1), stops=(8, 101), steps=(1, 1))
    whole = movement.concat(x, p.add(x, cut), cut, p.mul(x, x), x, movement.flip(x, axes=(1,)), axis=1)
    assert loops(checked([x, y], whole)) == 6


def test_parts_of_one_shape_have_their_programs_in_turn() -> None:
    """What two parts write of a sector meets in the L2; a part that lay in longer rows had programs of its own size,
    all of them behind the others': 61.3 µs for 167 MB, torch.compile 47.7 (H200)."""
    x, y, longer = an_input(0, (300, 155)), an_input(1, (300, 155)), an_input(2, (300, 158))
    part = movement.slice(longer, starts=(0, 0), stops=(300, 155), steps=(1, 1))
    source = checked([x, y, longer], movement.concat(x, y, part, axis=1), most_programs=600)
    assert loops(source) == 3 and "which = turn % 3" in source.source
    pieces = checked([x, y, longer], movement.concat(x, y, part, axis=0), most_programs=600)
    assert loops(pieces) == 3 and "turn" not in pieces.source


def test_short_runs_and_two_parts_are_one_loop() -> None:
    columns = [an_input(i, (40, 4)) for i in range(4)]
    assert loops(checked(columns, movement.concat(*columns, axis=1))) == 1
    rows = [an_input(i, (40, 128)) for i in range(2)]
    assert loops(checked(rows, movement.concat(*rows, axis=1))) == 1


def test_short_parts_that_are_computed_are_loops_of_their_own_where_they_are_many() -> None:
    """A stack of eight parts of 32 bytes took 26.4 µs as one loop for 13 by its bytes (H200)."""
    columns = [an_input(i, (40, 8)) for i in range(8)]
    source = checked(columns, movement.concat(*[p.mul(x, 2.0) for x in columns], axis=1))
    assert loops(source) == 8 and "tl.where" not in source.source and compile_cubin(source)
    for count, width in ((8, 3), (5, 8)):  # shorter, or few
        columns = [an_input(i, (40, width)) for i in range(count)]
        assert loops(checked(columns, movement.concat(*[p.mul(x, 2.0) for x in columns], axis=1))) == 1
    x, y, z = an_input(0, (70, 13)), an_input(1, (70, 13)), an_input(2, (13, 70))
    assert loops(checked([x, y, z], movement.concat(x, y, movement.permute(z, axes=(1, 0)), axis=1))) == 3


@each_value
@pytest.mark.parametrize(("sizes", "dtype", "chosen"), [
    ((3,) * 8, float32, True), ((12,) * 8, float32, True), ((3, 1, 5), float32, True), ((3, 3), int64, True),
    ((3,) * 8, bfloat16, True), ((3, 1, 5), bfloat16, False), ((12, 8, 4), float32, False), ((1,) * 17, float32, False),
    ((40,) * 8, float32, False), ((3,) * 8, bool_, False)])
def test_an_element_of_short_parts_chooses_where_it_is_read(sizes: tuple[int, ...], dtype: DType, chosen: bool) -> None:
    """Eight parts of 12 bytes took 117 µs of an H200 as loops side by side for 182 MB, 80 with a load for each part, 49
    so."""
    parts = [an_input(i, (5, 37, size), dtype) for i, size in enumerate(sizes)]
    source = checked(parts, movement.concat(*parts, axis=2), most_programs=400)
    assert (source.source.count("tl.load(") == 1 and "tl.pointer_type" in source.source) == chosen
    assert not chosen or (loops(source) == 1 and source.constexprs["XBLOCK"] == 512 and compile_cubin(source))


@each_value
@pytest.mark.parametrize(("order", "count", "chosen"), [
    ((1, 0, 2), 8, True), ((1, 0, 2), 3, True), ((2, 1, 0), 8, True), ((2, 1, 0), 4, False)])
def test_short_parts_that_lie_in_another_order_or_in_longer_rows_are_chosen_too(
        order: tuple[int, ...], count: int, chosen: bool) -> None:
    """With one as [1, 0, 2] eight parts took 203 µs as loops side by side, 50.9 so (torch.compile 97)."""
    x, longer = an_input(0, tuple((7, 11, 3)[order.index(at)] for at in range(3))), an_input(1, (7, 11, 5))
    cut = movement.slice(longer, starts=(0, 0, 1), stops=(7, 11, 4), steps=(1, 1, 1))
    plain = [an_input(i, (7, 11, 3)) for i in range(2, count)]
    turned = movement.permute(x, axes=order)
    source = checked([x, longer, *plain], movement.concat(cut, *plain, turned, plain[0], axis=2))
    assert ("tl.pointer_type" in source.source) == chosen and compile_cubin(source)


def test_sizes_that_are_arguments_are_chosen_by() -> None:
    with Trace(N=700, C=5) as trace:
        rows, columns = trace.symbol("N"), trace.symbol("C")
        parts = [an_input(i, (rows, columns)) for i in range(7)]
        group, = fuse(Graph(tuple(parts), (movement.concat(*parts, axis=1),))).groups
        source = emit(group)
        assert "tl.pointer_type" in source.source and compile_cubin(source)


@each_value
@pytest.mark.parametrize(("shape", "order"), [((70, 9, 6), (2, 1, 0)), ((6, 70, 9), (0, 2, 1)),
                                              ((9, 70, 6), (2, 0, 1))])
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_two_parts_of_which_one_lies_in_another_order_are_two_loops(shape: tuple[int, ...], order: tuple[int, ...],
                                                                    dtype: DType) -> None:
    """In one loop its neighbours are read a sector each: 59.6 µs for 105 MB, torch.compile 42 (H200)."""
    x = an_input(0, shape, dtype)
    turned = movement.permute(x, axes=order)
    y = an_input(1, turned.shape, dtype)
    for parts in ((turned, y), (y, turned)):
        stacked = movement.concat(*[movement.reshape(v, shape=(v.shape[0], 1, *v.shape[1:])) for v in parts], axis=1)
        source = checked([x, y], stacked)
        assert loops(source) == 2 and compile_cubin(source)


def test_empty_parts_are_none_and_many_parts_are_one_loop() -> None:
    operands = [an_input(i, (0 if i == 1 else 2, 64)) for i in range(4)]
    assert loops(checked(operands, movement.concat(*operands, axis=0))) == 3
    many = [an_input(i, (1, 64)) for i in range(65)]
    assert loops(checked(many, movement.concat(*many, axis=0))) == 1
