"""Reductions and what fuses with them."""

from __future__ import annotations

import math

import pytest
import torch

from genesis.codegen.cuda import blocks as choices
from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.blocks import choose_blocks, flat_block
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.loops import emit_loop
from genesis.ir import OPS, DType, Graph, Node
from genesis.ir.ops import composite, leaves, movement, norm, softmax
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.size_trace import Trace
from genesis.ir.types import bfloat16, bool_, dtype_named, float16, float32, int64, tensor_type
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.programs import GPU, an_input, check, inputs, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, empty, run_schedule, run_source
from tests.sweeping import each_value

AXES = [((7,), (0,)), ((3, 5), (1,)), ((3, 5), (0,)), ((3, 5), (0, 1)), ((2, 3, 5), (0, 2)), ((2, 3, 5), (1,)),
        ((1, 5, 1), (0, 2)), ((4, 1), (1,)), ((1, 1), (0, 1)), ((3, 5), ())]


@each_value
@pytest.mark.parametrize(("shape", "axes"), AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "uint8", "bool"])
def test_every_reduction_over_any_axes(name: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> None:
    if (dtype == "bool" and name in ("sum", "prod", "max", "min")) or (not axes and name in ("max", "min")):
        pytest.skip("no such op in torch")
    x = an_input(0, shape, dtype_named(dtype))
    outputs = (OPS[name](x, axes=axes), OPS[name](x, axes=axes, keepdims=True))
    check([x], *outputs, tolerance=2e-2 if dtype == "bfloat16" else 1e-5)


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all"])
@pytest.mark.parametrize(("shape", "axes"), [((0,), (0,)), ((3, 0), (1,)), ((3, 0), (0,)), ((0, 3), (0,))])
def test_reductions_of_nothing(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x, = inputs(shape)
    check([x], OPS[name](x, axes=axes))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_extremum_and_the_first_nan_win(name: str, axis: int) -> None:
    x, = inputs((4, 6))
    data = torch.tensor([[1.0, 3, 3, 2, -5, -5], [math.nan, 1, math.nan, 9, -9, 0], [-math.inf] * 6, [math.inf] * 6])
    check([x], OPS[name](x, axis=axis), data=[data], tolerance=0)
    check([x], OPS[name](x, axis=axis), data=[torch.zeros(4, 6)], tolerance=0)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_keep_nan(name: str) -> None:
    x, = inputs((3, 5))
    data = torch.tensor([[1.0, 2, math.nan, 0, 1], [1, 2, 3, 4, 5], [-math.inf] * 5])
    check([x], OPS[name](x, axes=(1,)), OPS[name](x, axes=(0,)), data=[data])


def _selected(x, y):
    """A value for each element, and the sum of another one over parts of odd length."""
    chosen = p.where(p.gt(x, y), x, y)
    return chosen, r.sum(p.where(p.gt(x, y), y, x), axes=(0, 2))


def test_rows_that_are_not_read_in_vectors_are_read_once_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for no reduction is stored in the loop that reads it, and no register holds a row of single elements:
    20 parts of 141 bfloat16 took 135 µs for 44 by their bytes (H200)."""
    x, y = inputs((20, 6704, 141), (20, 6704, 141), dtype=bfloat16)
    group, = fuse(decomposed(Graph((x, y), _selected(x, y)))).groups
    kernel = build(group)
    assert choose_blocks(kernel, H200) == Blocks(1, 1024, True, 4)
    text = emit_loop(group).readable
    assert text.count("for r_start") == 1 and text.count("tl.load") == 2
    monkeypatch.setattr(choices, "enough_programs", lambda gpu: 2)
    monkeypatch.setattr(choices, "SINGLES", 8)
    monkeypatch.setattr(choices, "SINGLES_LOOP", 8)
    x, y = inputs((3, 4, 7), (3, 4, 7))
    group, = fuse(decomposed(Graph((x, y), _selected(x, y)))).groups
    assert choose_blocks(build(group), H200).looped
    check([x, y], *_selected(x, y))


def test_rows_that_are_read_again_stay_in_registers() -> None:
    x, = inputs((6704, 2821), dtype=bfloat16)
    group, = fuse(decomposed(Graph((x,), _softmax(x)))).groups
    assert not choose_blocks(build(group), H200).looped


def _softmax(x):
    return (composite.softmax(x, axis=x.type.ndim - 1),)


def _norm(x):
    weight, bias = inputs(x.shape, x.shape[-1:], x.shape[-1:], dtype=x.dtype)[1:]
    return (composite.layer_norm(x, weight, bias, ndim=1, eps=1e-5),)


def _rms(x):
    return (composite.rms_norm(x, inputs(x.shape, x.shape[-1:], dtype=x.dtype)[1], ndim=1, eps=1e-5),)


def _entropy(x):
    return (composite.cross_entropy(x, an_input(1, x.shape[:1], int64)),)


def _entropy_backward(x):
    return (composite.cross_entropy_backward(an_input(2, x.shape[:1]), x, an_input(1, x.shape[:1], int64)),)


def _log_softmax(x):
    return (composite.log_softmax(x, axis=1),)


def _operands(*outputs) -> list:
    nodes = Graph((), tuple(outputs)).nodes
    return sorted((n for n in nodes if n.op.name == "input"), key=lambda n: n["index"])


@pytest.mark.parametrize("program", [_softmax, _norm, _rms, _entropy, _entropy_backward, _log_softmax])
@pytest.mark.parametrize("dtype", [float32, bfloat16])
def test_a_composite_over_rows_is_one_kernel(program, dtype) -> None:
    outputs = program(an_input(0, (5, 37), dtype))
    if program is _entropy_backward and dtype is bfloat16:
        pytest.skip("its gradient operand is float32 here")
    schedule = check(_operands(*outputs), *outputs)
    assert kinds(schedule) == ["loop"]


@pytest.mark.parametrize("program", [_softmax, _norm, _entropy])
@pytest.mark.parametrize("blocks", [Blocks(1, 16, True, 4), Blocks(2, 8, True, 4), Blocks(4, 64, False, 4),
                                    Blocks(1, 16, True, 4, num_stages=3), Blocks(1, 8, True, 4, kept_bytes=1 << 16),
                                    Blocks(2, 16, True, 4, kept_bytes=37 * 4)])
def test_rows_longer_than_a_block_are_walked_over(program, blocks: Blocks) -> None:
    outputs = program(an_input(0, (5, 37)))
    graph = decomposed(Graph(tuple(_operands(*outputs)), outputs))
    group, = fuse(graph).groups
    data = {x: some(x) for x in graph.inputs}
    memory = data | {node: empty(node) for node in group.outputs}
    run_source(emit_loop(group, blocks), memory)
    want, = evaluate(graph, list(data.values()))
    torch.testing.assert_close(memory[group.outputs[0]], want, rtol=1e-5, atol=1e-5)


def test_argmax_over_a_walk() -> None:
    x, = inputs((3, 50))
    group, = fuse(Graph((x,), (r.argmax(x, axis=1),))).groups
    data = torch.zeros(3, 50)
    data[0, 40], data[1, 7], data[1, 30], data[2] = 1.0, math.nan, math.nan, -math.inf
    memory = {x: data, group.outputs[0]: empty(group.outputs[0])}
    run_source(emit_loop(group, Blocks(1, 8, True, 4)), memory)
    assert memory[group.outputs[0]].tolist() == [40, 7, 0]


def test_reductions_of_one_input_share_a_kernel() -> None:
    x, = inputs((6, 9))
    schedule = check([x], r.sum(x, axes=(1,)), r.max(x, axes=(1,)), r.sum(x * x, axes=(1,)))
    assert kinds(schedule) == ["loop"]


def test_a_reduction_of_another_axis_does_not() -> None:
    x, = inputs((6, 9))
    y = p.exp(x)
    schedule = check([x], r.sum(y, axes=(1,)), r.sum(y, axes=(0,)))
    assert len(schedule.groups) == 2
    assert any("different spaces" in refusal.why for refusal in schedule.missed)


def test_a_result_of_another_row_is_never_read() -> None:
    """flip(sum over rows) mixes rows: fusing it would read what is not yet computed."""
    x, = inputs((6, 9))
    total = r.sum(x, axes=(1,), keepdims=True)
    schedule = check([x], x * movement.expand(movement.flip(total, axes=(0,)), shape=(6, 9)))
    assert len(schedule.groups) == 2
    assert any("another row" in refusal.why for refusal in schedule.missed)


@each_value
@pytest.mark.parametrize("program", [_softmax, _norm, _entropy])
@pytest.mark.parametrize("shape", [(64, 768), (64, 50257)])
def test_kernels_compile_for_hopper(program, shape) -> None:
    outputs = program(an_input(0, shape, bfloat16))
    group, = fuse(decomposed(Graph(tuple(_operands(*outputs)), outputs))).groups
    assert compile_cubin(emit_loop(group))


@pytest.mark.parametrize("steps", [1, 3])
def test_a_sum_that_is_stored_and_computed_with_compiles_for_hopper(steps: int) -> None:
    """Of what no memory gives: Triton 3.6 has it in another layout than its store and the sums of what is loaded."""
    x, = inputs((1, 100))
    places = leaves.iota(shape=(1, 100), axis=1, dtype=int64, device=GPU)
    found = [r.sum(p.exp(p.cast(places, dtype=float32)), axes=(1,))]
    for _ in range(steps):
        found.append(r.sum(x, axes=(1,)) / found[-1])
    group, = fuse(Graph((x,), tuple(found))).groups
    assert compile_cubin(emit_loop(group))


def test_column_sums_have_x_fastest() -> None:
    x, = inputs((40, 12))
    schedule = check([x], r.sum(x, axes=(0,)))
    assert schedule.groups[0].space == ((40, "r"), (12, "x"))


def test_bool_reduction_of_comparison() -> None:
    x, = inputs((4, 5))
    check([x], r.any(p.gt(x, OPS["const"](value=1.0, type=x.type)), axes=(1,)))
    assert OPS["any"](an_input(0, (2, 2), bool_), axes=(0,)).dtype is bool_


@pytest.mark.parametrize(("length", "dtype", "vectors"), [
    (1024, float32, 4), (1024, bfloat16, 4), (4096, float32, 4), (512, float32, 8)])
def test_threads_of_rows_that_are_not_written_read_few_vectors(length: int, dtype: DType, vectors: int) -> None:
    """With eight under way, any of 5439 rows of 1024 float32 took 9.5 µs, with four 7.1 (H200)."""
    x = an_input(0, (5439, length), dtype)
    kernel, = map(emit_loop, fuse(Graph((x,), (r.max(x, axes=(1,)),))).groups)
    assert kernel.constexprs["XBLOCK"] * length * dtype.itemsize == 32 * kernel.num_warps * vectors * 16


@pytest.mark.parametrize(("rows", "each"), [(64, 4), (256, 4), (4096, 32)])
def test_rows_that_are_alone_on_a_multiprocessor_have_a_vector_a_thread(rows: int, each: int) -> None:
    """Nothing else hides what a thread waits for: 512 elements of a row in one warp took 8 µs of an H200."""
    x, = inputs((rows, 512))
    kernel, = map(emit_loop, fuse(Graph((x,), (r.sum(x, axes=(1,)),))).groups)
    assert kernel.constexprs["XBLOCK"] * 512 == 32 * kernel.num_warps * each


@pytest.mark.parametrize(("rows", "length", "dtype"), [
    (65_536, 2, float16), (349_440, 2, float16), (80_000, 3, float32), (2_000_000, 4, bool_), (262_144, 16, bfloat16)])
def test_programs_of_short_rows_read_what_is_worth_starting_them(rows: int, length: int, dtype: DType) -> None:
    """However few rows the least of its class has: 2730 programs of 128 pairs took 4.2 µs of an H200."""
    x = an_input(0, (rows, length), dtype)
    kernel, = map(emit_loop, fuse(Graph((x,), (r.max(x, axes=(1,)),))).groups)
    assert kernel.constexprs["XBLOCK"] * length * dtype.itemsize > 1024


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize("columns", [272, 400, 512, 523, 700, 768, 1000, 1024, 1100, 2048])
def test_programs_of_rows_move_as_much_as_their_starts_take_the_time_of(columns: int, dtype: DType,
                                                                        weighted: bool) -> None:
    """A multiprocessor starts a program in 0.16 µs: 65,536 rows of 700 bfloat16 were as many programs of one warp, and
    took 80 µs of an H200 for 43 by their bytes."""
    x, w = an_input(0, (65_536, columns), dtype), an_input(1, (columns,), dtype)
    y = norm.rms_norm(x, w, ndim=1, eps=1e-5) if weighted else norm.rms_norm(x, ndim=1, eps=1e-5)
    graph = decomposed(Graph((x, w) if weighted else (x,), (y,)))
    blocks = choose_blocks(build(fuse(graph).groups[0]), H200)
    assert not blocks.looped and blocks.x * columns * 2 * dtype.itemsize >= 4096
    assert blocks.x * blocks.r / (32 * blocks.num_warps) <= 64
    few = an_input(0, (300, columns), dtype)
    graph = decomposed(Graph((few,), (norm.rms_norm(few, ndim=1, eps=1e-5),)))
    alone = choose_blocks(build(fuse(graph).groups[0]), H200)
    assert alone.x * alone.r <= max(1024, alone.r), "few rows are on all multiprocessors"


def test_a_flat_loop_s_programs_are_fewer_where_each_moves_little() -> None:
    """Between 1024 elements and the most are others (a total's gradient of 7.7 M bfloat16 in 7526 programs: 9.8 µs for
    4.3 by its bytes, reckoned)."""
    assert [flat_block(n, 2, H200) for n in (300_000, 600_000, 1_200_000, 7_700_000)] == [1024, 1024, 2048, 4096]
    assert flat_block(7_700_000, 8, H200) == 1024


@pytest.mark.parametrize("length", [20_000, 60_000])
def test_a_symbolic_row_that_is_all_there_is_has_warps_for_its_length(length: int) -> None:
    """The block of a batch, which it may be, is shorter: a softmax of 60,000 was the work of four warps."""
    with Trace(A=length) as trace:
        x, = inputs((trace.symbol("A"),))
        group, = fuse(decomposed(Graph((x,), (composite.softmax(x, axis=0),)))).groups
        blocks = choose_blocks(build(group), H200)
    assert blocks.looped and blocks.num_warps >= length // 4096


def parts_of_softmax(x: Node, shifted: bool = True) -> tuple[Node, Node, Node]:
    """A row's powers, their sum, and its shares."""
    def along(v: Node) -> Node:
        return movement.expand(v, shape=x.shape)

    powers = p.exp(p.sub(x, along(r.max(x, axes=(1,), keepdims=True)))) if shifted else p.exp(x)
    total = r.sum(powers, axes=(1,), keepdims=True)
    return powers, total, p.div(powers, along(total))


@pytest.mark.parametrize("columns", [5, 160, 700, 40_000])
def test_a_softmax_s_quotients_are_rounded_as_divisions(columns: int) -> None:
    x = an_input(0, (9, columns))
    schedule = fuse(Graph((x,), parts_of_softmax(x)))
    assert "g_share(" in emit(schedule.groups[-1]).source
    data = torch.randn(9, columns, generator=torch.Generator().manual_seed(columns)) * torch.tensor(
        [1e-3, 0.1, 1, 3, 10, 30, 100, 1, 1])[:, None]
    data[6, 1:3], data[7, 0], data[8] = -torch.inf, torch.inf, -torch.inf
    data[5, 0] = torch.nan
    powers, total, shares = run_schedule(schedule, [data])
    torch.testing.assert_close(shares, powers / total.reshape(9, 1), rtol=0, atol=0, equal_nan=True)


def test_powers_that_may_be_above_their_sum_s_range_are_divided() -> None:
    x = an_input(0, (9, 160))
    schedule = fuse(Graph((x,), parts_of_softmax(x, shifted=False)))
    assert "g_share" not in emit(schedule.groups[-1]).source
    data = torch.full((9, 160), 80.0)
    data[0], data[1] = -100.0, 89.0
    powers, total, shares = run_schedule(schedule, [data])
    torch.testing.assert_close(shares, powers / total.reshape(9, 1), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("rows", "columns", "dtype", "blocks"), [
    (100_000, 160, float32, (4, 256, 1)), (100_000, 256, float32, (4, 256, 1)), (100_000, 100, float32, None),
    (100_000, 300, float32, None), (100_000, 160, bfloat16, None), (300, 160, float32, None)])
def test_rows_of_two_vectors_a_lane_are_one_warp_s(rows: int, columns: int, dtype: DType,
                                                   blocks: tuple[int, int, int] | None) -> None:
    """Two warps had half of each row, and 1.6 times the instructions (f32[100000, 160] with gradients on an H200: 66 µs
    for 48)."""
    x = an_input(0, (rows, columns), dtype)
    kernel = build(fuse(Graph((x,), parts_of_softmax(x)[2:])).groups[0])
    found = choose_blocks(kernel, H200)
    assert ((found.x, found.r, found.num_warps) == (4, 256, 1)) == (blocks is not None)


@pytest.mark.parametrize(("columns", "much"), [(150, True), (150, False), (300, True)])
def test_short_rows_of_which_much_is_computed_are_one_warp_s(columns: int, much: bool) -> None:
    """Of four warps 150 registers a thread were the program's own: 40 µs for 7 by its bytes (H200)."""
    x = an_input(0, (39_673, columns), float16)
    wide = p.cast(x, dtype=float32)
    shares = parts_of_softmax(wide)[2]
    y = p.mul(p.sub(shares, p.log(p.add(shares, 1.0))), p.sin(wide)) if much else shares
    kernel = build(fuse(Graph((x,), (p.cast(y, dtype=float16),))).groups[0])
    found = choose_blocks(kernel, H200)
    assert (found.x * found.r, found.num_warps) == (1024 if much else 2048, 1)


@pytest.mark.parametrize(("columns", "stride", "each"), [
    (25, 89, 8), (120, 120, 8), (256, 256, 8), (100, 164, 8), (45, 109, 32), (300, 300, 32)])
def test_short_rows_of_two_operands_have_eight_elements_a_thread(columns: int, stride: int, each: int) -> None:
    """Where no warp shares a row: with 32 of each, loaded one by one, a thread had 224 registers (normalize of rows of
    25 bfloat16 of longer ones, with gradients: 31.9 µs of an H200, 16.7 so)."""
    x, y = (an_input(i, (99_991, stride), bfloat16) for i in range(2))
    wide = [p.cast(movement.slice(v, starts=(0, 0), stops=(99_991, columns), steps=(1, 1)), dtype=float32)
            for v in (x, y)]
    total = r.sum(p.mul(*wide), axes=(1,), keepdims=True)
    z = p.cast(p.mul(wide[0], movement.expand(total, shape=(99_991, columns))), dtype=bfloat16)
    blocks = choose_blocks(build(fuse(Graph((x, y), (z,))).groups[0]), H200)
    assert blocks.x * blocks.r / (32 * blocks.num_warps) == each


@pytest.mark.parametrize(("rows", "columns", "dtype", "blocks"), [
    (15_704, 133, float16, (8, 1)), (21_736, 293, bfloat16, (4, 1)), (12_000, 587, bfloat16, (2, 1)),
    (3000, 293, bfloat16, (4, 1)), (700, 293, bfloat16, (1, 1)), (15_704, 136, float16, (16, 4)),
    (12_000, 1500, bfloat16, (1, 2)), (15_704, 133, float32, (4, 1))])
def test_odd_rows_that_are_written_are_one_warp_s(rows: int, columns: int, dtype: DType,
                                                  blocks: tuple[int, int]) -> None:
    """Softmax of 15,704 rows of 133 float16 was 1131 instructions of each of four warps for 16 rows, of which 164 were
    shuffles; 931 of one warp for eight."""
    x = an_input(0, (rows, columns), dtype)
    share = parts_of_softmax(p.cast(x, dtype=float32))[2]
    kernel = build(fuse(Graph((x,), (p.cast(share, dtype=dtype),))).groups[0])
    found = choose_blocks(kernel, H200)
    assert (found.x, found.num_warps) == blocks


@pytest.mark.parametrize(("rows", "columns", "dtype", "blocks"), [
    (96_137, 691, float16, (4, 1)), (96_137, 1501, float16, (2, 1)), (96_137, 301, bfloat16, (8, 1)),
    (353_392, 169, float16, (16, 1)), (80_896, 169, float32, (16, 1)),
    (96_137, 691, float32, (4, 1)), (2_000, 691, float16, (2, 1)), (96_137, 704, float16, (4, 4))])
def test_odd_rows_that_are_only_reduced_are_one_warp_s(rows: int, columns: int, dtype: DType,
                                                       blocks: tuple[int, int]) -> None:
    """Several in a program: cross-entropy of 96,137 rows of 691 float16 took 106 µs in programs of four warps that
    share each row (H200), torch.compile 82. Few rows are a program each; rows of vectors stay as they are."""
    x = an_input(0, (rows, columns), dtype)
    kernel, = [emit(group) for group in fuse(Graph((x,), (r.sum(p.exp(x), axes=(1,)),))).groups]
    assert (kernel.constexprs["XBLOCK"], kernel.num_warps) == blocks


def softmaxed(rows: int, columns: int) -> str:
    """The kernel of a softmax of rows of bfloat16."""
    x, = inputs((rows, columns), dtype=bfloat16)
    group, = fuse(decomposed(Graph((x,), (softmax.softmax(x, axis=1),)))).groups
    return emit_loop(group).source


def test_rows_that_the_cache_cannot_hold_are_stored_from_their_ends() -> None:
    """What was read last is read again first, and for the last time; results do not take its room."""
    text = softmaxed(4096, 128256)
    again = text.partition("for behind in range(0, 128256, RBLOCK):")[2]
    assert 'eviction_policy="evict_first"' in again and 'cache_modifier=".cs"' in again
    assert "evict_first" not in text.removesuffix(again)
    for rows, columns in ((16, 128256), (4096, 50304)):
        assert "behind" not in softmaxed(rows, columns)


@pytest.mark.parametrize("columns", [16392, 20000, 24576])
def test_rows_from_their_ends(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole blocks and others; what is stored depends on the place in a row."""
    monkeypatch.setattr(choices, "_passes_by", lambda kernel, gpu: True)
    x, weight = inputs((3, columns), (columns,))
    probabilities = softmax.softmax(x, axis=1)
    weighed = p.mul(probabilities, movement.expand(weight, shape=(3, columns)))
    schedule = check([x, weight], probabilities, weighed, r.sum(x, axes=(1,), keepdims=True), tolerance=1e-5)
    assert any("for behind" in emit_loop(group).source for group in schedule.groups)


def test_rows_of_a_length_that_changes_from_their_ends() -> None:
    with Trace(rows=4096, columns=128256) as trace:
        type = tensor_type((trace.symbol("rows"), trace.symbol("columns")), bfloat16, GPU)
        x = leaves.input(index=0, type=type)
        group, = fuse(decomposed(Graph((x,), (softmax.softmax(x, axis=1),)))).groups
        text = emit_loop(group).source
    assert "for behind in range(0, r_size, RBLOCK):\n        r_start = (r_size - 1) // RBLOCK * RBLOCK - behind" in text
