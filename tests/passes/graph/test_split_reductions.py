"""Which reductions are split, and along which axes; what each gives is the whole one's."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.engine.backends import backend_named
from genesis.ir import OPS, Graph, Node
from genesis.ir.ops import movement
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.size_trace import Trace
from genesis.ir.types import dtype_named
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph import split_reductions as split
from genesis.passes.graph.split_reductions import split_reductions
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.programs import an_input, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule


def reduced(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32", name: str = "sum") -> Graph:
    x = an_input(0, shape, dtype_named(dtype))
    return Graph((x,), (OPS[name](x, axes=axes),))


def cuts(graph: Graph) -> list[Node]:
    return [node for node in split_reductions(graph, H200).nodes if node.op is reduce_splits]


@pytest.mark.parametrize(("shape", "axes", "outer"), [
    ((516, 256, 7, 7), (0, 2, 3), (0,)),      # a channel's 49 elements begin anywhere
    ((516, 256, 8, 8), (0, 2, 3), (0, 2, 3)),  # in vectors
    ((18, 160, 512, 7), (0, 1, 3), (0, 1)),
    ((6000, 60, 1, 25), (0, 2, 3), (0,)),
    ((2, 40, 225, 225), (0, 2, 3), (0, 2, 3))])  # too few rows to add first
def test_odd_runs_of_neighbours_are_columns_of_the_outer_axes(shape: tuple[int, ...], axes: tuple[int, ...],
                                                              outer: tuple[int, ...]) -> None:
    part, = cuts(reduced(shape, axes))
    assert part["axes"] == outer


@pytest.mark.parametrize(("shape", "rows"), [
    ((184, 24, 13, 13), 46), ((300, 64, 13, 13), 150), ((1024, 32, 7, 7), 128), ((36, 8, 31, 31), 18),
    ((516, 256, 7, 7), 129), ((60, 128, 27, 27), 60)])
def test_splits_of_odd_runs_have_rows_enough_for_a_program(shape: tuple[int, ...], rows: int) -> None:
    """Batch norm of f32[184, 24, 13, 13] was 2048 programs of six rows of 64 columns: 9.3 µs of an H200 for 3 MB. Fewer
    than `ROWS_OF_RUNS` only where a multiprocessor had no program else."""
    channels, run = shape[1], shape[2] * shape[3]
    found = cuts(reduced(shape, (0, 2, 3)))
    splits = found[0]["splits"] if found else 1
    assert -(-shape[0] // splits) == rows
    programs = splits * -(-channels * run // split.COLUMNS)
    assert splits == 1 or rows >= split.ROWS_OF_RUNS or programs // 2 < H200.multiprocessors


@pytest.mark.parametrize(("shape", "rows"), [
    ((1024, 64, 13, 13), 256), ((184, 24, 13, 13), 46), ((516, 256, 7, 7), 258)])
def test_splits_of_odd_runs_are_longer_where_each_has_a_mean_of_its_own(shape: tuple[int, ...], rows: int) -> None:
    """What a program of squares does at its end was four times what it does for 31 rows of 64 columns (reckoned)."""
    x = an_input(0, shape)
    y = OPS["item"](OPS["batch_norm"](x, eps=1e-5), index=0)
    groups = run_passes(Graph((x,), (y,)), backend_named("h200"))[1].groups
    found = {node["splits"] for group in groups for node in group.outputs if node.op is reduce_splits}
    assert len(found) == 1 and -(-shape[0] // found.pop()) == rows


@pytest.mark.parametrize(("shape", "axes", "splits"), [((2, 64, 64, 64), (0, 2, 3), False), ((64, 16384), (1,), False),
                                                       ((16, 40_000), (1,), True), ((1, 400_000), (1,), True),
                                                       ((104, 65536), (1,), False), ((104, 65537), (1,), True),
                                                       ((136, 50176), (1,), True), ((136, 32768), (1,), False),
                                                       ((512, 50176), (1,), False),
                                                       ((33, 32768), (1,), False), ((33, 32769), (1,), True),
                                                       ((13, 8, 31, 23, 23), (2, 3, 4), False)])
def test_rows_that_are_one_program_each_are_whole(shape: tuple[int, ...], axes: tuple[int, ...],
                                                       splits: bool) -> None:
    assert bool(cuts(reduced(shape, axes))) == splits


@pytest.mark.parametrize(("shape", "splits"), [
    ((405, 64, 7, 7), False), ((668, 64, 7, 7), False), ((669, 64, 7, 7), True), ((405, 32, 7, 7), True),
    ((405, 132, 7, 7), False), ((405, 133, 7, 7), True)])
def test_channels_of_a_program_each_are_longer_where_no_multiprocessor_has_two(shape: tuple[int, ...],
                                                                               splits: bool) -> None:
    assert bool(cuts(reduced(shape, (0, 2, 3)))) == splits


def test_the_fewest_rows_of_a_class_are_not_whole_because_more_would_be() -> None:
    """Batches of 2 to 15 are one class, which is weighed as 8: 2 of 8 long rows are 16 programs, of 45 µs (H200)."""
    def rows(batch: int) -> bool:
        with Trace(N=batch) as trace:
            graph = Graph((x := an_input(0, (trace.symbol("N"), 8, 25_088)),), (OPS["sum"](x, axes=(2,)),))
            return not cuts(graph)

    assert not rows(2) and not rows(4) and rows(5) and rows(14)


def in_two_orders(shape: tuple[int, ...], order: tuple[int, ...]) -> Graph:
    x, y = an_input(0, tuple(shape[order.index(axis)] for axis in range(len(shape)))), an_input(1, shape)
    off = movement.permute(x, axes=order) - y
    return Graph((x, y), (OPS["sum"](off * off, axes=tuple(range(len(shape)))),))


@pytest.mark.parametrize(("shape", "order", "first"), [
    ((4096, 241), (1, 0), (1,)), ((123, 65_536), (1, 0), (0,)), ((300, 40, 100), (1, 0, 2), ()),
    ((64, 512, 30), (0, 2, 1), (2,)), ((16, 40, 3000), (2, 0, 1), (0,)), ((40_000, 8), (1, 0), ())])
def test_a_total_of_two_orders_is_of_squares_first(shape: tuple[int, ...], order: tuple[int, ...],
                                                   first: tuple[int, ...]) -> None:
    """Read as one of them lies, the other's neighbours are a line apart: 8 times the bytes."""
    graph = split_reductions(in_two_orders(shape, order), H200)
    assert [x["axes"] for x in graph.nodes if x.op is OPS["sum"]][:1] == [first] or not first
    assert any(x.op is reduce_splits and x.inputs[0].shape == shape for x in graph.nodes) == (not first)


@pytest.mark.parametrize(("shape", "order"), [((70, 33), (1, 0)), ((33, 70), (1, 0)), ((5, 30, 17), (0, 2, 1)),
                                              ((17, 6, 40), (2, 0, 1))])
def test_totals_of_two_orders_are_right(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...],
                                        order: tuple[int, ...]) -> None:
    for setting, value in (("SMALLEST", 1), ("LONGEST_ALONE", 1), ("SHORTEST_SPLIT", 8), ("MULTIPLE", 8)):
        monkeypatch.setattr(split, setting, value)
    graph = split_reductions(in_two_orders(shape, order), H200)
    assert any(x.op is OPS["sum"] and x.type.ndim for x in graph.nodes)
    data = [some(x) for x in graph.inputs]
    found, = run_schedule(fuse(graph), data)
    torch.testing.assert_close(found, evaluate(in_two_orders(shape, order), data)[0], rtol=2e-5, atol=1e-4)


def rows_in_two_orders(shape: tuple[int, int]) -> Graph:
    """Sums of rows of a turned value times one in order, which is returned as well."""
    x, y = an_input(0, shape[::-1]), an_input(1, shape)
    value = movement.permute(x, axes=(1, 0)) * y
    return Graph((x, y), (value, OPS["sum"](value, axes=(1,))))


@pytest.mark.parametrize(("shape", "splits"), [((64, 10_300), [64]), ((1000, 2000), [4]), ((2200, 2000), []),
                                               ((64, 400), []), ((8, 40_000), [])])
def test_few_rows_that_lie_in_two_orders_are_split(shape: tuple[int, int], splits: list[int]) -> None:
    """64 such rows were four programs of 16, which took 126 µs for 16 MB (H200)."""
    found = [node["splits"] for node in cuts(rows_in_two_orders(shape)) if node["multiple"] == split.SPLIT_ACROSS]
    assert found == splits


@pytest.mark.parametrize("shape", [(20, 530), (64, 257), (17, 300)])
def test_rows_in_two_orders_are_right_in_splits(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    for setting, value in (("SMALLEST_ACROSS", 1), ("SPLIT_ACROSS", 32)):
        monkeypatch.setattr(split, setting, value)
    graph = split_reductions(rows_in_two_orders(shape), H200)
    assert any(x.op is reduce_splits for x in graph.nodes)
    data = [some(x) for x in graph.inputs]
    found = run_schedule(fuse(graph), data, most_programs=200)
    for got, want in zip(found, evaluate(rows_in_two_orders(shape), data), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize(("shape", "splits"), [
    ((70_000,), 16), ((150_000,), 32), ((300_000,), 64), ((600_000,), 128), ((1_200_000,), 264), ((99_991, 32), 528),
    ((5_000_000,), 1056), ((20, 110_000), 26)], ids=str)
def test_a_sum_has_as_many_programs_as_are_long_enough(shape: tuple[int, ...], splits: int) -> None:
    part, = cuts(reduced(shape, (0,) if len(shape) == 1 else (0, 1) if shape[1] == 32 else (1,)))
    assert part["splits"] == splits


@pytest.mark.parametrize(("dtype", "splits"), [("float32", 660), ("float16", 1056)])
def test_splits_that_compute_for_long_have_a_place_at_once(dtype: str, splits: int) -> None:
    """A binary cross-entropy is 76 instructions an element; of 16-bit values it is a third."""
    x, y = (an_input(i, (1152, 8192), dtype_named(dtype)) for i in range(2))
    loss = OPS["sub"](OPS["mul"](OPS["sigmoid"](y), x), OPS["logsigmoid"](x))
    part, = cuts(decomposed(Graph((x, y), (OPS["sum"](loss, axes=(0, 1)),)), keep=("sigmoid", "logsigmoid")))
    assert part["splits"] == splits


@pytest.mark.parametrize(("way", "splits", "multiple"), [
    ("gelu's gradient", 129, 128), ("of heads", 129, 128), ("of rows that were reduced", 132, 1),
    ("of a product of few tiles", 528, 1), ("of another axis", None, None)])
def test_columns_of_a_product_are_summed_as_its_tiles_lie(way: str, splits: int | None, multiple: int | None) -> None:
    rows, columns = 16400, 3072 if way != "of a product of few tiles" else 256
    a, b, x, bias = (an_input(i, shape, dtype_named("bfloat16")) for i, shape in enumerate(
        ((rows, 768), (768, columns), (rows, columns), (columns,))))
    y = matmul(a, b)
    spread = movement.expand(bias, shape=(rows, columns))
    if way == "of rows that were reduced":
        y = y - movement.expand(OPS["max"](y, axes=(1,), keepdims=True), shape=(rows, columns))
    dx = y * OPS["sigmoid"](OPS["add"](x, spread))
    if way == "of heads":
        dx = movement.reshape(movement.reshape(dx, shape=(4100, 4, 3072)), shape=(1025, 16, 3072))
    axes = tuple(range(dx.type.ndim - 1)) if way != "of another axis" else (1,)
    found = [(node["splits"], node["multiple"]) for node in cuts(Graph((a, b, x, bias), (OPS["sum"](dx, axes=axes),)))]
    assert found == ([(splits, multiple)] if splits else [])


@pytest.mark.parametrize(("shape", "splits"), [
    ((10_624, 832), 264), ((4096, 1448), 132), ((16_384, 768), 528),
    ((100_000, 832), 528), ((20_000, 4097), 132), ((10_624, 60), 528)])  # long ones, and one block of columns
@pytest.mark.parametrize("of_rows", [False, True])
def test_splits_of_blocks_of_columns_are_long(shape: tuple[int, int], splits: int, of_rows: bool) -> None:
    """Where a kernel has whole rows, as it reduces them first, there is a program a split: as many as ever."""
    x = an_input(0, shape, dtype_named("float32"))
    y = x - movement.expand(OPS["max"](x, axes=(1,), keepdims=True), shape=shape) if of_rows else x * 2.0
    part, = cuts(Graph((x,), (OPS["sum"](y, axes=(0,)),)))
    most = next(each for each, columns in ((528, 1024), (264, 2048), (132, 8192)) if shape[1] <= columns)
    assert part["splits"] == (most if of_rows else splits)


@pytest.mark.parametrize(("shape", "memory", "computed"), [
    ((16_384, 2304), 33, 132), ((12_608, 2304), 33, 132), ((16_384, 768), 66, 528), ((50_000, 512), 132, 528),
    ((2048, 4096), 33, 66), ((1100, 8000), 4, 33)])
def test_sums_of_memory_have_long_splits(shape: tuple[int, int], memory: int, computed: int) -> None:
    """Of 256 rows, while each multiprocessor has two programs: one that begins costs as much as many rows. Where
    something is computed of each element there are more, as they wait for arithmetic, too."""
    x = an_input(0, shape, dtype_named("bfloat16"))
    wide = OPS["cast"](movement.reshape(x, shape=(2, shape[0] // 2, shape[1])), dtype=dtype_named("float32"))
    for value, splits in ((wide, memory), (OPS["tanh"](wide), computed)):
        part, = cuts(Graph((x,), (OPS["sum"](value, axes=(0, 1)),)))
        assert part["splits"] == splits


@pytest.mark.parametrize("rows", [10_624, 25_480, 65_536])
def test_splits_of_a_variance_are_longer_and_those_of_its_mean_are_the_same(rows: int) -> None:
    """In 21 rows each they took 48.9 µs of an H200, where torch.compile took 19, and 37 in 49 rows of 635; one kernel
    makes both."""
    x = an_input(0, (rows, 832), dtype_named("float32"))
    parts = cuts(decomposed(Graph((x,), (OPS["var"](x, axes=(0,), correction=1),))))
    assert {(part["how"], part["splits"]) for part in parts} == {("sum", 132), ("squares", 132)}


@pytest.mark.parametrize("shape", [(20, 20_000), (100, 20_000), (40, 12_000)])
def test_where_two_launches_did_not_pay_finer_splits_change_nothing(shape: tuple[int, int]) -> None:
    assert not cuts(reduced(shape, (1,)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "float16"])
@pytest.mark.parametrize("name", ["sum", "max", "prod"])
@pytest.mark.parametrize(("shape", "axes"), [((40, 3, 5, 7), (0, 2, 3)), ((9, 5, 2, 33), (0, 1, 3)),
                                             ((33, 1, 9, 1, 3), (0, 4))])
def test_columns_of_runs_give_what_the_whole_does(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...],
                                                  axes: tuple[int, ...], name: str, dtype: str) -> None:
    for setting, value in (("SMALLEST", 1), ("FEWEST_COLUMNS", 1), ("FEWEST_ROWS", 2), ("WHOLE_ROW", 0)):
        monkeypatch.setattr(split, setting, value)
    graph = reduced(shape, axes, dtype, name)
    schedule = run_passes(graph, backend_named("h200"))[1]
    part = next(node for node in schedule.graph.nodes if node.op is reduce_splits)
    assert part["splits"] > 1 and set(part["axes"]) < set(axes)
    data = some(graph.inputs[0])
    data = data % 3 + 1 if name == "prod" and dtype == "int32" else data * 0.1 + 1 if name == "prod" else data
    found, = run_schedule(schedule, [data.to(getattr(torch, dtype))], most_programs=8192)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    flat = data.to(getattr(torch, dtype)).double().permute(*kept, *axes).reshape(*(shape[a] for a in kept), -1)
    want = {"sum": flat.sum(-1), "max": flat.amax(-1), "prod": flat.prod(-1)}[name]
    if dtype == "int32":  # as it wraps round
        want = (want if name != "prod" else flat.long().prod(-1)).long().to(torch.int32).double()
    tolerance = {"bfloat16": 8e-3, "float16": 1e-3}.get(dtype, 2e-6) * (prod(shape) if name == "sum" else 1) ** 0.5
    torch.testing.assert_close(found.double().reshape(want.shape), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(516, 256, 7, 7), (2, 64, 64, 64)])
def test_batch_norm_takes_few_kernels_that_read_in_vectors(shape: tuple[int, ...]) -> None:
    x = an_input(0, shape)
    affine = [an_input(i, (shape[1],)) for i in (1, 2)]
    y = OPS["batch_norm"](x, *affine, eps=1e-5)
    schedule = run_passes(Graph((x, *affine), (OPS["item"](y, index=0),)), backend_named("h200"))[1]
    assert len(schedule.groups) == (3 if shape[0] > 2 else 1)
    kernels = [emit(group) for group in schedule.groups]
    assert all(compile_cubin(kernel) for kernel in kernels)
    assert "% 49) +" not in kernels[0].source


def divergence(rows: int, columns: int, dtype: str = "float32") -> Graph:
    """The sum of a softmax's elements times another's logarithms, as `kl_div` has it."""
    x, y = (an_input(i, (rows, columns), dtype_named(dtype)) for i in (0, 1))
    product = OPS["softmax"](y, axis=1) * OPS["log_softmax"](x, axis=1)
    return decomposed(Graph((x, y), (OPS["sum"](product, axes=(0, 1)),)))


@pytest.mark.parametrize(("rows", "columns", "dtype"), [(1794, 20080, "float32"), (7672, 449, "bfloat16"),
                                                        (300_000, 24, "float16"), (2048, 128, "bfloat16")])
def test_a_sum_of_what_waits_for_whole_rows_is_one_of_rows_first(rows: int, columns: int, dtype: str) -> None:
    """So the kernel that makes the rows adds them up, and none of their elements is written."""
    graph = split_reductions(divergence(rows, columns, dtype), H200)
    total = graph.outputs[0].inputs[0]
    assert [x["axes"] for x in graph.nodes if x.op is reduce_splits] == ([(0,)] if rows > 100_000 else [])
    assert total.dtype.name == "float32", "a sum of two-byte values is not rounded on the way"
    kernels = fuse(graph).groups
    assert len(kernels) == (3 if rows > 100_000 else 2)
    assert all(node.type.numel <= rows for group in kernels for node in group.outputs)


@pytest.mark.parametrize("graph", [divergence(8, 1_000_000), reduced((1794, 20080), (0, 1))],
                         ids=["of rows that are split", "of no rows"])
def test_a_sum_that_waits_for_no_whole_row_is_cut_as_it_lies(graph: Graph) -> None:
    assert [x for x in cuts(graph) if x["axes"] == (0, 1) and x["how"] == "sum"]


@pytest.mark.parametrize(("name", "dtype"), [("sum", "float32"), ("sum", "bfloat16"), ("max", "float16"),
                                             ("prod", "float32"), ("any", "float32")])
def test_reductions_by_rows_are_what_they_were(monkeypatch: pytest.MonkeyPatch, name: str, dtype: str) -> None:
    for constant in ("LONGEST_ALONE", "SMALLEST", "SHORTEST_SPLIT"):
        monkeypatch.setattr(split, constant, 16)
    x = an_input(0, (5, 37), dtype_named(dtype))
    graph = decomposed(Graph((x,), (OPS[name](OPS["softmax"](x, axis=1), axes=(0, 1), keepdims=True),)))
    gpu = replace(H200, multiprocessors=1)
    by_rows = split_reductions(graph, gpu)
    assert any(node.op.name == name and node["axes"] == (1,) and node.inputs[0].shape == (5, 37)
               for node in by_rows.nodes)
    found, = run_schedule(fuse(by_rows), [some(x)])
    want, = evaluate(graph, [some(x)])
    torch.testing.assert_close(found, want, rtol=1e-5 if dtype == "float32" else 2 ** -8, atol=0)


@pytest.mark.parametrize(("shape", "axes", "by_rows"), [
    ((24, 256, 2809), (0, 2), True), ((24, 256, 2808), (0, 2), False), ((24, 256, 529), (0, 2), False),
    ((24, 256, 2809), (2,), False), ((2, 64, 2809), (0, 2), False)])
def test_long_odd_runs_are_reduced_before_the_outer_axes(shape: tuple[int, ...], axes: tuple[int, ...],
                                                         by_rows: bool) -> None:
    """As columns each element asked for its channel's numbers (108 µs of an H200 for 26 by the bytes)."""
    graph = split_reductions(reduced(shape, axes, "bfloat16"), H200)
    first = next(node for node in graph.nodes if node.op.kind == "reduction" or node.op is reduce_splits)
    assert (first["axes"] == (2,) and first.op is not reduce_splits and len(axes) > 1) == by_rows


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_of_long_odd_runs_are_what_they_were(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(split, "SMALLEST", 1)
    monkeypatch.setattr(split, "WHOLE_ROW", 64)
    monkeypatch.setattr(split, "SHORTEST_ALONE", 16)
    graph = reduced((16, 21, 67), (0, 2), dtype)
    parted = split_reductions(graph, replace(H200, multiprocessors=4))
    assert any(node.op.name == "sum" and node["axes"] == (2,) for node in parted.nodes)
    data = [some(graph.inputs[0])]
    found, = run_schedule(fuse(parted), data, most_programs=512)
    torch.testing.assert_close(found.double(), data[0].double().sum((0, 2)), rtol=2 ** -7, atol=1e-3)
