"""Pointwise loops split at a row: what the text no longer has, and that every element is right."""

from __future__ import annotations

from functools import reduce
from operator import sub

import pytest

import genesis
from genesis.codegen.cuda.block_sizes import block_of
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.tiles import tile
from genesis.ir import DType, Graph, Node
from genesis.ir.node import NUMBER_TYPES
from genesis.ir.ops import leaves, movement, reduction
from genesis.ir.ops import pointwise as p
from genesis.ir.size_trace import Trace
from genesis.ir.types import bfloat16, float16, float32
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.idle_gpu import Kept
from tests.codegen.cuda.programs import an_input, check, inputs
from tests.codegen.cuda.run_interpreted import compile_cubin


def text(schedule) -> str:
    """The one kernel's text."""
    [group] = schedule.groups
    return emit(group).source


@pytest.mark.parametrize("columns", [16, 48, 64, 96, 100, 1024, 1040])
def test_rows_and_columns_are_broadcast_without_a_division(columns: int) -> None:
    x, row, column = inputs((3, columns), (columns,), (3, 1))
    wide = movement.expand(movement.reshape(row, shape=(1, columns)), shape=(3, columns))
    schedule = check([x, row, column], x * wide + movement.expand(column, shape=(3, columns)))
    kernel = text(schedule).partition("gdc_wait")[2].replace("program //", "").replace("program %", "")
    assert kernel and "//" not in kernel and "%" not in kernel


def test_a_short_row_stays_flat() -> None:
    x, row = inputs((40, 3), (3,))
    schedule = check([x, row], x + movement.expand(movement.reshape(row, shape=(1, 3)), shape=(40, 3)))
    assert "RBLOCK" not in text(schedule)


@pytest.mark.parametrize("shape", [(64, 64), (100, 130), (8, 300), (300, 8), (65, 17)])
def test_a_transpose_is_tiled(shape: tuple[int, int]) -> None:
    x, = inputs(shape)
    schedule = check([x], movement.permute(x, axes=(1, 0)) * 2.0)
    assert "RBLOCK" in text(schedule)


@pytest.mark.parametrize("axes", [(2, 1, 0), (1, 0, 2), (0, 2, 1), (1, 2, 0), (2, 0, 1)])
def test_every_order_of_three_axes(axes: tuple[int, ...]) -> None:
    x, = inputs((9, 20, 33))
    check([x], p.exp(movement.permute(x, axes=axes)))


def test_a_transposed_operand_beside_a_straight_one() -> None:
    x, y = inputs((48, 80), (80, 48), dtype=bfloat16)
    check([x, y], movement.permute(x, axes=(1, 0)) + y)


def test_tiles_compile_for_the_gpu() -> None:
    x, row = inputs((128, 256), (128,), dtype=bfloat16)
    turned = movement.permute(x, axes=(1, 0))
    schedule = check([x, row], turned * movement.expand(movement.reshape(row, shape=(1, 128)), shape=(256, 128)))
    assert compile_cubin(emit(schedule.groups[0]))


def test_a_number_does_not_make_a_tile_smaller_and_short_runs_make_it_longer() -> None:
    """A scale of 8 bytes is one value; and of rows of 25 elements a tile of 64 would leave more than half idle."""
    def blocks_of(node: Node) -> tuple[int, int]:
        group, = fuse(Graph((x,), (node,), numbers=1)).groups
        found = tile(group, build(group), H200)
        assert found is not None
        return found[1].x, found[1].r
    x = an_input(0, (4096, 4096), bfloat16)
    number = leaves.scalar(index=0, type=NUMBER_TYPES[float])
    turned = movement.permute(x, axes=(1, 0))
    assert blocks_of(p.mul(turned, number)) == blocks_of(p.exp(turned)) == (128, 128)
    x = an_input(0, (222992, 25))
    assert blocks_of(p.exp(movement.permute(x, axes=(1, 0)))) == (32, 128)


def test_rows_are_packed_where_blocks_would_idle_however_the_kernel_knows_their_length() -> None:
    """Channels of 7 × 7 images: blocks of 64 lanes would leave a quarter idle, and read 49 elements one by one. The
    second batch norm of a process has the area as an argument: blocks of 256 lanes, as areas of the class reach up to
    225 elements, took 41 µs for 26 MB, read and written."""
    for literals in (frozenset("H"), frozenset[str]()):
        with Trace(N=516, H=7) as trace:
            trace.literals = literals
            shape = (trace.symbol("N"), 256, trace.symbol("H"), trace.symbol("H"))
            x, mean = an_input(0, shape), an_input(1, (256,))
            each = movement.expand(movement.reshape(mean, shape=(1, 256, 1, 1)), shape=shape)
            group, = fuse(Graph((x, mean), (x - each,))).groups
            kernel = emit(group)
            assert "row_near =" in kernel.source and ("r_size" in kernel.signature) == (not literals)
            assert kernel.constexprs == {"XBLOCK": 32, "RBLOCK": 64}
            assert compile_cubin(kernel)


@pytest.mark.parametrize(("side", "block"), [(3, 16), (5, 32), (7, 64), (8, 64), (11, 128), (15, 256)])
def test_areas_of_a_class_have_blocks_that_fit(side: int, block: int) -> None:
    """Squares of 2 to 15 are 4 to 225: guards say between which powers of two."""
    with Trace(H=side, N=100) as trace:
        assert block_of(trace.symbol("H") * trace.symbol("H")) == block
        guards = len(trace.guards)
        assert guards and block_of(trace.symbol("N")) == 128 and len(trace.guards) == guards, "a class is one power"


def test_a_reduced_batch_of_images_is_read_in_vectors_where_their_sizes_are_numbers() -> None:
    """61 × 8 × 8 elements of a channel: a block of 4096, and a length that is known to be a multiple of 16."""
    with Trace(N=61, H=8) as trace:
        trace.literals = frozenset("H")
        x = an_input(0, (trace.symbol("N"), 128, trace.symbol("H"), trace.symbol("H")), bfloat16)
        group, = fuse(Graph((x,), (reduction.sum(x, axes=(0, 2, 3)),))).groups
        kernel = emit(group)
        assert kernel.constexprs["RBLOCK"] == 4096 and "r_size" in kernel.aligned


@pytest.mark.parametrize("middle", [2, 12])
def test_a_value_for_each_row_makes_no_transpose(middle: int) -> None:
    """What is the same all along a row of 24 is read once, though it goes by ones from row to row: blocks of `middle`
    rows were 39,928 programs of 48 elements each."""
    shape = (23, 56, 31, middle, 24)
    x, y = an_input(0, shape, bfloat16), an_input(1, (23, 56, 1, middle, 1), bfloat16)
    kernel, = map(emit, fuse(Graph((x, y), (x + movement.expand(y, shape=shape),))).groups)
    assert kernel.constexprs["XBLOCK"] * kernel.constexprs.get("RBLOCK", 1) >= 1024
    x, y = inputs((3, 5, middle, 24), (3, 1, middle, 1))
    check([x, y], x + movement.expand(y, shape=x.shape))


def test_tiles_of_many_operands_have_room_for_them() -> None:
    """Six operands, some along the columns, of float16: tiles of 128 × 128 spilled a kilobyte a thread."""
    shape = (1560, 7309)
    across = [movement.permute(an_input(i, shape, float16), axes=(1, 0)) for i in range(3)]
    along = [an_input(i, shape[::-1], float16) for i in (3, 4, 5)]
    inputs = [*(x.inputs[0] for x in across), *along]
    value = p.div(across[0], along[0]) * p.div(across[1], along[1]) + p.div(across[2], along[2])
    group, = fuse(Graph(tuple(inputs), (value,))).groups
    kernel = emit(group)
    assert kernel.constexprs == {"XBLOCK": 64, "RBLOCK": 64} and kernel.num_warps == 8
    x = an_input(0, (4096, 4096), float16)
    one, = fuse(Graph((x,), (p.exp(movement.permute(x, axes=(1, 0))),))).groups
    assert emit(one).constexprs == {"XBLOCK": 128, "RBLOCK": 128}
    few, = fuse(Graph((inputs[0],), (p.exp(across[0]),))).groups
    assert emit(few).constexprs == {"XBLOCK": 64, "RBLOCK": 64}, "of few tiles none waits while another stores"


@pytest.mark.parametrize(("dtype", "elements"), [(float32, 32 * 32), (bfloat16, 64 * 64)], ids=str)
def test_tiles_of_several_results_are_smaller_while_their_sides_are_lines(dtype: DType, elements: int) -> None:
    """Two operands and a gradient, three results: 64 by 64 float32 had 153 registers a thread, and a multiprocessor
    one program (H200: 39.9 µs, torch.compile 19.2). Of one result they stay as they were."""
    a, b, g = (an_input(i, shape, dtype) for i, shape in enumerate([(2048, 2048)] * 3))
    turned = movement.permute(b, axes=(1, 0))
    results = p.mul(a, turned), p.mul(g, turned), p.mul(g, a)
    for outputs, most in ((results, elements), (results[:1], 64 * 64)):
        group, = fuse(Graph((a, b, g), outputs)).groups
        found = tile(group, build(group), H200)
        assert found is not None and found[1].x * found[1].r == most


@pytest.mark.parametrize(("side", "tile_side", "warps"), [(320, 32, 4), (1024, 64, 8), (1400, 64, 8), (2048, 64, 4)])
def test_few_tiles_are_small_or_have_more_warps(side: int, tile_side: int, warps: int) -> None:
    """So that a thread of one that is alone on its multiprocessor has eight or sixteen elements, not 32."""
    x = an_input(0, (side, side), float32)
    group, = fuse(Graph((x,), (p.exp(movement.permute(x, axes=(1, 0))),))).groups
    found = tile(group, build(group), H200)
    assert found is not None
    assert (found[1].x, found[1].r, found[1].num_warps) == (tile_side, tile_side, warps)


def gradient_of_means(shape: tuple[int, ...]) -> KernelSource:
    """The kernel of what a mean over the second and fourth axis of permuted images makes of a gradient."""
    with Kept() as backend:
        x = genesis.empty(*shape, dtype=genesis.float16, device="cuda")
        g = genesis.empty(shape[4], shape[0], shape[3], dtype=genesis.float16, device="cuda")
        genesis.eval(x, g)
        x = x.permute(4, 1, 0, 2, 3).detach().requires_grad_()
        backend.sources.clear()
        x.mean((1, 3)).backward(g)
        genesis.eval(x.grad)
    return backend.sources[-1]


@pytest.mark.parametrize(("images", "elements"), [(210, 4096), (2, 256)])
def test_tiles_of_short_rows_and_short_runs_have_several_runs(images: int, elements: int) -> None:
    """13 M elements in 148,470 programs of eight rows of eleven would start for 180 µs (H200)."""
    kernel = gradient_of_means((images, 101, 7, 8, 11))
    assert kernel.constexprs["XBLOCK"] * kernel.constexprs["RBLOCK"] == elements
    assert compile_cubin(kernel)


@pytest.mark.parametrize("operands", range(1, 12))
@pytest.mark.parametrize("columns", [9, 22, 64])
def test_transposing_tiles_have_a_power_of_two_of_warps(operands: int, columns: int) -> None:
    """Six operands over rows of 9 had six warps, which no compiler takes and no interpreter notices."""
    xs = inputs(*[(3, columns, 64)] * operands)
    total = reduce(sub, xs)
    group, = fuse(Graph(tuple(xs), (movement.permute(total, axes=(0, 2, 1)),))).groups
    source = emit(group)
    assert "RBLOCK" in source.constexprs and source.num_warps.bit_count() == 1
    if operands == 6:
        compile_cubin(source)


@pytest.mark.parametrize(("shape", "axes", "rows"), [
    ((256, 6, 151, 7), (1, 0, 2, 3), False),  # a row's neighbours are 14 bytes apart, the next row's far away
    ((256, 6, 151, 7), (3, 1, 0, 2), True),  # rows of the operand are the tile's, too
    ((256, 6, 151, 70), (3, 1, 0, 2), True),  # 140 bytes
    ((64, 3, 512, 4), (0, 1, 3, 2), True)])  # the next row's are beside them
def test_rows_in_short_steps_are_a_flat_loop(shape: tuple[int, ...], axes: tuple[int, ...], rows: bool) -> None:
    """Lanes of a block of rows would be given to rows."""
    x = an_input(0, shape, bfloat16)
    stops = (*shape[:3], 1 if axes[3] == 3 else min(shape[3], 6))
    graph = Graph((x,), (movement.permute(movement.slice(x, starts=(0,) * 4, stops=stops, steps=(1,) * 4),
                                          axes=axes) * 2.0,))
    assert ("RBLOCK" in text(fuse(graph))) == rows


def test_values_of_rows_in_short_steps() -> None:
    x, = inputs((5, 2, 37, 3))
    check([x], movement.permute(x, axes=(3, 1, 0, 2)) * 2.0)


@pytest.mark.parametrize(("columns", "dtype", "flat"), [(167, float16, True), (168, float16, False),
                                                        (167, float32, False)])
def test_odd_rows_beside_others_in_another_order_are_a_flat_loop(columns: int, dtype: DType, flat: bool) -> None:
    """Of three accesses two are of vectors; rows would make all three one by one."""
    x, y = an_input(0, (14, 5, columns), dtype), an_input(1, (5, 14, columns), dtype)
    schedule = check([x, y], movement.permute(x, axes=(1, 0, 2)) + y)
    assert ("RBLOCK" not in text(schedule)) == flat


@pytest.mark.parametrize(("rows", "columns"), [(31_607, 1300), (4, 100_000)])
def test_what_rows_share_does_not_make_a_program_s_block_smaller(rows: int, columns: int) -> None:
    """Beside two numbers of each column 16-bit elements had blocks as if they were of 12 bytes: 47,412 programs of 1024
    (softmax over 31,607 rows of 1300 bfloat16, reckoned 52 µs of starting them, 39 of its bytes)."""
    x, low, sums = an_input(0, (rows, columns), bfloat16), an_input(1, (columns,)), an_input(2, (columns,))
    wide = p.cast(x, dtype=float32)
    y = p.mul(p.exp(p.sub(wide, movement.expand(low, shape=x.shape))), movement.expand(sums, shape=x.shape))
    group, = fuse(Graph((x, low, sums), (p.cast(y, dtype=bfloat16),))).groups
    assert build(group).bytes_each == (4 if rows > 4 else 12)
