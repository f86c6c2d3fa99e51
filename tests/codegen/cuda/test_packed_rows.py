"""Short rows side by side: what a program's rows share is loaded once for each of them."""

from __future__ import annotations

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.ir import OPS, Graph, Node
from genesis.ir.ops import leaves, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.types import DType, bfloat16, bool_, float16, float32, float64, int64, uint8
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.programs import GPU, an_input, check, inputs
from tests.sweeping import each_value

PACKED = "row_near ="


def wide(x: Node, shape: tuple[int, ...]) -> Node:
    """An operand at every element of a shape."""
    return movement.expand(x, shape=shape)


def text(operands: tuple[Node, ...], result: Node) -> str:
    """The one kernel's text."""
    kernel, = map(emit, fuse(Graph(operands, (result,))).groups)
    return kernel.source


@each_value
@pytest.mark.parametrize(("shape", "other"), [
    ((5, 3, 7, 7), (1, 3, 1, 1)), ((41, 5, 9), (41, 5, 1)), ((3, 4, 5, 2, 24), (3, 4, 1, 2, 1)),
    ((64, 8, 17), (1, 8, 1)), ((300, 50), (300, 1)), ((2, 1, 3, 11), (2, 1, 1, 1)), ((31, 23), (1, 23)),
    ((13, 2, 33), (13, 1, 33)), ((6, 5, 19), (1, 5, 19)), ((7, 29, 1, 8), (7, 1, 1, 8)), ((97, 2, 5, 2), (97, 1, 5, 2)),
    ((1, 1, 21), (1, 1, 1)), ((129, 12), (129, 1)), ((4, 3, 5, 7, 1), (1, 3, 1, 7, 1)), ((3, 11, 13), (1, 11, 1))])
@pytest.mark.parametrize("dtype", [float32, bfloat16])
def test_an_operand_is_broadcast_along_any_axes(shape: tuple[int, ...], other: tuple[int, ...], dtype: DType) -> None:
    x, y = an_input(0, shape, dtype), an_input(1, other, dtype)
    check([x, y], p.sub(x, p.exp(wide(y, shape))))
    check([x, y], p.sub(wide(y, shape), x), p.mul(wide(y, shape), wide(y, shape)))


@pytest.mark.parametrize("dtype", [float32, float16, float64, int64, uint8, bool_], ids=str)
def test_values_of_rows_have_any_dtype(dtype: DType) -> None:
    x, y = an_input(0, (150, 17)), an_input(1, (150, 1), dtype)
    z = an_input(2, (1, 17), dtype)
    each = [p.cast(wide(n, (150, 17)), dtype=float32) for n in (y, z)]
    schedule = check([x, y, z], x + each[0] * each[1])
    assert PACKED in emit(schedule.groups[0]).source


@pytest.mark.parametrize(("row", "places", "packed"), [(853, False, True), (853, True, False), (856, False, False)])
def test_longer_rows_are_packed_where_places_have_no_values(row: int, places: bool, packed: bool) -> None:
    """One by one, as rows of 853 begin at no vector, a sum's gradient took 10.7 µs for 5 by its bytes (H200)."""
    y, z = an_input(0, (9, 1), float16), an_input(1, (1, row), float16)
    found = p.mul(wide(y, (9, row)), wide(z, (9, row))) if places else p.exp(wide(y, (9, row)))
    schedule = check([y, z], found)
    assert (PACKED in emit(schedule.groups[0]).source) == packed


def test_values_of_rows_choose_and_are_compared() -> None:
    x, y, z = inputs((70, 49), (70, 1), (1, 49))
    low, high = wide(y, (70, 49)), wide(z, (70, 49))
    check([x, y, z], p.where(p.lt(low, high), p.maximum(x, low), p.cast(p.gt(low, x), dtype=float32)))


def test_several_values_of_a_channel_as_a_norm_has_them() -> None:
    shape = (37, 5, 7, 7)
    x, mean, scale, weight, bias = inputs(shape, *[(1, 5, 1, 1)] * 4)
    mean, scale, weight, bias = (wide(n, shape) for n in (mean, scale, weight, bias))
    operands = inputs(shape, *[(1, 5, 1, 1)] * 4)
    schedule = check(operands, p.add(p.mul(p.mul(p.sub(x, mean), scale), weight), bias))
    assert PACKED in emit(schedule.groups[0]).source


def test_coordinates_are_those_of_an_element() -> None:
    """Positions along axes outside of a row, of rows and in them."""
    x, y = inputs((6, 9, 13), (6, 1, 1))
    counts = [p.cast(leaves.iota(shape=x.shape, axis=axis, dtype=int64, device=GPU), dtype=float32)
              for axis in range(3)]
    check([x, y], x * wide(y, x.shape) + counts[0] * 100.0 + counts[1] * 10.0 + counts[2])


@pytest.mark.parametrize("rows", [1, 2, 41, 42, 250, 251])
def test_programs_begin_and_end_anywhere_in_a_row(rows: int) -> None:
    """256 elements a program: it begins in the first, the middle or the last element of a row of 49."""
    x, y = inputs((rows, 49), (rows, 1))
    check([x, y], x + wide(y, (rows, 49)))


def _norm(rows: int, columns: int, dtype: DType) -> tuple[tuple[Node, ...], Node]:
    shape = (rows, 256, columns)
    operands = (an_input(0, shape, dtype), *(an_input(i, (1, 256, 1)) for i in (1, 2, 3, 4)))
    x, a, b, c, d = (p.cast(wide(n, shape), dtype=float32) for n in operands)
    return operands, p.cast(p.add(p.mul(p.mul(p.sub(x, a), b), c), d), dtype=dtype)


@pytest.mark.parametrize(("columns", "dtype"), [(49, float32), (49, bfloat16), (24, float32), (9, bfloat16)], ids=str)
def test_machine_code_loads_a_row_once_and_elements_in_vectors(columns: int, dtype: DType) -> None:
    """In a flat loop each element loads four numbers of its channel: 32 single loads a thread."""
    operands, result = _norm(516, columns, dtype)
    kernel, = map(emit, fuse(Graph(operands, (result,))).groups)
    ptx = compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
    assert "ld.global.v4" in ptx and "st.global.v4" in ptx
    assert "rem.s" not in ptx and "mul.hi.s16" not in ptx
    singles = sum("ld.global.b32" in line for line in ptx.splitlines())
    assert singles <= 4 * 2 * kernel.constexprs["XBLOCK"] // 32


def test_an_odd_end_costs_no_vectors() -> None:
    """517 · 255 · 9 elements of two bytes: only the last program stores them one by one."""
    shape = (517, 255, 9)
    x, y = an_input(0, shape, bfloat16), an_input(1, (1, 255, 1), bfloat16)
    kernel, = map(emit, fuse(Graph((x, y), (x + wide(y, shape),))).groups)
    assert "st.global.v4" in compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
    x, y = an_input(0, (11, 15, 9), bfloat16), an_input(1, (1, 15, 1), bfloat16)
    check([x, y], x + wide(y, x.shape))


@pytest.mark.parametrize(("shape", "other", "dtype", "found"), [
    ((516, 256, 49), (1, 256, 1), float32, True), ((4000, 27), (1, 27), bfloat16, True),
    ((4000, 64), (1, 64), bfloat16, False), ((4000, 100), (4000, 1), float32, False),
    ((4000, 3), (4000, 1), float32, False), ((4000, 1000), (4000, 1), float32, False)])
def test_where_blocks_of_rows_idle_or_load_single_elements(
        shape: tuple[int, ...], other: tuple[int, ...], dtype: DType, found: bool) -> None:
    x, y = an_input(0, shape, dtype), an_input(1, other, dtype)
    assert (PACKED in text((x, y), x + wide(y, shape))) == found


def test_random_bits_and_looked_up_rows_are_what_they_were() -> None:
    x, index = an_input(0, (90, 49)), an_input(1, (30,), int64)
    taken = OPS["take"](x, index, axis=0)
    y = an_input(2, (30, 1))
    check([x, index, y], taken + wide(y, (30, 49)))


@pytest.mark.parametrize(("shape", "count"), [((43_827_432, 49), 1), ((238_610_529, 9), 2)])
def test_more_elements_than_32_bits_count_are_all_inside(shape: tuple[int, int], count: int) -> None:
    """The number of rows is an argument of 32 bits: times a row's length it would be negative, and no element stored.
    So would the whole programs be, which rows at the end of no vector have."""
    x, y = an_input(0, shape, bfloat16), an_input(1, (shape[0], 1), bfloat16)
    kernel, = map(emit, fuse(Graph((x, y), (x + wide(y, shape),))).groups)
    assert kernel.signature["x_size"] == "i32"
    assert kernel.source.count(f"tl.cast(x_size, tl.int64) * {shape[1]}") == count
    assert compiled_by_triton(kernel.key_parts(), 90).asm["cubin"]
