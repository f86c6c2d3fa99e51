"""Reductions of splits: by themselves, beside pointwise results, and in the kernel that computes the rows."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import genesis
from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.blocks import choose_blocks
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.loops import emit_loop
from genesis.codegen.cuda.rounded import rounded_values
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.ir import Graph, Node, make
from genesis.ir.ops import composite, control, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.types import DType, bfloat16, bool_, float16, float32, int8
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.one_loop import TOGETHER
from genesis.passes.graph import split_reductions as split
from genesis.passes.graph.autodiff import autodiff
from genesis.passes.graph.canonicalize import canonicalize
from genesis.passes.groups import Schedule
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.idle_gpu import Kept
from tests.codegen.cuda.machine_code import inner_loops, instructions
from tests.codegen.cuda.programs import an_input, check, inputs, kinds, some
from tests.codegen.cuda.run_interpreted import empty, run_schedule, run_source
from tests.sweeping import by_default, each_value


def reduced(node: Node, data: torch.Tensor) -> np.ndarray:
    """The op's meaning, in float64."""
    assert node.op.reference is not None
    wide = data.to(torch.float64).numpy() if data.is_floating_point() else data.numpy()
    found = node.op.reference(wide, **node.attributes)
    if node["how"] in ("max", "min") and not data.is_floating_point():
        limits = np.iinfo(node.dtype.numpy)
        found = np.clip(found, limits.min, limits.max)
    return found


@each_value
@pytest.mark.parametrize(("shape", "axes", "splits", "multiple"), [
    ((37, 5), (0,), 4, 1), ((37, 5), (0,), 40, 1), ((6, 70), (1,), 3, 16), ((4, 5, 6), (0, 1, 2), 3, 16),
    ((4, 5, 6), (0, 2), 7, 1), ((4, 5, 6), (1,), 2, 1), ((9,), (0,), 2, 4), ((9, 13), (0, 1), 3, 16),
    ((5, 27), (0, 1), 2, 16), ((3, 5, 7), (0, 1, 2), 9, 16), ((4, 33), (1,), 3, 8), ((49,), (0,), 3, 16)])
@pytest.mark.parametrize(("how", "dtype"), [("sum", float32), ("sum", bfloat16), ("max", bfloat16), ("min", int8),
                                            ("prod", float32), ("any", float32), ("all", bool_)])
def test_each_split_is_reduced(shape, axes, splits: int, multiple: int, how: str, dtype) -> None:
    x = an_input(0, shape, dtype)
    node = reduce_splits(x, how=how, axes=axes, splits=splits, multiple=multiple)
    data = some(x)
    found, = run_schedule(fuse(Graph((x,), (node,))), [data])
    assert found.dtype == {"sum": torch.float32, "any": torch.bool, "all": torch.bool}.get(how, data.dtype)
    np.testing.assert_allclose(found.double().numpy(), reduced(node, data).astype(float), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "size"), [(bfloat16, 1201 * 777), (float32, 4117 * 3001)], ids=str)
def test_an_odd_total_is_read_in_vectors(dtype, size: int) -> None:
    """Only the last block of all has a mask: with one in each round every element was a load of its own, of two-byte
    values without being copied ahead."""
    x, y = (an_input(i, (size,), dtype) for i in (0, 1))
    off = p.sub(x, y)
    parts = reduce_splits(p.mul(off, off), how="sum", axes=(0,), splits=264, multiple=2048)
    kernel = emit_loop(fuse(Graph((x, y), (parts,))).groups[0])
    assert kernel.source.count("tl.load(in0") == 2 and "if whole < end:" in kernel.source
    ptx = compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
    assert "cp.async.cg.shared.global" in ptx and "cp.async.ca" not in ptx
    even = an_input(0, (size // 16 * 16,), dtype)
    parts = reduce_splits(even, how="sum", axes=(0,), splits=264, multiple=2048)
    assert "whole" not in emit_loop(fuse(Graph((even,), (parts,))).groups[0]).source


def test_splits_of_two_lengths_are_two_kernels() -> None:
    x, = inputs((37, 5))
    whole = p.exp(x)
    outputs = [reduce_splits(whole, how="sum", axes=(0,), splits=splits, multiple=1) for splits in (3, 4)]
    schedule = fuse(Graph((x,), (whole, *outputs)))
    assert len(schedule.groups) == 2
    for node, found in zip(outputs, run_schedule(schedule, [some(x)])[1:], strict=True):
        np.testing.assert_allclose(found.numpy(), reduced(node, some(x).exp()), rtol=1e-5)


def test_splits_and_what_needs_all_of_a_row_are_two_kernels() -> None:
    x, = inputs((37, 5))
    parts = reduce_splits(x, how="sum", axes=(0,), splits=3, multiple=1)
    schedule = fuse(Graph((x,), (parts, r.max(x, axes=(0,)))))
    assert len(schedule.groups) == 2
    found, largest = run_schedule(schedule, [some(x)])
    np.testing.assert_allclose(found.numpy(), reduced(parts, some(x)), rtol=1e-5)
    assert torch.equal(largest, some(x).amax(0))


@pytest.mark.parametrize("blocks", [Blocks(8, 4, True, 4, num_stages=3), Blocks(16, 64, True, 4),
                                    Blocks(2, 1, True, 4)])
def test_a_kernel_writes_the_elements_besides(blocks: Blocks) -> None:
    x, = inputs((37, 5))
    whole = p.exp(x)
    graph = Graph((x,), (whole, reduce_splits(whole, how="sum", axes=(0,), splits=4, multiple=1)))
    group, = fuse(graph).groups
    assert build(group).splits.over == "r"
    memory = {x: some(x)} | {node: empty(node) for node in group.outputs}
    run_source(emit_loop(group, blocks), memory)
    torch.testing.assert_close(memory[whole], some(x).exp())
    np.testing.assert_allclose(memory[graph.outputs[1]].numpy(), reduced(graph.outputs[1], some(x).exp()), rtol=1e-5)


def standardized(x: Node, g: Node) -> tuple[Node, ...]:
    """A value that each row's sum is needed for, and its sums over the rows, of two things."""
    row = x - r.spread(r.mean(x, axes=(1,)), x, (1,))
    return (row * g, *(reduce_splits(v, how="sum", axes=(0,), splits=3, multiple=1) for v in (row * g, g)),
            reduce_splits(row, how="max", axes=(0,), splits=3, multiple=1))


@pytest.mark.parametrize("blocks", [None, Blocks(1, 8, False, 4), Blocks(4, 8, False, 4, num_stages=3),
                                    Blocks(16, 8, False, 4)])
@pytest.mark.parametrize("rows", [37, 2, 9])
def test_a_kernel_that_computes_rows_takes_their_sums_on_the_way(blocks: Blocks | None, rows: int) -> None:
    x, g = inputs((rows, 5), (rows, 5))
    outputs = standardized(x, g)
    graph = decomposed(Graph((x, g), outputs))
    group, = fuse(graph).groups
    kernel = build(group)
    assert kernel.splits.over == "x"
    memory = {v: some(v) for v in graph.inputs} | {node: empty(node) for node in group.outputs}
    run_source(emit_loop(group, blocks), memory)
    row = some(x) - some(x).mean(1, keepdim=True)
    for node, of in zip(graph.outputs[1:], (row * some(g), some(g), row), strict=True):
        np.testing.assert_allclose(memory[node].numpy(), reduced(node, of), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(memory[graph.outputs[0]], row * some(g))


@by_default("128-True", "1024-False")
@pytest.mark.parametrize(("columns", "alone"), [(128, True), (96, True), (256, True), (1024, False)])
def test_rows_that_a_warp_has_alone_need_no_barrier_in_a_round(columns: int, alone: bool) -> None:
    """Their values are loaded to registers, and sums over rows stay there until the end."""
    x, g = an_input(0, (1 << 18, columns), bfloat16), an_input(1, (1 << 18, columns), bfloat16)
    row = p.mul(p.cast(x, dtype=float32), p.cast(g, dtype=float32))
    scaled = p.mul(row, r.spread(r.sum(row, axes=(1,)), row, (1,)))
    outputs = p.cast(scaled, dtype=bfloat16), reduce_splits(row, how="sum", axes=(0,), splits=528, multiple=1)
    group, = fuse(Graph((x, g), outputs)).groups
    kernel = emit_loop(group)
    loop, = inner_loops(compiled_by_triton(kernel.key_parts(), 90).asm["cubin"], "STG")
    assert [any(name in line for line in loop) for name in ("BAR.SYNC", "LDGSTS")] == [not alone] * 2


@pytest.mark.parametrize(("rows", "columns", "dtype", "x_block"), [
    (1 << 18, 128, bfloat16, 32), (1 << 18, 96, bfloat16, 32), (1 << 18, 256, bfloat16, 16), (1 << 18, 256, float32, 8),
    (1 << 12, 128, bfloat16, 8), (1 << 18, 32, bfloat16, 128)])
def test_many_short_rows_share_what_is_loaded_of_a_weight(rows: int, columns: int, dtype: DType, x_block: int) -> None:
    """Where a warp has whole rows: a program of few brings the weights there through shared memory as well."""
    x, w = an_input(0, (rows, columns), dtype), an_input(1, (columns,), float32)
    wide = p.cast(x, dtype=float32)
    scale = p.rsqrt(r.spread(r.sum(p.mul(wide, wide), axes=(1,)), wide, (1,)))
    y = p.mul(p.mul(wide, scale), movement.expand(movement.reshape(w, shape=(1, columns)), shape=(rows, columns)))
    group, = fuse(Graph((x, w), (p.cast(y, dtype=dtype),))).groups
    assert emit_loop(group).constexprs["XBLOCK"] == x_block


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets reductions of a few rows be worth two kernels on a GPU of four multiprocessors."""
    monkeypatch.setattr(split, "SMALLEST", 1)
    monkeypatch.setattr(split, "ROW_SPLITS", ((1, 1000),))
    monkeypatch.setattr(split, "FEWEST_ROWS", 1)


def prepared(*operands: Node, outputs: tuple[Node, ...]) -> tuple[Graph, Graph, Schedule]:
    graph = decomposed(Graph(operands, outputs))
    after = split.split_reductions(graph, replace(H200, multiprocessors=4))
    return graph, after, fuse(after)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("dtype", [float32, bfloat16])
def test_a_norms_backward_is_two_kernels_and_the_forward_goes_with_it(small, norm: str, forward: bool, dtype) -> None:
    x, w, b, g = inputs((2, 19, 24), (24,), (24,), (2, 19, 24), dtype=dtype)
    if norm == "layer":
        back, y = composite.layer_norm_backward(g, x, w, ndim=1, eps=1e-5), composite.layer_norm(
            x, w, b, ndim=1, eps=1e-5)
    else:
        back, y = composite.rms_norm_backward(g, x, w, ndim=1, eps=1e-5), composite.rms_norm(x, w, ndim=1, eps=1e-5)
    outputs = tuple(back.op.decompose(*back.inputs, **back.attributes)) + ((y,) if forward else ())
    graph, _, schedule = prepared(x, w, b, g, outputs=outputs)
    assert kinds(schedule) == ["loop", "loop"]
    assert {refusal.why for refusal in schedule.missed} == {TOGETHER}
    data = [some(v) for v in graph.inputs]
    tolerance = 1e-4 if dtype is float32 else 3e-2
    for got, want in zip(run_schedule(schedule, data), evaluate(graph, data), strict=True):
        torch.testing.assert_close(got.reshape(want.shape), want, rtol=tolerance, atol=tolerance)


def test_rows_and_columns_of_broadcast_gradients_share_a_kernel(small) -> None:
    x, row, column, g = inputs((21, 12), (12,), (21, 1), (21, 12))
    marked = [control.watch(v, leaf=i) for i, v in enumerate((x, row, column))]
    scaled = p.tanh(marked[0] * marked[1] + marked[2])
    gradients = make(control.grad, (scaled, g, *marked), (1, False, 0, 0))
    results = tuple(control.item(gradients, index=i) for i in range(3))
    graph = canonicalize(autodiff(Graph((x, row, column, g), results)))
    graph, _, schedule = prepared(*graph.inputs, outputs=graph.outputs)
    assert kinds(schedule) == ["loop", "loop"]
    data = [some(v) for v in graph.inputs]
    for got, want in zip(run_schedule(schedule, data), evaluate(graph, data), strict=True):
        torch.testing.assert_close(got.reshape(want.shape), want, rtol=1e-5, atol=1e-5)


def test_a_bias_gradient_is_taken_where_the_values_are_made(small) -> None:
    x, g = inputs((30, 6), (30, 6))
    value = p.exp(x) * g
    _, _, schedule = prepared(x, g, outputs=(value, r.sum(value, axes=(0,))))
    assert kinds(schedule) == ["loop", "loop"]
    assert [len(group.outputs) for group in schedule.groups] == [2, 1]


def test_sums_over_other_rows_do_not_join(small) -> None:
    """A row's kernel has no program that knows a whole column, so what is spread over rows again waits for it."""
    x, = inputs((30, 6))
    centred = x - r.spread(r.mean(x, axes=(0,)), x, (0,))
    graph, _, schedule = prepared(x, outputs=(composite.softmax(centred, axis=1),))
    assert kinds(schedule) == ["loop"] * 3
    data = [some(x)]
    for got, want in zip(run_schedule(schedule, data), evaluate(graph, data), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_whole_columns_of_what_nobody_else_reads_are_not_cut() -> None:
    x, y = inputs((4096, 8192), (4096, 8192), dtype=bfloat16)
    alone = Graph((x,), (r.sum(p.exp(x), axes=(0,)),))
    assert split.split_reductions(alone, H200).roots == alone.roots
    shared = Graph((x,), (r.sum(x, axes=(0,)), p.exp(x)))
    assert split.split_reductions(shared, H200).roots != shared.roots
    few = Graph((y,), (r.sum(movement.reshape(y, shape=(8192, 4096)), axes=(0,)),))
    assert split.split_reductions(few, H200).roots != few.roots


def parts_of(graph: Graph) -> list[Node]:
    return [node for node in split.split_reductions(graph, replace(H200, multiprocessors=4)).nodes
            if node.op is reduce_splits]


@each_value
@pytest.mark.parametrize("name", ["sum", "max", "sum of squares", "variance", "logsumexp"])
@pytest.mark.parametrize(("shape", "axes"), [
    ((6, 3, 104, 19), (0, 2)), ((3, 2, 400, 7), (0, 1, 2)), ((800, 5, 3), (0,))])
@pytest.mark.parametrize("dtype", [bfloat16, float32])
def test_rows_of_odd_length_are_columns_side_by_side(small, name: str, shape, axes, dtype: DType) -> None:
    """Rows of 19 16-bit values begin anywhere; eight of them are 152 neighbours, which are read in vectors (H200: the
    squares of bfloat16[8, 16, 31, 104, 19] 20.3 µs, torch.compile 14.7)."""
    x = an_input(0, shape, dtype)
    wide = p.cast(x, dtype=float32)
    around = {"variance": lambda: r.mean(wide, axes=axes), "logsumexp": lambda: r.max(wide, axes=axes)}
    off = p.sub(wide, r.spread(around[name](), wide, axes)) if name in around else wide
    y = {"sum": lambda: r.sum(x, axes=axes), "max": lambda: r.max(x, axes=axes),
         "sum of squares": lambda: r.sum(wide * wide, axes=axes), "variance": lambda: r.sum(off * off, axes=axes),
         "logsumexp": lambda: p.log(r.sum(p.exp(off), axes=axes))}[name]()
    graph, after, schedule = prepared(x, outputs=(y,))
    parts = [node for node in after.nodes if node.op is reduce_splits and node.inputs[0].type.numel == x.type.numel]
    assert parts and {node.inputs[0].type.ndim for node in parts} == {len(shape) + 1}
    data = [some(x)]
    for got, want in zip(run_schedule(schedule, data), evaluate(graph, data), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-2 if y.dtype is bfloat16 else 1e-4, atol=1e-3)
    if dtype is bfloat16:
        assert "ld.global.b16" not in compiled_by_triton(emit_loop(schedule.groups[0]).key_parts(), 90).asm["ptx"]


def test_a_spread_of_odd_columns_reads_them_once(small) -> None:
    x = an_input(0, (6, 3, 104, 19), bfloat16)
    wide = p.cast(x, dtype=float32)
    mean = r.mean(wide, axes=(0, 2))
    off = p.sub(wide, r.spread(mean, wide, (0, 2)))
    _, after, _ = prepared(x, outputs=(mean, r.sum(off * off, axes=(0, 2))))
    parts = [node for node in after.nodes if node.op is reduce_splits and node.inputs[0].type.numel == x.type.numel]
    assert {node["how"] for node in parts} == {"sum", "squares"} and len({node["splits"] for node in parts}) == 1


def test_rows_that_are_stored_too_are_reduced_as_they_are(small) -> None:
    x = an_input(0, (600, 3, 19), bfloat16)
    y = p.exp(x)
    assert {node.inputs[0].type.ndim for node in parts_of(Graph((x,), (r.sum(y, axes=(0,)),)))} == {4}
    assert {node.inputs[0].type.ndim for node in parts_of(Graph((x,), (r.sum(y, axes=(0,)), y)))} == {3}
    turned = an_input(0, (3, 19, 600), bfloat16)
    in_rows = movement.permute(turned, axes=(2, 0, 1))
    assert {node.inputs[0].type.ndim for node in parts_of(Graph((turned,), (r.sum(in_rows, axes=(0,)),)))} <= {3}


def test_rows_with_infinities_in_one_walk() -> None:
    x, = inputs((6, 40))
    data = some(x)
    inf = float("inf")
    data[0, 3:] = -inf
    data[1] = -inf
    data[2, :24] = -inf
    data[3, 5] = inf
    data[4, 7] = float("nan")
    graph = decomposed(Graph((x,), (composite.softmax(x, axis=1),)))
    group, = fuse(graph).groups
    memory = {x: data, group.outputs[0]: empty(group.outputs[0])}
    source = emit_loop(group, Blocks(1, 16, True, 4))
    assert "g_online(" in source.source and source.source.count("for r_start") == 2
    run_source(source, memory)
    torch.testing.assert_close(memory[group.outputs[0]], torch.softmax(data, 1), equal_nan=True)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("columns", [40, 48, 75])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_norms_gradient_reads_long_rows_twice(norm: str, columns: int, offset: float) -> None:
    """Σ g (x - mean) is summed beside the mean and the squares, around means of each lane's own (H200: 272 rows of
    25,088 float32 91 µs in three readings, 69 in two)."""
    g, x, w = inputs((6, columns), (6, columns), (columns,))
    if norm == "rms":
        back = composite.rms_norm_backward(g, x, w, ndim=1, eps=1e-5)
    else:
        back = composite.layer_norm_backward(g, x, w, ndim=1, eps=1e-5)
    graph = decomposed(Graph((g, x, w), back.op.decompose(*back.inputs, **back.attributes)[:1]))
    group, = fuse(graph).groups
    data = [some(g), some(x) + offset, some(w)]
    wide = [v.double().requires_grad_() for v in data]
    if norm == "rms":
        y = torch.nn.functional.rms_norm(wide[1], (columns,), wide[2], 1e-5)
    else:
        y = torch.nn.functional.layer_norm(wide[1], (columns,), wide[2], eps=1e-5)
    y.backward(wide[0].detach())
    memory = {**dict(zip(graph.inputs, data, strict=True)), group.outputs[0]: empty(group.outputs[0])}
    source = emit_loop(group, Blocks(1, 16, True, 4))
    assert ("_comoment" in source.source) == (norm != "rms")
    assert source.source.count("for r_start") == 2
    run_source(source, memory)
    rounding = 2e-4 if offset else 1e-5  # of x itself, in units of its deviation
    torch.testing.assert_close(memory[group.outputs[0]].double(), wide[1].grad, rtol=rounding, atol=rounding)


def test_a_norms_gradient_of_long_rows_fits_into_registers() -> None:
    """Of eight elements a thread, 64 bytes were in memory (layer norm of f32[70, 40000], which torch.compile was faster
    in)."""
    g, x, w = inputs((300, 40000), (300, 40000), (40000,))
    back = composite.layer_norm_backward(g, x, w, ndim=1, eps=1e-5)
    group, = fuse(decomposed(Graph((g, x, w), back.op.decompose(*back.inputs, **back.attributes)[:1]))).groups
    kernel = emit_loop(group)
    assert (kernel.num_warps, kernel.constexprs["RBLOCK"]) == (32, 4096)
    lines = instructions(compiled_by_triton(kernel.key_parts(), 90).asm["cubin"])
    assert not [line for _, line in lines if re.search(r"\b(STL|LDL)\b", line)], "stores and loads of spilled values"


@pytest.mark.parametrize(("dtype", "rounded"), [(bfloat16, True), (float16, True), (float32, False)])
def test_what_is_rounded_to_16_bits_is_computed_cheaply(dtype, rounded: bool) -> None:
    x = an_input(0, (4, 300), dtype)
    schedule = check([x], composite.softmax(x, axis=1))
    text = emit_loop(schedule.groups[0]).source
    assert ("g_low_exp(" in text) == rounded and ("libdevice.exp(" in text) == (not rounded)


@pytest.mark.parametrize(("dtype", "cheap"), [(bfloat16, True), (float16, True), (float32, False)])
def test_exponentials_of_16_bits_in_a_sum_alone_are_cheap(dtype, cheap: bool) -> None:
    """Their errors are far below those of what is in memory, and average out: of rows that are one block as of those
    that are looped over. A softmax of the same in float32 shows each."""
    x = an_input(0, (4, 300), dtype)
    wide = p.cast(x, dtype=float32)
    shifted = p.sub(wide, r.spread(r.max(wide, axes=(1,)), wide, (1,)))
    text = emit_loop(check([x], p.log(r.sum(p.exp(shifted), axes=(1,))), tolerance=1e-6).groups[0]).source
    assert ("g_low_exp(" in text) == cheap and ("libdevice.exp(" in text) == (not cheap)
    text = emit_loop(check([x], composite.softmax(wide, axis=1), tolerance=1e-6).groups[0]).source
    assert "g_low_exp(" not in text and "libdevice.exp(" in text


def test_what_somebody_sees_in_float32_is_exact() -> None:
    x = an_input(0, (4, 30), bfloat16)
    wide = p.exp(p.cast(x, dtype=float32))
    kernel = build(fuse(Graph((x,), (p.cast(wide * 2.0, dtype=bfloat16), r.sum(wide, axes=(1,))))).groups[0])
    assert not any(name.startswith("exp") for name in rounded_values(kernel))
    kernel = build(fuse(Graph((x,), (p.cast(wide * 2.0, dtype=bfloat16),))).groups[0])
    assert any(name.startswith("exp") for name in rounded_values(kernel))


def test_long_rows_are_held_as_memory_has_them() -> None:
    x = an_input(0, (264, 50304), bfloat16)
    group, = fuse(decomposed(Graph((x,), (composite.softmax(x, axis=1),)))).groups
    blocks = choose_blocks(build(group), H200)
    assert blocks.kept_bytes and emit_loop(group).source.count("tl.load(in0") == 1
    longer = an_input(0, (264, 131072), bfloat16)
    group, = fuse(decomposed(Graph((longer,), (composite.softmax(longer, axis=1),)))).groups
    assert emit_loop(group).source.count("tl.load(in0") == 2


@pytest.mark.parametrize(("columns", "block"), [(20080, 4096), (24000, 8192), (50256, 8192)])
def test_long_rows_that_registers_have_no_room_for_are_read_twice(columns: int, block: int) -> None:
    """Of float32 they have none: a softmax was three loops in 255 registers, and spilled beside another row's."""
    x = an_input(0, (264, columns))
    group, = fuse(decomposed(Graph((x,), (composite.softmax(x, axis=1),)))).groups
    kernel = emit_loop(group)
    assert kernel.source.count("tl.load(in0") == 2 and kernel.constexprs["RBLOCK"] == block
    assert f"in0_at, {block // 1024}, " in kernel.source, "as a thread has elements"


@pytest.mark.parametrize("shape, x_block", [((432, 1), 64), ((300, 4), 16), ((100, 20), 2), ((3, 4), 4),
                                            ((300, 100), 2)])
def test_a_program_of_few_short_rows_has_two_elements_a_lane(shape: tuple[int, int], x_block: int) -> None:
    x = an_input(0, shape)
    group, = fuse(Graph((x,), (r.sum(x * 2.0, axes=(1,)),))).groups
    assert choose_blocks(build(group), H200).x == x_block


@pytest.mark.parametrize("blocks", [Blocks(1, 16, True, 4), Blocks(2, 8, True, 4, num_stages=3),
                                    Blocks(4, 64, True, 4)])
def test_the_variance_of_a_long_row_takes_one_walk(blocks: Blocks) -> None:
    x, = inputs((5, 37))
    mean = r.mean(x, axes=(1,))
    centred = x - r.spread(mean, x, (1,))
    graph = decomposed(Graph((x,), (r.sum(centred * centred, axes=(1,)), mean)))
    group, = fuse(graph).groups
    source = emit_loop(group, blocks)
    assert source.source.count("in range(" if blocks.num_stages == 1 else "in tl.range(") == 1
    data = some(x) * 1e-2 + 100
    memory = {x: data} | {node: empty(node) for node in group.outputs}
    run_source(source, memory)
    squares, mean = (memory[node] for node in graph.outputs)
    torch.testing.assert_close(mean.double(), data.double().mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(squares.double(), data.double().var(1, correction=0) * 37, rtol=1e-3, atol=0)


def test_squares_around_another_number_than_the_mean_take_two_walks() -> None:
    x, = inputs((5, 37))
    other = r.sum(x, axes=(1,)) / 7.0
    off = x - r.spread(other, x, (1,))
    graph = decomposed(Graph((x,), (r.sum(off * off, axes=(1,)),)))
    group, = fuse(graph).groups
    source = emit_loop(group, Blocks(1, 16, True, 4))
    assert source.source.count("in range(") == 2
    memory = {x: some(x), group.outputs[0]: empty(group.outputs[0])}
    run_source(source, memory)
    want, = evaluate(graph, [some(x)])
    torch.testing.assert_close(memory[group.outputs[0]], want)


@pytest.mark.parametrize(("shape", "axes", "cut"), [
    ((100_000,), (0,), True), ((65_536,), (0,), False), ((10, 10_000), (0, 1), True), ((2, 100_000), (1,), False)])
def test_what_one_program_would_wait_for_is_split(shape: tuple[int, ...], axes: tuple[int, ...], cut: bool) -> None:
    x = an_input(0, shape)
    graph = split.split_reductions(Graph((x,), (r.sum(x, axes=axes),)), H200)
    assert any(node.op is reduce_splits for node in graph.nodes) == cut


@pytest.mark.parametrize(("norm", "most"), [("batch_norm", 5), ("group_norm", 3)])
def test_what_comes_into_a_norm_is_summed_once(norm: str, most: int) -> None:
    """The sums of it, and of it times x̂, are one kernel, and what puts their parts together is one: a batch norm with
    gradients was seven launches, a group norm five."""
    shape = (44, 32, 23, 23)
    with Kept() as backend:
        x, g = (genesis.empty(*shape, device="cuda") for _ in range(2))
        w, b = (genesis.empty(32, device="cuda") for _ in range(2))
        genesis.eval(x, g, w, b)
        operands = [y.requires_grad_() for y in (x, w, b)]
        backend.sources.clear()
        y = (genesis.nn.functional.batch_norm(x, None, None, w, b, training=True) if norm == "batch_norm" else
             genesis.nn.functional.group_norm(x, 8, w, b))
        y.backward(g)
        genesis.eval(y, *[operand.grad for operand in operands])
        assert len(backend.sources) <= most, [source.name for source in backend.sources]
