"""Reductions over leading axes: how columns are read, and that results are right whatever the rows' length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import genesis
from genesis.codegen.cuda.blocks import choose_blocks
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.held_columns import held_columns
from genesis.codegen.cuda.loops import emit_loop
from genesis.engine.backends import FakeCUDABackend
from genesis.ir import Graph
from genesis.ir.ops import composite, control, movement, sorting
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, bfloat16, dtype_named, float16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.split_reductions import split_reductions
from genesis.passes.groups import Group
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import an_input, check, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_source, torch_dtype


def column_group(rows: int, columns: int, dtype: DType = float32) -> Group:
    """The kernel that reads all of a matrix whose columns are summed."""
    x = an_input(0, (rows, columns), dtype)
    return fuse(split_reductions(Graph((x,), (r.sum(p.exp(x), axes=(0,)),)), H200)).groups[0]


@pytest.mark.parametrize(("columns", "dtype", "vectors"), [
    (4096, float32, True), (4100, float32, True), (4098, float32, False), (4097, float32, False),
    (4104, bfloat16, True), (4100, bfloat16, False), (20001, float32, False), (20000, float32, True)])
def test_only_vectors_are_pipelined(columns: int, dtype: DType, vectors: bool) -> None:
    """Triton 3.6 gives single elements of columns a shared memory in which 32 lanes meet in one bank: 12 × slower."""
    blocks = choose_blocks(build(column_group(20000, columns, dtype)), H200)
    assert blocks.looped
    assert (blocks.num_stages > 1) == vectors
    assert vectors or blocks.x * blocks.r <= 4096


@pytest.mark.parametrize(("shape", "warps"), [
    ((700, 953), 16), ((700, 2101), 16), ((700, 3201), 8), ((700, 9001), 4),  # in a loop: 60, 132, 201 and 282 programs
    ((200, 953), 16), ((100, 953), 8), ((100, 9001), 4),                       # a block
    ((20, 9999, 31), 16), ((500, 9999, 31), 4)])                               # all columns of a run
def test_programs_that_are_few_have_more_warps(shape: tuple[int, ...], warps: int) -> None:
    """They are all that waits for memory on their multiprocessors: 60 programs of four warps had half a megabyte on its
    way."""
    x = an_input(0, shape)
    group, = fuse(Graph((x,), (r.argmax(x, axis=len(shape) - 2),))).groups
    blocks = choose_blocks(build(group), H200)
    assert blocks.num_warps == warps
    assert not blocks.looped or blocks.x * blocks.r == 512 * warps


@pytest.mark.parametrize(("shape", "dtype", "looped"), [
    ((21, 1024, 71), bfloat16, False), ((3, 700, 301), float32, False), ((21, 1025, 71), bfloat16, True),
    ((210, 1024, 71), bfloat16, True)])
def test_few_programs_wait_for_all_of_their_columns_at_once(shape: tuple[int, ...], dtype: DType, looped: bool) -> None:
    """In four rounds the sum over 1024 of bf16[21, 1024, 71] took 7.7 µs of an H200 for 0.7 µs of memory."""
    x = an_input(0, shape, dtype)
    group, = fuse(Graph((x,), (r.sum(x, axes=(1,)),))).groups
    found = choose_blocks(build(group), H200)
    assert found.looped == looped and (looped or (found.num_warps == 16 and found.r >= shape[1]))


@pytest.mark.parametrize("columns", [4096, 4097, 4100])
def test_the_mask_of_columns_names_their_number(columns: int) -> None:
    """Triton masks whole vectors where it can see that the number is a multiple of them."""
    source = emit_loop(column_group(20000, columns)).source
    assert f"x_mask = x < {columns}\n" in source
    assert ("mask=x_mask" in source) == bool(columns % 64)


@pytest.mark.parametrize("function", [lambda x: sorting.sort(x, axis=0), lambda x: sorting.topk(x, k=2, axis=0),
                                      lambda x: r.cumsum(x, axis=0)])
def test_templates_mask_columns_by_their_own_blocks(function: Callable[[Any], Any]) -> None:
    """A program of a template has more columns than there are."""
    x = an_input(0, (5, 6))
    found = function(x)
    several = type(found.type) is tuple
    roots = [control.item(found, index=i) for i in range(len(found.type))] if several else [found]
    for group in fuse(Graph((x,), tuple(roots))).groups:
        loads = [line for line in emit(group).source.splitlines() if "tl.load(in0" in line]
        assert loads and all("x_mask" in line for line in loads)


@pytest.mark.parametrize("columns", [4096, 4097])
def test_columns_compile(columns: int) -> None:
    assert compile_cubin(emit_loop(column_group(20000, columns)))


SPECIAL = [[0.0, 1.0, -2.0], [-math.inf, 1.0, 3.0], [-math.inf, -math.inf, math.inf], [math.nan, 2.0, 0.0],
           [1e4, -1e4, 1e4], [-math.inf, -math.inf, -math.inf]]
"""Columns of a softmax: with every order of finite and infinite numbers and NaN."""


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_column_has_a_running_maximum_in_every_lane(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a loop over the rows: infinities and NaN give what torch gives."""
    from genesis.codegen.cuda import loops
    from genesis.codegen.cuda.block_sizes import Blocks
    monkeypatch.setattr(loops, "choose_blocks", lambda kernel, gpu: Blocks(8, 4, True, 4))
    monkeypatch.setattr(loops, "held_columns", lambda kernel, blocks, gpu: blocks)
    data = torch.tensor(SPECIAL).T.repeat(5, 3)[:13].contiguous()
    x = an_input(0, tuple(data.shape))
    graph = decomposed(Graph((x,), (getattr(composite, name)(x, axis=0),)))
    source = emit_loop(fuse(graph).groups[0]).source
    assert "g_online_each" in source
    check([x], *graph.roots, data=[data])


@pytest.fixture
def gpu() -> Iterator[None]:
    """A fake GPU: plans for symbolic sizes, run by the interpreter."""
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 26)):
        yield


def standardized(library: Any, x: Any) -> Any:
    return (x - x.mean(0)) / x.std(0)


@pytest.mark.parametrize("function", [standardized, lambda library, x: library.log_softmax(x, 0),
                                      lambda library, x: x.sum(0)])
def test_columns_of_any_number_and_their_gradients(gpu: None, function: Callable[[Any, Any], Any]) -> None:
    """One program after another with another number of columns, of which the first are numbers of the kernels' texts.
    The largest of their class, 64, is a multiple of a block's columns; they are not."""
    for columns in (37, 61, 64):
        data = torch.randn(70, columns, dtype=torch.float64)
        wanted = data.clone().requires_grad_()
        y = function(torch, wanted)
        incoming = torch.randn(y.shape, dtype=torch.float64)
        gradient, = torch.autograd.grad(y, wanted, incoming)
        x = genesis.from_dlpack(data.float()).to("cuda").requires_grad_()
        found = function(genesis, x)
        found_gradient, = genesis.autograd.grad(found, [x], genesis.from_dlpack(incoming.float()).to("cuda"))
        for got, want in ((found, y), (found_gradient, gradient)):
            torch.testing.assert_close(torch.from_dlpack(got.detach().to("cpu")).double(), want.detach(), rtol=1e-4,
                                       atol=1e-4)


def test_a_mean_of_float16_is_finite_where_the_sum_is_not(gpu: None) -> None:
    x = genesis.full((40, 60), 100.0, dtype=genesis.float16, device="cuda") * genesis.ones(60, device="cuda").half()
    assert x.mean().item() == 100.0
    assert x.mean(0).tolist() == [100.0] * 60
    assert x.var().item() == 0.0
    assert x.sum().item() == math.inf


def test_the_gradient_of_a_variance_of_float16_is_finite_where_the_sum_is_not(gpu: None) -> None:
    x = (genesis.arange(2400, device="cuda") % 2 + 100).half().requires_grad_()
    x.var().backward()
    assert x.grad.abs().max().item() == pytest.approx(2 * 0.5 / 2399, rel=1e-2)


@pytest.mark.parametrize("inner", [2, 3, 7, 8, 31])
@pytest.mark.parametrize(("rows", "dtype"), [(600, float32), (2000, bfloat16), (5000, float32)])
def test_a_program_has_all_columns_of_a_short_run(inner: int, rows: int, dtype: DType) -> None:
    x = an_input(0, (3, rows, inner), dtype)
    schedule = check([x], composite.softmax(x, axis=1), r.sum(x, axes=(1,)), data=[some(x) / 8],
                     tolerance=2e-2 if dtype is bfloat16 else 2e-5)
    blocks = [choose_blocks(build(group), H200) for group in schedule.groups]
    assert {x.run for x in blocks} == {inner} and {x.x for x in blocks} == {1 << (inner - 1).bit_length()}


def test_longer_runs_and_short_columns_are_cut_anywhere() -> None:
    for shape in ((300, 500, 33), (300, 20, 7), (4000, 7)):
        x = an_input(0, shape)
        group, = fuse(Graph((x,), (r.sum(x, axes=(len(shape) - 2,)),))).groups
        assert choose_blocks(build(group), H200).run == 0


def test_splits_of_few_columns_fill_their_blocks() -> None:
    """Rows of 85 begin at no vector: what is loaded one by one is not pipelined, and a split has 12 rows."""
    x = an_input(0, (4, 1566, 85))
    groups = fuse(split_reductions(decomposed(Graph((x,), (composite.log_softmax(x, axis=1),))), H200)).groups
    blocks = choose_blocks(build(groups[0]), H200)
    assert blocks.r == 16 and blocks.num_stages == 1


def test_threads_have_short_columns_by_themselves() -> None:
    """Two warps that shared each column of 7 met in the banks of shared memory: 37 µs for 16 by its bytes (H200)."""
    x = an_input(0, (2160, 7, 864), dtype_named("float16"))
    group, = fuse(decomposed(Graph((x,), (composite.log_softmax(x, axis=1),)))).groups
    blocks = choose_blocks(build(group), H200)
    assert blocks.r == 8 and blocks.x == 8 * 32 * blocks.num_warps


def test_blocks_of_a_split_are_no_longer_than_it() -> None:
    """405 rows in 32 splits of 13 were blocks of 32 rows: 8.8 µs for the sums of a batch norm (H200)."""
    x = an_input(0, (405, 32, 49))
    schedule = fuse(split_reductions(decomposed(Graph((x,), (r.sum(p.mul(x, x), axes=(0, 2)),))), H200))
    kernel = build(schedule.groups[0])
    assert kernel.splits is not None
    blocks, split = choose_blocks(kernel, H200), -(-405 // kernel.splits.count)
    assert blocks.r < 2 * split and blocks.x * blocks.r >= 1024


@pytest.mark.parametrize(("shape", "split"), [((300, 5000, 8), False), ((100, 5000, 8), True), ((300, 50000, 8), True)])
def test_short_runs_of_many_are_not_split(shape: tuple[int, ...], split: bool) -> None:
    x = an_input(0, shape)
    graph = split_reductions(decomposed(Graph((x,), (r.sum(x, axes=(1,)),))), H200)
    assert any(node.op.name == "reduce_splits" for node in graph.nodes) == split


def normalized(rows: int, columns: int, dtype: DType, turned: bool) -> Group:
    """A softmax over the columns of a matrix, or a layer norm of its rows where these lie across memory."""
    x = an_input(0, (rows, columns), dtype)
    if not turned:
        return fuse(decomposed(Graph((x,), (composite.softmax(x, axis=0),)))).groups[0]
    y = composite.softmax(movement.permute(x, axes=(1, 0)), axis=1)
    return fuse(decomposed(Graph((x,), (y,)))).groups[0]


@pytest.mark.parametrize("turned", [False, True], ids=["columns", "turned"])
@pytest.mark.parametrize(("rows", "columns", "dtype"), [
    (633, 26993, float32), (184, 75675, float32), (768, 87049, bfloat16), (1024, 9000, bfloat16), (640, 8192, float32)])
def test_columns_that_are_read_twice_are_held(rows: int, columns: int, dtype: DType, turned: bool) -> None:
    """A program reads whole sectors, each element once, and its registers have room for what it holds."""
    group = normalized(rows, columns, dtype, turned)
    kernel = build(group)
    blocks = held_columns(kernel, choose_blocks(kernel, H200), H200)
    assert blocks.kept_bytes and blocks.x * dtype.itemsize >= 32
    held = -(-rows // blocks.r) * blocks.r * blocks.x * dtype.itemsize
    assert held <= 192 * 32 * blocks.num_warps
    source = emit_loop(group).source
    assert source.count("tl.load(in0") == 1 and "in0_at_held[chunk]" in source


@pytest.mark.parametrize(("columns", "looped"), [(89, False), (1055, False), (1057, True)])
def test_what_splits_give_of_few_columns_is_read_once(columns: int, looped: bool) -> None:
    """528 rows were a round of 512 and one of 16, for the mean and again for the spread (H200, 89 columns: 11.9 µs)."""
    operands = [an_input(i, (528, columns)) for i in range(2)]
    mean = movement.expand(r.sum(operands[0], axes=(0,), keepdims=True), shape=(528, columns))
    y = r.sum(p.add(operands[1], p.mul(p.sub(operands[0], mean), 2.0)), axes=(0,))
    group, = fuse(decomposed(Graph(tuple(operands), (y,)))).groups
    kernel = build(group)
    blocks = held_columns(kernel, choose_blocks(kernel, H200), H200)
    assert blocks.looped == looped and (looped or (blocks.x, blocks.r) == (8, 1024))
    if columns == 89:
        check(operands, y)


@pytest.mark.parametrize("rows", [300, 301])
@pytest.mark.parametrize("shapes", [((1, 700),), ((1, 1),), ((1, 700), (300, 1))], ids=str)
def test_columns_of_which_no_element_is_read_by_itself_are_computed_again(
        shapes: tuple[tuple[int, int], ...], rows: int) -> None:
    """A row that is expanded, or a row beside a column, as differences of all pairs are: there is nothing to hold."""
    gpu = replace(H200, multiprocessors=1)
    operands = [an_input(i, (rows if shape[0] > 1 else 1, shape[1])) for i, shape in enumerate(shapes)]
    x, *others = (movement.expand(n, shape=(rows, 700)) for n in operands)
    for other in others:
        x = p.sub(x, other)
    for y in (composite.softmax(x, axis=0), r.argmax(p.abs(x), axis=0)):
        group, = fuse(decomposed(Graph(tuple(operands), (y,)))).groups
        assert held_columns(build(group), choose_blocks(build(group), gpu), gpu).looped
    check(operands, composite.softmax(x, axis=0))


@pytest.mark.parametrize("rows", [4096, 20000])
def test_columns_that_do_not_fit_are_read_again(rows: int) -> None:
    kernel = build(normalized(rows, 4096, float32, turned=False))
    assert held_columns(kernel, choose_blocks(kernel, H200), H200) == choose_blocks(kernel, H200)


@pytest.mark.parametrize(("rows", "columns", "dtype", "at_once"), [
    (144, 100_000, bfloat16, True), (300, 60_000, bfloat16, True), (600, 100_000, bfloat16, True),
    (144, 100_000, float32, True),
    (1500, 100_000, bfloat16, False),   # more than registers hold
    (144, 100_001, bfloat16, False),    # in no vectors
    (144, 4000, bfloat16, False)])      # too few
def test_columns_that_one_loop_reads_are_written_out(rows: int, columns: int, dtype: DType, at_once: bool) -> None:
    """The mean of 144 rows of 100,000 bfloat16 took 14.6 µs for 9 by its bytes in a loop of three rounds (H200)."""
    group = column_group(rows, columns, dtype)
    kernel = build(group)
    blocks = held_columns(kernel, choose_blocks(kernel, H200), H200)
    assert bool(blocks.kept_bytes) == at_once
    if at_once:
        assert blocks.x * dtype.itemsize >= 64 and rows * blocks.x * dtype.itemsize <= 40 << 10
        source = emit_loop(group)
        assert "tl.static_range(" in source.source and "_held" not in source.source and compile_cubin(source)


def test_columns_of_any_number_are_read_in_a_loop() -> None:
    """Each number of blocks would be a plan of its own."""
    with Trace(B=144) as trace:
        x = an_input(0, (trace.symbol("B"), 100_000), bfloat16)
        source = emit_loop(fuse(Graph((x,), (r.sum(x, axes=(0,)),))).groups[0]).source
    assert "static_range" not in source and "tl.range(0, r_size" in source


@pytest.mark.parametrize("rows", [144, 150])
def test_written_out_columns_are_right(rows: int) -> None:
    """Also where the last block of rows is not whole."""
    x, gpu = an_input(0, (rows, 600), bfloat16), replace(H200, multiprocessors=1)
    group, = fuse(Graph((x,), (r.sum(x, axes=(0,)), r.argmax(x, axis=0)))).groups
    source = emit_loop(group, gpu=gpu)
    assert "tl.static_range(" in source.source and "_held" not in source.source
    memory = {x: some(x)} | {y: torch.full((600,), 7, dtype=torch_dtype(y.dtype)) for y in group.outputs}
    run_source(source, memory)
    total, place = (memory[y] for y in group.outputs)
    torch.testing.assert_close(total.float(), memory[x].float().sum(0), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(memory[x].gather(0, place[None])[0], memory[x].amax(0), rtol=0, atol=0)


@pytest.mark.parametrize(("stored", "warps"), [(False, 8), (True, 4)])
def test_whole_columns_of_singles_that_are_only_read_have_more_warps(stored: bool, warps: int) -> None:
    x = an_input(0, (3593, 32_705), bfloat16)
    y = composite.softmax(x, axis=0) if stored else r.argmin(x, axis=0)
    kernel = build(fuse(decomposed(Graph((x,), (y,)))).groups[0])
    blocks = choose_blocks(kernel, H200)
    assert (blocks.num_warps, blocks.x * blocks.r) == (warps, 256 * warps)


@pytest.mark.parametrize(("rows", "columns"), [(633, 77), (300, 131), (2, 40), (130, 600), (1025, 33)])
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_rows_that_lie_across_memory(rows: int, columns: int, dtype: DType) -> None:
    x, w = an_input(0, (rows, columns), dtype), an_input(1, (rows,), dtype)
    check([x, w], composite.layer_norm(movement.permute(x, axes=(1, 0)), w, w, ndim=1, eps=1e-5))


@pytest.mark.parametrize(("rows", "block"), [(32, 32), (33, 64), (64, 64), (100, 128), (16, 16), (300, 1024)])
def test_many_short_columns_of_a_batch_idle_little(rows: int, block: int) -> None:
    """Softmax over 32 with gradients had blocks of 128: 137 µs for 26 by its bytes (H200)."""
    with Trace(N=rows) as trace:
        x = an_input(0, (trace.symbol("N"), 1330, 269), dtype_named("float16"))
        group = fuse(decomposed(Graph((x,), (composite.softmax(x, axis=0),)))).groups[0]
        found = choose_blocks(build(group), H200)
    assert found.r == block or (rows == 300 and found.looped)


@pytest.mark.parametrize(("shape", "dtype", "blocks"), [
    ((7408, 6600), float16, (64, 16)), ((7408, 4200), float16, (32, 16)), ((7408, 9000), float16, (64, 8)),
    ((7408, 6600), float32, (16, 8)), ((7408, 3000), float16, (16, 8))])
def test_long_columns_of_16_bits_are_read_in_more_than_sectors(shape: tuple[int, int], dtype: DType,
                                                               blocks: tuple[int, int]) -> None:
    """Squares of f16[7408, 6600] in 413 programs of 16 columns took 56 µs of an H200, 25 by their bytes."""
    x = an_input(0, shape, dtype)
    kernel = build(fuse(Graph((x,), (r.sum(p.mul(x, x), axes=(0,)),))).groups[0])
    found = choose_blocks(kernel, H200)
    assert (found.x, found.num_warps) == blocks


@pytest.mark.parametrize(("columns", "blocks"), [(9001, (32, 8)), (16_001, (32, 8)), (20_001, (64, 4))])
def test_odd_columns_that_are_written_have_warps_for_all(columns: int, blocks: tuple[int, int]) -> None:
    """141 programs of four warps, one a multiprocessor, took 260 µs for a softmax that torch.compile makes in 148."""
    x = an_input(0, (2500, columns), bfloat16)
    group, = fuse(decomposed(Graph((x,), (composite.softmax(x, axis=0),)))).groups
    found = choose_blocks(build(group), H200)
    assert (found.x, found.num_warps) == blocks and found.looped


def test_columns_beside_what_lies_along_rows_have_smaller_blocks() -> None:
    """Each element has a register before and after it is brought to where the others are."""
    def block(turned: bool) -> int:
        x = an_input(0, (17_791, 89))
        g = movement.permute(an_input(1, (89, 17_791)), axes=(1, 0)) if turned else an_input(1, (17_791, 89))
        inputs = (x, g.inputs[0] if turned else g)
        y = p.mul(x, g)
        graph = split_reductions(Graph(inputs, (y, r.sum(y, axes=(0,)))), H200)
        kernel, = [kernel for kernel in map(build, fuse(graph).groups) if kernel.splits is not None]
        blocks = choose_blocks(kernel, H200)
        return blocks.x * blocks.r

    assert (block(True), block(False)) == (1024, 2048)
