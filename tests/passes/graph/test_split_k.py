"""Products of few tiles over a long inner dimension: in parts, the same to the last rounding, wherever it pays."""

from __future__ import annotations

from itertools import pairwise
from itertools import product as pairs
from pathlib import Path

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops.contraction import matmul, matmul_split_k, swap_last
from genesis.ir.ops.splits import split_start
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, bfloat16, float16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.split_k import GAIN, LONG_GAIN, _microseconds, split_k
from genesis.passes.product_times import BLOCK
from tests.codegen.cuda.programs import check, inputs, some
from tests.codegen.cuda.test_machine_code import ptx_of, remarks
from tests.codegen.cuda.test_product_lines import product


def gradient(rows: int, columns: int, depth: int, dtype: DType = bfloat16) -> Graph:
    """A weight's gradient: the inner dimension is the rows of both operands."""
    g, x = inputs((depth, rows), (depth, columns), dtype=dtype)
    return Graph((g, x), (matmul(swap_last(g), x),))


def splits_of(graph: Graph) -> int:
    """How many parts the one product has."""
    found = [node["splits"] for node in split_k(graph, H200).nodes if node.op is matmul_split_k]
    return found[0] if found else 1


def test_few_tiles_are_spread_over_the_gpu() -> None:
    assert splits_of(gradient(768, 768, 16384)) == 7  # 18 tiles, 132 multiprocessors
    assert splits_of(gradient(512, 512, 16384)) > 1


@pytest.mark.parametrize(("rows", "depth", "columns", "turned", "splits"), [
    (136, 3864, 560, False, 4), (304, 5376, 640, True, 5), (512, 3800, 400, False, 5), (272, 7736, 2464, False, 3),
    (1024, 768, 768, True, 1), (2416, 6032, 544, False, 1), (4096, 4096, 4096, False, 1)])
def test_parts_whose_blocks_the_copy_engine_brings(rows: int, depth: int, columns: int, turned: bool,
                                                   splits: int) -> None:
    """Few tiles over a long sum: 0.56 to 0.83 of the unsplit time where they were timed (H200)."""
    a, b = inputs((rows, depth), (columns, depth) if turned else (depth, columns), dtype=bfloat16)
    graph = Graph((a, b), (matmul(a, swap_last(b) if turned else b),))
    assert splits_of(graph) == splits
    kernels = [emit(group, H200).name for group in fuse(split_k(graph, H200)).groups]
    assert ("streamed_matmul_split_k" in kernels) == (splits > 1)


@pytest.mark.parametrize("graph", [gradient(3072, 768, 16384), gradient(4096, 4096, 16384), gradient(768, 768, 1024),
                                   gradient(768, 768, 512, float32)],
                         ids=["overlaps", "many tiles", "short", "short float32"])
def test_what_gains_little_is_left(graph: Graph) -> None:
    assert splits_of(graph) == 1 and split_k(graph, H200).outputs == graph.outputs


def test_the_sum_of_the_parts_is_rounded_once() -> None:
    node, = split_k(gradient(512, 512, 16384), H200).outputs
    assert node.dtype is bfloat16 and node.op.name == "cast" and node.inputs[0].dtype is float32


def parts(depth: int, splits: int, dtype: DType = bfloat16) -> tuple[tuple[Node, Node], Node]:
    """A small product in parts."""
    g, x = inputs((depth, 40), (depth, 24), dtype=dtype)
    return (g, x), matmul_split_k(swap_last(g), x, splits=splits, multiple=BLOCK)


@pytest.mark.parametrize(("depth", "splits"), [(512, 4), (500, 3), (130, 3), (64, 3), (1, 2)])
@pytest.mark.parametrize("dtype", [bfloat16, float32])
def test_parts_are_the_products_of_their_splits(depth: int, splits: int, dtype: DType) -> None:
    operands, node = parts(depth, splits, dtype)
    check(list(operands), node, tolerance=1e-4)
    assert node.shape == (splits, 40, 24) and node.dtype is float32


def test_parts_add_up_to_the_product() -> None:
    graph = gradient(64, 64, 16384)
    split = split_k(graph, H200)
    assert splits_of(graph) > 8
    g, x = (some(node) * 0.1 for node in graph.inputs)
    schedule = check(list(split.inputs), *split.outputs, data=[g, x], most_programs=256)
    assert [group.kind for group in schedule.groups] == ["matmul", "loop"]


@pytest.mark.parametrize(("shape", "layout", "dtype"), [
    ((16, 5401, 34), "tn", float32), ((32, 6800, 300), "nn", float32), ((700, 1024, 43), "nn", float32),
    ((175, 2239, 241), "tn", bfloat16), ((72, 4096, 1200), "nt", float32), ((3, 64, 1501, 94), "nn", float16)], ids=str)
def test_small_products_over_a_long_inner_dimension_are_spread(shape: tuple[int, ...], layout: str,
                                                              dtype: DType) -> None:
    """Float32, rows at odd places, batches: a multiprocessor that has one tile waits for each of its blocks."""
    *batch, rows, depth, columns = shape
    operands, node = product(rows, depth, columns, dtype, layout, batch=tuple(batch))
    graph = Graph(operands, (node,))
    splits = splits_of(graph)
    assert splits > 1
    assert _microseconds(node, splits, H200) <= (LONG_GAIN if dtype is float32 else GAIN) * _microseconds(node, 1, H200)


def test_float32_products_with_all_bits_are_split_for_a_smaller_gain() -> None:
    """Nothing runs beside multiply-adds, and few programs wait for memory: (72, 4096) @ (4096, 1200) took 78 µs in 57
    programs (H200)."""
    operands, node = product(96, 2048, 1200, float32, "nt")
    splits = splits_of(Graph(operands, (node,)))
    assert splits > 1
    assert GAIN < _microseconds(node, splits, H200) / _microseconds(node, 1, H200) <= LONG_GAIN


def test_parts_of_batches_add_up_to_the_products() -> None:
    operands, node = product(20, 1500, 24, float32, "tn", batch=(2, 3))
    split = split_k(Graph(operands, (node,)), H200)
    assert any(x.op is matmul_split_k and x.shape == (x["splits"], 2, 3, 20, 24) for x in split.nodes)
    check(list(split.inputs), *split.outputs, tolerance=1e-4)


def test_no_part_is_empty() -> None:
    """5401 elements are 85 blocks: 29 parts of two or three."""
    for depth in range(128, 6000, 331):
        operands, node = product(16, depth, 34, float32, "tn")
        splits = splits_of(Graph(operands, (node,)))
        starts = [split_start(depth, splits, BLOCK, at) for at in range(splits + 1)]
        assert all(first < last for first, last in pairwise(starts))


def test_parts_of_a_size_that_changes_are_few_programs() -> None:
    """How many parts there are follows from the size's class: as many parts as blocks would be another program each."""
    found = set()
    for batch, length in pairs(range(2, 16), range(257, 512, 14)):
        with Trace(b=batch, n=length) as trace:
            rows = trace.symbol("b") * trace.symbol("n")
            g, x = inputs((rows, 64), (rows, 64))
            found.add(splits_of(Graph((g, x), (matmul(swap_last(g), x),))))
    assert 1 < len(found) <= 3 and min(found) > 1


def test_products_of_runs_are_not_serialized(tmp_path: Path) -> None:
    graph = split_k(gradient(768, 768, 16384), H200)
    kernel = next(emit(group) for group in fuse(graph).groups if group.kind == "matmul")
    said = remarks(ptx_of(kernel), tmp_path)
    assert "registers" in said and "serialized" not in said, said
