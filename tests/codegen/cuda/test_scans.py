"""Scan kernels: rows and columns, in one piece, walked along, and in chunks."""

from __future__ import annotations

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.templates import scan_blocks as template
from genesis.codegen.cuda.templates import scanned_rows
from genesis.engine.backends import backend_named
from genesis.ir import Graph, Node
from genesis.ir.node import literal
from genesis.ir.ops import composite, movement, reduction, scan
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.control import item
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, bfloat16, bool_, dtype_named, float32, int32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph import split_scans
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.programs import an_input, check, inputs, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule
from tests.sweeping import by_default, sweep_but


def results(node: Node, operands: list[Node], data: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[str]]:
    """An op's results, and the names of its kernels."""
    outputs = tuple(item(node, index=i) for i in (0, 1)) if isinstance(node.type, tuple) else (node,)
    schedule = run_passes(Graph(tuple(operands), outputs), backend_named("h200"))[1]
    return run_schedule(schedule, data, most_programs=512), [emit(group).name for group in schedule.groups]


def expected(name: str, x: torch.Tensor, axis: int, reverse: bool) -> list[torch.Tensor]:
    """torch's results in float64."""
    wide = x.double() if x.is_floating_point() else x
    found = getattr(torch, name)(wide.flip(axis) if reverse else wide, axis)
    several = list(found) if isinstance(found, tuple) else [found]
    return [y.flip(axis) if reverse else y for y in several]


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize(("name", "reverse"), [(name, reverse) for name in (
    "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp") for reverse in (False, True)
    if not reverse or name not in ("cummax", "cummin")])
@pytest.mark.parametrize(("shape", "axis"), [((2, 75), 1), ((2, 128), 1), ((2, 40, 35), 1)])
def test_scans(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], axis: int, name: str, reverse: bool,
               loops: bool) -> None:
    if loops:
        monkeypatch.setattr(template, "PERSISTENT", 16)
        monkeypatch.setattr(template, "STEP", 32)
    turns = name not in ("cummax", "cummin")
    x = an_input(0, shape)
    data = some(x)
    got, _ = results(getattr(scan, name)(x, axis=axis, **({"reverse": reverse} if turns else {})), [x], [data])
    for found, want in zip(got, expected(name, data, axis, reverse), strict=True):
        torch.testing.assert_close(found, want.to(found.dtype), rtol=1e-5, atol=1e-5)


@by_default("shape0-*-False", "shape1-*-True", "*-cumsum-*")
@pytest.mark.parametrize(("name", "reverse"), [(name, reverse) for name in (
    "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp") for reverse in (False, True)
    if not reverse or name not in ("cummax", "cummin")])
@pytest.mark.parametrize(("shape", "dtype"), [((2, 700, 35), bfloat16), ((1, 2100, 3), float32),
                                              ((1, 1100, 34), bfloat16)])
def test_columns_that_are_scanned_in_rounds_are_loaded_a_round_ahead(shape: tuple[int, ...], dtype: DType, name: str,
                                                               reverse: bool) -> None:
    """Each of the rounds waited for memory (H200: cumsum of bfloat16[100, 3000, 51] 155 µs)."""
    x = an_input(0, shape, dtype)
    turns = name not in ("cummax", "cummin")
    node = getattr(scan, name)(x, axis=1, **({"reverse": reverse} if turns else {}))
    outputs = (item(node, index=0), item(node, index=1)) if isinstance(node.type, tuple) else (node,)
    data = 1 + some(x) / 64 if name == "cumprod" else some(x)
    schedule = fuse(Graph((x,), outputs))
    for found, want in zip(run_schedule(schedule, [data]), expected(name, data, 1, reverse), strict=True):
        torch.testing.assert_close(found, want.to(found.dtype), rtol=1e-2, atol=1e-2)
    text = emit(schedule.groups[0]).source
    assert "in0_at_next = tl.load" in text
    assert text.index("in0_at_held = in0_at_next") < text.rindex("in0_at_next = tl.load") < text.rindex("tl.store")


@pytest.mark.parametrize(("shape", "name", "dtype", "blocks"), [
    ((200, 100_000), "cummax", bfloat16, (128, 16, 4)), ((303, 83, 2048), "cummin", bfloat16, (128, 16, 4)),
    ((17, 100_000), "cumsum", bfloat16, (128, 32, 4)), ((700, 6003), "cummax", bfloat16, (32, 64, 4)),
    ((3000, 4096), "cummax", bfloat16, (16, 256, 8)), ((513, 2048), "cumsum", float32, (16, 256, 8)),
    ((300, 1000), "cumsum", float32, (8, 512, 8)), ((105, 1327), "cumprod", float32, (8, 128, 4)),
    ((4000, 256), "cumsum", float32, (8, 512, 8)), ((5000, 128), "cummax", bfloat16, (8, 512, 8))])
def test_a_thread_has_elements_of_one_column_and_no_multiprocessor_idles(
        shape: tuple[int, ...], name: str, dtype: DType, blocks: tuple[int, int, int]) -> None:
    """Threads that had vectors of columns combined their states with all others of the program, 128 of them for 200
    elements; 1000 rows of 512 were three launches, and longer ones four programs."""
    x = an_input(0, shape, dtype)
    axis = len(shape) - 2
    node = getattr(scan, name)(x, axis=axis)
    outputs = tuple(item(node, index=i) for i in (0, 1)) if isinstance(node.type, tuple) else (node,)
    groups = run_passes(Graph((x,), outputs), backend_named("h200"))[1].groups
    kernel, = (emit(group) for group in groups)
    assert (kernel.constexprs["XBLOCK"], kernel.constexprs["RBLOCK"], kernel.num_warps) == blocks
    assert "x = g_unknown(x)" in kernel.source


def test_many_columns_that_one_block_has_in_vectors_stay_in_them() -> None:
    for shape, alone in (((40, 200, 256), False), ((8, 300, 16384), True), ((40, 200, 250), True),
                         ((2, 200, 256), True)):
        x = an_input(0, shape, bfloat16)
        kernel = emit(fuse(Graph((x,), (scan.cumsum(x, axis=1),))).groups[0])
        assert ("x = g_unknown(x)" in kernel.source) == alone


@by_default("*-cummax-*", "*float32-cumsum-*")
@pytest.mark.parametrize(("name", "reverse"), [
    ("cumsum", False), ("cumsum", True), ("cummax", False), ("cummin", False), ("cumprod", True)])
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize("shape", [(2, 41, 200), (30, 300), (33, 225)])
def test_a_thread_walks_along_a_column_where_they_are_many(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...],
                                                           dtype: DType, name: str, reverse: bool) -> None:
    monkeypatch.setattr(template, "WALKERS", 1)
    got, want, text = scanned(an_input(0, shape, dtype), name, len(shape) - 2, reverse)
    near(got, want)
    assert "whole0, later0" not in text or shape[-2] > 32  # no state of another thread
    assert ("in0_at_next = tl.load" in text) == (shape[-2] > 32)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("name", "dtype"), [("cumsum", bfloat16), ("cumsum", float32), ("cumprod", float32)])
@pytest.mark.parametrize("shape", [(37, 23, 8), (50, 7, 3), (9, 2, 40)])
def test_short_columns_of_several_outer_indices_share_a_program(
        monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], name: str, dtype: DType, reverse: bool) -> None:
    monkeypatch.setattr(template, "PROGRAMS", 1)
    x = an_input(0, shape, dtype)
    data, node = some(x), getattr(scan, name)(x, axis=1, reverse=reverse)
    source = emit(fuse(Graph((x,), (node,))).groups[0])
    assert source.constexprs["XBLOCK"] > shape[2]
    (got,), _ = results(node, [x], [data])
    want, = expected(name, data, 1, reverse)
    torch.testing.assert_close(got, want.to(got.dtype), **(
        {"rtol": 1e-2, "atol": 5e-2} if dtype is bfloat16 else {"rtol": 1e-5, "atol": 1e-5}))


BOTH_WAYS = [(name, reverse) for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
             for reverse in (False, True) if not reverse or name not in ("cummax", "cummin")]


def scanned(x: Node, name: str, axis: int, reverse: bool) -> tuple[list[torch.Tensor], list[torch.Tensor], str]:
    """A scan's results, torch's in float64, and the kernel's text."""
    turns = name not in ("cummax", "cummin")
    node = getattr(scan, name)(x, axis=axis, **({"reverse": reverse} if turns else {}))
    outputs = (item(node, index=0), item(node, index=1)) if isinstance(node.type, tuple) else (node,)
    data = 1 + some(x) / 64 if name == "cumprod" else some(x)
    schedule = fuse(Graph((x,), outputs))
    return run_schedule(schedule, [data]), expected(name, data, axis, reverse), emit(schedule.groups[0]).source


def near(found: list[torch.Tensor], want: list[torch.Tensor]) -> None:
    for got, y in zip(found, want, strict=True):
        loose = 1e-2 if got.dtype is torch.bfloat16 else 1e-5
        largest = max(1.0, float(y.abs().max()))  # sums come near 0 on their way
        torch.testing.assert_close(got, y.to(got.dtype), rtol=loose, atol=loose * largest)


@by_default("shape0-*-logcumsumexp-True", "shape1-*-cumsum-*", "shape2-*-cummax-*")
@pytest.mark.parametrize(("name", "reverse"), BOTH_WAYS)
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize("shape", [(3, 61), (5, 319), (2, 1023)])
def test_rows_that_begin_anywhere_are_scanned_in_vectors(shape: tuple[int, ...], dtype: DType, name: str,
                                                         reverse: bool) -> None:
    """Each lane had one element of a chunk, and five shuffles for it (H200: cumprod of float32[747, 7759] 46 µs, in
    vectors 4.3 of float32[181, 7652])."""
    got, want, text = scanned(an_input(0, shape, dtype), name, 1, reverse)
    near(got, want)
    assert ("row_start + near" in text) == (name not in ("cummax", "cummin"))


@by_default("31-*float32-logcumsumexp-True", "103-*cumsum-False", "33-*bfloat16-cumprod-True", "33-*cummax-False")
@pytest.mark.parametrize(("name", "reverse"), BOTH_WAYS)
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize("length", [3, 31, 33, 103, 319])
def test_short_rows_that_begin_anywhere_are_a_few_threads_each(monkeypatch: pytest.MonkeyPatch, length: int,
                                                               dtype: DType, name: str, reverse: bool) -> None:
    monkeypatch.setattr(scanned_rows, "PROGRAMS", 0)
    x = an_input(0, (135, length), dtype)
    got, want, text = scanned(x, name, 1, reverse)
    near(got, want)
    stored = ("values", "indices") if name in ("cummax", "cummin") else ("out",)
    room = len(stored) == 1 or 8 * length * 8 <= 16 << 10  # eight rows' places, of eight bytes each
    assert ("column = thread % " in text) == room or dtype is float32
    assert not room or all(f"g_rows_from_shared(words, {each} + first" in text for each in stored)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
def test_rows_apart_that_become_odd_rows_are_read_where_they_lie(monkeypatch: pytest.MonkeyPatch, dtype: DType,
                                                                 reverse: bool) -> None:
    monkeypatch.setattr(scanned_rows, "PROGRAMS", 0)
    whole = an_input(0, (37, 24), dtype)
    x = movement.take_range(whole, 1, 0, 21)
    node = scan.cumsum(x, axis=1, reverse=reverse)
    data = some(whole)
    schedule = fuse(Graph((whole,), (node,)))
    near(run_schedule(schedule, [data]), expected("cumsum", data[:, :21], 1, reverse))
    assert "g_put_elements(words + (row * 21 + r)" in emit(schedule.groups[0]).source


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize(("shape", "axis"), [((40, 31), 1), ((6, 64), 1), ((3, 319), 1), ((2, 70, 35), 1)])
def test_the_gradient_of_logcumsumexp_is_one_scan(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], axis: int,
                                                  dtype: DType, reverse: bool) -> None:
    """Two scans of logarithms and a loop were three launches (H200: float32[3279, 32] 29.2 µs with the forward's,
    torch.compile 13.7)."""
    monkeypatch.setattr(scanned_rows, "PROGRAMS", 0)
    g, x, y = (an_input(i, shape, dtype) for i in range(3))
    node = scan.logcumsumexp_backward(g, x, y, axis=axis, reverse=reverse)
    data = [some(g), some(x), some(x).float().logcumsumexp(axis).to(some(x).dtype)]
    (got,), kernels = results(node, [g, x, y], data)
    wide = [v.double().flip(axis) if reverse else v.double() for v in data]
    moved = [v.movedim(axis, 0) for v in wide]
    want = torch.stack([(moved[0][:i + 1] * torch.exp(moved[1][i] - moved[2][:i + 1])).sum(0)
                        for i in range(shape[axis])]).movedim(0, axis)
    want = want.flip(axis) if reverse else want
    assert kernels == [f"logcumsumexp_backward_{'rows' if axis == len(shape) - 1 else 'columns'}"]
    largest = float(want.abs().max())
    torch.testing.assert_close(got.double(), want, rtol=0, atol=largest * (1e-2 if dtype is bfloat16 else 2e-5))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 203), (203, 3)])
def test_gradients_of_few_long_rows_of_logcumsumexp_are_made_in_chunks(
        monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: str, reverse: bool) -> None:
    """One program had all of a row (H200: float32[65536] with gradients 73 µs, torch.compile 35)."""
    monkeypatch.setattr(split_scans, "SMALLEST", {True: 16, False: 16})
    monkeypatch.setattr(split_scans, "WHOLE", {True: 0, False: 0})
    nodes, axis, inf = [an_input(i, shape, dtype_named(dtype)) for i in range(3)], int(shape[0] == 2), float("inf")
    g, x = some(nodes[0]).float(), some(nodes[1]).float()
    x.select(1 - axis, 0)[150] = inf
    x.select(1 - axis, 1)[:40] = -inf
    turned = x.flip(axis) if not reverse else x
    y = turned.logcumsumexp(axis)
    y = (y.flip(axis) if not reverse else y).to(getattr(torch, dtype))
    data = [g.to(y.dtype), x.to(y.dtype), y]
    (got,), kernels = results(scan.logcumsumexp_backward(*nodes, axis=axis, reverse=reverse), nodes, data)
    (want,), whole = unsplit(scan.logcumsumexp_backward(*nodes, axis=axis, reverse=reverse), nodes, data)
    assert len(kernels) == 3 and len(whole) == 1
    largest = float(want[want.isfinite()].abs().max())
    loose = 2e-2 if dtype == "bfloat16" else 1e-5
    torch.testing.assert_close(got.double(), want.double(), rtol=0, atol=largest * loose, equal_nan=True)


def unsplit(node: Node, operands: list[Node], data: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[str]]:
    """An op's result by a kernel of its own, and its name."""
    schedule = fuse(Graph(tuple(operands), (node,)))
    return run_schedule(schedule, data, most_programs=512), [emit(group).name for group in schedule.groups]


def test_infinities_and_nan_in_gradients_of_logcumsumexp() -> None:
    """What torch's formula gives: no gradient of what an infinite sum hides, NaN where nothing was summed."""
    inf, nan = float("inf"), float("nan")
    data = torch.tensor([[-inf, -inf, 1.0, 2.0, inf, 3.0], [1.0, 2.0, nan, 3.0, 1.0, 1.0]], requires_grad=True)
    y = data.logcumsumexp(1)
    g = torch.tensor([[1.0, -2.0, 3.0, 1.0, 1.0, 1.0]] * 2)
    y.backward(g)
    nodes = [an_input(i, (2, 6)) for i in range(3)]
    (got,), _ = results(scan.logcumsumexp_backward(*nodes, axis=1, reverse=True), nodes, [g, data.detach(), y.detach()])
    torch.testing.assert_close(got, data.grad, equal_nan=True)


@by_default("shape0-float32-*", "shape1-bfloat16-False", "shape2-*")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(5, 8, 40), (3, 150, 34), (1, 700, 3)])
def test_a_thread_has_one_column_of_sums_of_exponentials_alone(shape: tuple[int, ...], dtype: str,
                                                               reverse: bool) -> None:
    """Where it had vectors of eight columns, it combined their states with those of 32 others: 114 instructions an
    element for columns of 8, 40 alone."""
    x = an_input(0, shape, dtype_named(dtype))
    node = scan.logcumsumexp(x, axis=1, reverse=reverse)
    schedule = fuse(Graph((x,), (node,)))
    near(run_schedule(schedule, [some(x)]), expected("logcumsumexp", some(x), 1, reverse))
    text = emit(schedule.groups[0]).source
    assert "x = g_unknown(x)" in text or "[XBLOCK, 8, 1]" in text  # or the columns of a vector, where they are short


def test_programs_of_columns_of_two_have_enough_to_do() -> None:
    """Each of 150,000 had two elements a thread: a multiprocessor starts one in 0.2 µs."""
    x = an_input(0, (46_992, 2, 410), bfloat16)
    assert emit(fuse(Graph((x,), (scan.logcumsumexp(x, axis=1),))).groups[0]).grid[0] < 10_000


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(2, 203), (203, 3)])
def test_few_long_rows_of_logcumsumexp_are_scanned_in_chunks(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...],
                                                             reverse: bool) -> None:
    """One program had all 100,000 rows of 18 columns."""
    monkeypatch.setattr(split_scans, "SMALLEST", {True: 16, False: 16})
    monkeypatch.setattr(split_scans, "WHOLE", {True: 0, False: 0})
    x, axis, inf = an_input(0, shape), int(shape[0] == 2), float("inf")
    data = some(x)
    for value, at in ((-inf, slice(0, 40)), (inf, slice(150, 151)), (float("nan"), slice(190, 191))):
        data.select(1 - axis, 0)[at] = value
    got, kernels = results(scan.logcumsumexp(x, axis=axis, reverse=reverse), [x], [data])
    assert len(kernels) == 3
    torch.testing.assert_close(got[0], expected("logcumsumexp", data, axis, reverse)[0].float(), rtol=1e-5, atol=1e-5,
                               equal_nan=True)


def test_many_short_columns_are_few_programs() -> None:
    x = an_input(0, (7600, 23, 8), bfloat16)
    assert emit(fuse(Graph((x,), (scan.cumsum(x, axis=1),))).groups[0]).grid == (950, 1, 1)
    x = an_input(0, (60, 23, 8), bfloat16)
    assert emit(fuse(Graph((x,), (scan.cumsum(x, axis=1),))).groups[0]).grid == (60, 1, 1)


@pytest.mark.parametrize(("outer", "extent", "inner", "block"), [(8, 3, 26_312, 4), (8, 7, 26_312, 8), (8, 3, 200, 16),
                                                                 (200_000, 2, 1, 2)])
def test_many_short_rows_of_a_size_that_may_change_idle_little(outer: int, extent: int, inner: int, block: int) -> None:
    with Trace(K=extent) as trace:
        x = an_input(0, (outer, trace.symbol("K"), inner), bfloat16)
        kernel = emit(fuse(Graph((x,), (scan.cumsum(x, axis=1),))).groups[0])
        assert kernel.constexprs["RBLOCK"] == block


def test_columns_of_a_size_that_may_change_are_read_in_vectors_where_it_is_a_number() -> None:
    """A thread has eight columns, and so few of their elements: with the size's class as a divisor it was taken to have
    one, and a block's parts changed threads eight times (H200: 12 µs for 7,600 times 23 × 8, torch.compile 5.5)."""
    x = an_input(0, (7600, 23, 8), bfloat16)
    fixed = emit(fuse(Graph((x,), (scan.cumsum(x, axis=1),))).groups[0])
    assert "[XBLOCK, 2, 16]" in fixed.source
    with Trace(N=7600, H=8) as trace:
        trace.literals = frozenset("H")
        x = an_input(0, (trace.symbol("N"), 23, trace.symbol("H")), bfloat16)
        kernel = emit(fuse(Graph((x,), (scan.cumsum(x, axis=1),))).groups[0])
        assert "[XBLOCK, 2, 16]" in kernel.source and kernel.constexprs == fixed.constexprs


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_recurrence(monkeypatch: pytest.MonkeyPatch, reverse: bool, loops: bool) -> None:
    if loops:
        monkeypatch.setattr(template, "PERSISTENT", 16)
        monkeypatch.setattr(template, "STEP", 32)
    a, b = an_input(0, (3, 50)), an_input(1, (3, 50))
    data = [some(a), some(b)]
    data[0][:, ::7] = 0
    got, _ = results(scan.recurrence(a, b, axis=1, reverse=reverse), [a, b], data)
    x, y = (v.double().flip(1) if reverse else v.double() for v in data)
    want = [y[:, 0]]
    for i in range(1, 50):
        want.append(x[:, i] * want[-1] + y[:, i])
    total = torch.stack(want, 1)
    torch.testing.assert_close(got[0].double(), total.flip(1) if reverse else total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "int8"])
@pytest.mark.parametrize(("name", "shape", "axis"), [("cumsum", (2, 203), 1), ("cumsum", (203, 3), 0),
                                                     ("cumprod", (2, 64), 1)])
def test_few_long_rows_are_scanned_in_chunks(monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, ...],
                                             axis: int, dtype: str, reverse: bool) -> None:
    monkeypatch.setattr(split_scans, "SMALLEST", {True: 16, False: 16})
    monkeypatch.setattr(split_scans, "WHOLE", {True: 0, False: 0})
    x = an_input(0, shape, dtype_named(dtype))
    data = some(x) if name == "cumsum" else 1 + some(x) % 2 / 8 if data_is_float(dtype) else 1 - 2 * (some(x) % 2)
    got, kernels = results(getattr(scan, name)(x, axis=axis, reverse=reverse), [x], [data.to(getattr(torch, dtype))])
    want = expected(name, data.to(getattr(torch, dtype)), axis, reverse)[0]
    assert len(kernels) == 3
    loose = 2e-2 if dtype == "bfloat16" else 1e-5
    torch.testing.assert_close(got[0], want.to(got[0].dtype), rtol=loose, atol=loose)


@pytest.mark.parametrize(("shape", "kernels"), [((3, 8192), 1), ((3, 8193), 3), ((3, 4096, 5), 1),
                                                ((3, 4097, 5), 3)])
def test_rows_that_a_program_scans_in_one_piece_are_not_cut(shape: tuple[int, ...], kernels: int) -> None:
    """Of others both kernels that read a value compute it: to write it first was a fourth kernel."""
    x = an_input(0, shape)
    summed = scan.cumsum(p.mul(x, literal(2.0)) + literal(1.0), axis=1)
    schedule = run_passes(Graph((x,), (summed,)), backend_named("h200"))[1]
    assert len(schedule.groups) == kernels


def data_is_float(dtype: str) -> bool:
    return getattr(torch, dtype).is_floating_point


def test_what_leads_to_a_scan_is_computed_in_it() -> None:
    """A mask's positions: the cast and the reshape are the scan's own."""
    x = an_input(0, (4, 9), bool_)
    flat = movement.reshape(x, shape=(36,))
    node = scan.cumsum(p.cast(flat, dtype=int32), axis=0)
    schedule = run_passes(Graph((x,), (node,)), backend_named("h200"))[1]
    assert kinds(schedule) == ["scan"] and schedule.groups[0].inputs == (x,)
    data = some(x)
    assert torch.equal(run_schedule(schedule, [data])[0], data.flatten().cumsum(0).int())


@by_default("cumsum-1", "logcumsumexp-1")
@pytest.mark.parametrize(("name", "axis"), sweep_but(
    lambda name, axis: axis == (name != "cummax"), ["cumsum", "cummax", "logcumsumexp"], [0, 1]))
def test_scans_compile_for_hopper(name: str, axis: int) -> None:
    x = an_input(0, (8192, 8192), dtype_named("bfloat16"))
    node = getattr(scan, name)(x, axis=axis)
    outputs = tuple(item(node, index=i) for i in (0, 1)) if isinstance(node.type, tuple) else (node,)
    for group in run_passes(Graph((x,), outputs), backend_named("h200"))[1].groups:
        assert compile_cubin(emit(group))


@pytest.mark.parametrize(("shape", "axis"), [((5, 40), 1), ((3, 23, 8), 1), ((40, 6), 0)])
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_what_only_a_scan_needs_is_computed_as_it_reads(shape: tuple[int, ...], axis: int, dtype: DType) -> None:
    x, y = inputs(shape, shape, dtype=dtype)
    scanned = scan.cumsum(p.mul(p.add(x, 1.0), y), axis=axis)
    rounded = 0.1 if dtype is bfloat16 else None  # the reference rounds each of 40 numbers before it adds them
    assert kinds(check([x, y], scanned, tolerance=rounded)) == ["scan"]


def test_what_a_scan_reads_through_views_is_computed_as_it_reads() -> None:
    """It was a kernel of its own (H200: cumprod of 1 + x / 1000, of float32[8641, 32, 7] that lies as [1, 0, 2], 11.4
    µs; torch.compile 7.5)."""
    x, = inputs((32, 41, 7))
    turned = movement.permute(p.add(p.mul(x, 0.001), 1.0), axes=(1, 0, 2))
    assert kinds(check([x], scan.cumprod(turned, axis=1))) == ["scan"]


def test_chunks_and_their_totals_both_compute_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 bits, whose totals are of float32, too: the cast between them made it a kernel of its own."""
    monkeypatch.setattr(split_scans, "SMALLEST", {True: 16, False: 16})
    monkeypatch.setattr(split_scans, "WHOLE", {True: 0, False: 0})
    x = an_input(0, (2, 203), bfloat16)
    node = scan.cumprod(p.add(p.mul(x, 0.001), 1.0), axis=1)
    schedule = run_passes(Graph((x,), (node,)), backend_named("h200"))[1]
    assert len(schedule.groups) == 3
    found, = run_schedule(schedule, [some(x)])
    torch.testing.assert_close(found, (1 + some(x).float() * 0.001).cumprod(1).bfloat16(), rtol=1e-2, atol=1e-2)


def test_what_others_need_or_make_is_in_memory_before_a_scan() -> None:
    x, = inputs((8, 30))
    doubled = p.mul(x, 2.0)
    assert kinds(check([x], scan.cumsum(doubled, axis=1), reduction.sum(doubled, axes=(0,)))).count("scan") == 1
    exponentials = composite.softmax(x, axis=1)
    assert kinds(check([x], scan.cumsum(exponentials, axis=1))) == ["loop", "scan"]
    extremes = tuple(item(scan.cummax(doubled, axis=1), index=i) for i in (0, 1))
    assert kinds(fuse(Graph((x,), extremes))) == ["loop", "scan"]
