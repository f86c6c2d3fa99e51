"""How many neighbours a thread has of rows that begin anywhere, and that every element is right."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.neighbours import at_once
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.ir import DType, Graph, Node
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.types import bfloat16, bool_, float16, float32, int64, uint8
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.index_map import Expr, add, floordiv, mod_, offset, scale, variable
from tests.codegen.cuda.machine_code import instructions
from tests.codegen.cuda.programs import an_input, check
from tests.codegen.cuda.run_interpreted import compile_cubin
from tests.sweeping import each_value

ROWS = 4096
"""Rows of kernels that are compiled and not run: as many as have programs of their full size."""


def only_kernel(operands: Sequence[Node], result: Node) -> KernelSource:
    """The kernel of a program of one, which is not run."""
    group, = fuse(Graph(tuple(operands), (result,))).groups
    return emit(group)


def joined(columns: int, parts: int, dtype: DType, rows: int = ROWS) -> tuple[list[Node], Node]:
    """As many inputs, side by side."""
    operands = [an_input(i, (rows, columns), dtype) for i in range(parts)]
    return operands, movement.concat(*operands, axis=1)


def beginning(x: Node, more: int) -> Node:
    """Rows of a tensor without their last elements."""
    stops = (*x.shape[:-1], x.shape[-1] - more)
    return movement.slice(x, starts=(0,) * len(x.shape), stops=stops, steps=(1,) * len(x.shape))


def moved(source: KernelSource) -> set[str]:
    """The widths of a kernel's loads and stores."""
    return {found[1] for _, line in instructions(compile_cubin(source))
            if (found := re.search(r"\b(?:LDG|STG)\.E\.?(\w*)", line))}


def lanes(source: KernelSource) -> set[str]:
    """How many neighbours threads have in a kernel's blocks."""
    text = compiled_by_triton(source.key_parts(), 90).asm["ttgir"]
    return set(re.findall(r"sizePerThread = \[([\d, ]+)\]", text))


x = variable("x", 7400)


@pytest.mark.parametrize(("e", "most", "count"), [
    (x, 8, 8), (offset(x, 4), 8, 4), (offset(x, 3), 8, 1), (scale(x, 2), 8, 1), (floordiv(x, 8), 8, 1),
    (add(mod_(x, 74), scale(floordiv(x, 74), 592)), 8, 2), (add(mod_(x, 80), scale(floordiv(x, 80), 640)), 8, 8),
    (add(mod_(x, 80), scale(floordiv(x, 80), 83)), 8, 1), (add(mod_(x, 80), scale(floordiv(x, 80), 84)), 8, 4),
    (add(mod_(x, 20), scale(mod_(floordiv(x, 20), 10), 100)), 4, 4), (mod_(offset(x, 2), 40), 8, 2),
    (add(x, scale(variable("y", 9), 6)), 8, 2), (add(scale(mod_(x, 16), -1), scale(floordiv(x, 16), 32)), 8, 1)])
def test_neighbours_that_are_neighbours_in_memory(e: Expr, most: int, count: int) -> None:
    assert at_once(e, "x", most) == count


@each_value
@pytest.mark.parametrize("dtype", [float16, float32, uint8, bool_, int64], ids=str)
@pytest.mark.parametrize("columns", [37, 66, 74, 80, 100, 160])
def test_parts_of_short_rows(columns: int, dtype: DType) -> None:
    operands, whole = joined(columns, 3, dtype, rows=13)
    check(operands, whole, most_programs=200)


@each_value
@pytest.mark.parametrize("dtype", [float16, float32], ids=str)
@pytest.mark.parametrize(("columns", "more"), [(37, 3), (66, 2), (72, 1), (96, 8), (130, 64)])
def test_rows_of_longer_ones_beside_others(columns: int, more: int, dtype: DType) -> None:
    a, b = an_input(0, (5, 9, columns), dtype), an_input(1, (5, 9, columns + more), dtype)
    check([a, b], p.add(a, beginning(b, more)))


@pytest.mark.parametrize("columns", [18, 37, 80])
def test_a_part_of_rows_padded_or_turned_round(columns: int) -> None:
    a = an_input(0, (7, 11, columns), float16)
    wide = movement.pad(a, low=(0, 0, 7), high=(0, 0, 1), value=0.0)
    check([a], wide, most_programs=200)
    check([a], movement.flip(a, axes=(2,)))


def test_rows_are_moved_in_the_words_that_fit_them() -> None:
    """Eight parts of 74 two-byte values were loaded in words that lay 16 bytes apart, of four rows at once: 112 µs for
    90 MB, 55 in torch (H200)."""
    for columns, dtype, widths, each in (
            (74, bfloat16, {""}, {"2"}), (66, float32, {"64"}, {"2"}), (80, bfloat16, {"128"}, {"8"}),
            (100, bfloat16, {"64"}, {"4"})):
        source = only_kernel(*joined(columns, 4, dtype))
        assert "RBLOCK" not in source.source
        assert moved(source) - {"U16"} == widths and lanes(source) == each  # the last program has single elements


def test_what_lies_as_the_result_is_moved_as_the_odd_operand_beside_it() -> None:
    """Single elements of rows of 193 of 194, each 16 bytes from the next lane's, were four lines of memory a load."""
    a, b = an_input(0, (ROWS, 193), float32), an_input(1, (ROWS, 194), float32)
    source = only_kernel([a, b], p.add(a, beginning(b, 1)))
    assert "RBLOCK" not in source.source and lanes(source) == {"1"}


def test_rows_of_vectors_stay_blocks_of_rows() -> None:
    a, b = an_input(0, (ROWS, 256), float32), an_input(1, (ROWS, 264), float32)
    source = only_kernel([a, b], p.add(a, beginning(b, 8)))
    assert "RBLOCK" in source.source and "max_contiguous" not in source.source and moved(source) == {"128"}


def test_operands_by_rows_and_quotients_of_r_have_a_word_a_thread() -> None:
    """A remainder of what Triton was told to be neighbours by twos has none, so that its address itself says it."""
    a, b = an_input(0, (62, 64, 16, 72), bfloat16), an_input(1, (16, 62, 64, 75), bfloat16)
    c = movement.expand(an_input(2, (62, 64, 1, 1), bfloat16), shape=(62, 64, 16, 72))
    source = only_kernel([a, b, c.inputs[0]], a * movement.permute(beginning(b, 3), axes=(1, 2, 0, 3)) + c)
    assert "RBLOCK" in source.source and lanes(source) <= {"1, 2", "1, 1"}
    assert "convert_layout" not in compiled_by_triton(source.key_parts(), 90).asm["ttgir"]


def test_vectors_end_under_a_mask_by_fours() -> None:
    """Of 20,628 columns, which 4 divides and 8 does not, two-byte elements came one by one: 16 for each load of 8."""
    a = an_input(0, (2050, 20_628), float16)
    source = only_kernel([a], movement.permute(a, axes=(1, 0)))
    assert ("x_size", 4) in source.lesser and "64" in moved(source)
    small = an_input(0, (50, 268), float16)
    check([small], movement.permute(small, axes=(1, 0)))


def test_lanes_store_along_rows_of_odd_pieces() -> None:
    """Of rows of 13 of 39 Triton knows no direction, and had each lane of a turned part store to another line."""
    turned, plain = an_input(0, (13, 760, 11)), [an_input(i, (11, 760, 13)) for i in (1, 2)]
    whole = movement.concat(*plain, movement.permute(turned, axes=(2, 1, 0)), axis=2)
    text = compiled_by_triton(only_kernel([turned, *plain], whole).key_parts(), 90).asm["ttgir"]
    stores = [line for line in text.splitlines() if "tt.store" in line and re.search(r"tensor<\d+x\d+x!tt", line)]
    orders = dict(re.findall(r"(#blocked\d*) = #ttg.blocked<.*order = \[([\d, ]+)\]", text))
    assert stores and all(orders[re.findall(r"#blocked\d*", line)[-1]] == "1, 0" for line in stores)
    small = [an_input(0, (13, 33, 11)), *(an_input(i, (11, 33, 13)) for i in (1, 2))]
    check(small, movement.concat(*small[1:], movement.permute(small[0], axes=(2, 1, 0)), axis=2), most_programs=200)


@pytest.mark.parametrize("more", [1, 3])
def test_odd_pieces_beside_even_ones_begin_anywhere(more: int) -> None:
    """Rows of 6 of 9 were said to begin at multiples of two, as those beside them do: on an H200 their loads of two
    elements ended the process (a misaligned address)."""
    a, b = an_input(0, (9, 13, 34, 6 + more), bfloat16), an_input(1, (9, 6, 34, 13), bfloat16)
    check([a, b], p.add(beginning(a, more), movement.permute(b, axes=(0, 3, 2, 1))), most_programs=200)
