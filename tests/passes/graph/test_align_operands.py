"""Operands of large products are copied to rows that the copy engine can bring, so that they are streamed."""

from __future__ import annotations

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.templates.product_choice import Product, _streamed_microseconds
from genesis.codegen.cuda.templates.streamed_matmul import FORMS
from genesis.config import config
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import movement
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.pointwise import cast
from genesis.ir.ops.recompute import recompute
from genesis.ir.types import DType, bfloat16, float16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph import align_operands as align
from genesis.passes.graph.align_operands import _in_vectors, align_operands
from genesis.passes.product_times import STREAMED, streamed_microseconds
from tests.codegen.cuda.programs import an_input, check
from tests.codegen.cuda.test_product_lines import product


def labels(operands: tuple[Node, Node], node: Node) -> list[str]:
    """The kernels, in order."""
    graph = align_operands(Graph(operands, (node,)), H200)
    return [emit(group).label for group in fuse(graph).groups]


@pytest.mark.parametrize(("layout", "depth", "copies"), [
    ("nn", 3999, 2), ("nn", 4096, 1), ("nt", 4096, 0), ("tn", 3999, 2), ("tt", 4096, 1)])
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
def test_large_products_of_odd_rows_are_streamed(dtype: DType, layout: str, depth: int, copies: int) -> None:
    """A row of 4096 begins at a multiple of 16 bytes, one of 3999, 4001 or 4003 does not."""
    *before, last = labels(*product(4001, depth, 4003, dtype, layout))
    assert last.startswith("streamed_matmul") and len(before) == copies


@pytest.mark.parametrize("depth", [4002, 4004])
def test_rows_of_pairs_are_too(depth: int) -> None:
    """A thread could copy two or four of their elements at once, where it copies eight."""
    *before, last = labels(*product(4004, depth, 4008, bfloat16, "nn"))
    assert last.startswith("streamed_matmul") and len(before) == 1


@pytest.mark.parametrize(("sizes", "layout", "copies"), [
    ((6752, 1024, 467), "nn", 1), ((5000, 2000, 333), "nn", 1), ((1143, 1667, 1096), "nt", 2),
    ((2047, 1023, 1025), "nn", 2), ((4001, 1001, 511), "tn", 2)])
def test_products_of_a_tile_or_two_a_program_are_streamed_where_elements_were_loaded_singly(
        sizes: tuple[int, int, int], layout: str, copies: int) -> None:
    """6752 × 1024 by 467 took 28.2 µs, its tiles by pointers (H200; torch 18.9)."""
    *before, last = labels(*product(*sizes, float16, layout))
    assert last.startswith("streamed_matmul") and len(before) == copies


@pytest.mark.parametrize("sizes", [(6752, 1024, 467), (3704, 3710, 256), (2048, 4096, 2048), (264, 1000, 5000)])
def test_the_smallest_form_takes_as_long_as_the_template_says(sizes: tuple[int, int, int]) -> None:
    """One model orders forms and the other counts copies: they are of one time."""
    rows, depth, columns = sizes
    smallest = next(form for form in FORMS if (form.tile.i, form.tile.j) == (STREAMED.rows, STREAMED.columns))
    theirs = _streamed_microseconds(smallest, Product(float16, 1, rows, columns, depth), H200)
    _, node = product(*sizes, float16)
    assert streamed_microseconds(node, H200) == pytest.approx(theirs, rel=0.05)


@pytest.mark.parametrize(("sizes", "dtype"), [
    ((2101, 64, 2103), bfloat16), ((500, 3999, 501), bfloat16), ((6752, 1024, 468), float16),
    ((20000, 201, 131), float16), ((4000, 4000, 4000), bfloat16), ((301, 3999, 303), float32),
    ((4004, 4000, 4000), float32)])
def test_what_gains_nothing_is_left(sizes: tuple[int, int, int], dtype: DType) -> None:
    """Short sums, few tiles, pairs and few tiles, a matrix as large as its product, whole vectors."""
    operands, node = product(*sizes, dtype)
    assert align_operands(Graph(operands, (node,)), H200).outputs == (node,)


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(bfloat16, 1e-1), (float32, 1e-4)], ids=str)
def test_copies_have_the_same_elements(layout: str, dtype: DType, tolerance: float) -> None:
    (x, y), node = product(37, 41, 43, dtype, layout)
    a, b = map(_in_vectors, node.inputs)
    check((x, y), node.op(a, b), tolerance=tolerance)


def test_products_that_are_rounded_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of float32 only multiply-adds are brought so: tensor cores' forms have rules of their own."""
    operands, node = product(4001, 3999, 4003, float32)
    monkeypatch.setattr(config, "float32_products", "tf32")
    assert align_operands(Graph(operands, (node,)), H200).outputs == (node,)


def next_tokens(rows: int = 2048, columns: int = 50304) -> tuple[tuple[Node, ...], Node, Node]:
    """(inputs, logits, gradient of the weight) of a head that has no use for the last token of four texts."""
    x, w = an_input(0, (4, rows, 512), bfloat16), an_input(1, (columns, 512), bfloat16)
    kept = movement.slice(x, starts=(0, 0, 0), stops=(4, rows - 1, 512), steps=(1, 1, 1))
    matrix = movement.reshape(kept, shape=(4 * (rows - 1), 512))
    g = an_input(2, (4 * (rows - 1), columns), bfloat16)
    return (x, w, g), matmul(matrix, swap_last(w)), matmul(swap_last(g), matrix)


def test_a_matrix_from_which_rows_were_left_out_is_copied_once() -> None:
    inputs, logits, gradient = next_tokens()
    graph = align_operands(Graph(inputs, (logits, gradient)), H200)
    first, *others = [emit(group).label for group in fuse(graph).groups]
    assert not first.startswith("streamed") and others == ["streamed_matmul", "streamed_matmul"]


def test_chunks_of_it_read_one_copy() -> None:
    """A chunk waits for what came before (`recompute`); one that lies in a single text is read where it is."""
    inputs, _, _ = next_tokens()
    matrix = movement.reshape(movement.slice(inputs[0], starts=(0, 0, 0), stops=(4, 2047, 512), steps=(1, 1, 1)),
                              shape=(8188, 512))
    products = [matmul(recompute(movement.slice(matrix, starts=(first, 0), stops=(last, 512), steps=(1, 1)), inputs[1]),
                       swap_last(inputs[1])) for first, last in ((0, 2047), (1024, 4096), (4096, 8188))]
    graph = align_operands(Graph(inputs, tuple(products)), H200)
    copies = [node for node in graph.nodes if node.op is cast]
    assert len(copies) == 1 and copies[0].shape == (8188, 512) and graph.outputs[0] is products[0]
    assert [emit(group).label for group in fuse(graph).groups].count("streamed_matmul") == 3


def test_a_copy_that_takes_longer_is_not_made() -> None:
    """Products of few columns, rows of odd lengths, views whose rows are equally far apart, float32."""
    for shape, kept, columns, dtype in (
            ((4, 16384, 4096), 16383, 128, bfloat16), ((4, 2048, 516), 2047, 50304, bfloat16),
            ((4, 2048, 512), 2048, 50304, bfloat16), ((4, 2048, 512), 2047, 50304, float32)):
        x, w = an_input(0, shape, dtype), an_input(1, (shape[2], columns), dtype)
        rows = movement.slice(x, starts=(0, 0, 0), stops=(4, kept, shape[2]), steps=(1, 1, 1))
        node = matmul(movement.reshape(rows, shape=(4 * kept, shape[2])), w)
        assert align_operands(Graph((x, w), (node,)), H200).outputs == (node,), shape


def test_what_is_computed_of_a_copy_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(H200.__class__, "stores_beside_sums", lambda gpu, node: True)
    monkeypatch.setattr(align, "SLOWER", 1e9)
    inputs, logits, gradient = next_tokens(9, 40)
    graph = align_operands(Graph(inputs, (logits, gradient)), H200)
    assert any(node.op is cast for node in graph.nodes)
    for found in graph.outputs:
        check(inputs, found, tolerance=1e-1)
