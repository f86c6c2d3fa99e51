"""What is done to a product in a kernel in Gluon compiles: its values have to lie in registers alike."""

from __future__ import annotations

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.ir import OPS, Graph, literal
from genesis.ir.node import Node
from genesis.ir.ops import leaves, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.types import DType, bfloat16, bool_, float32, int64
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import an_input, inputs
from tests.codegen.cuda.run_interpreted import compile_cubin
from tests.sweeping import by_default, sweep_but

DTYPES = [float32, bfloat16]
"""A product of multiply-adds, and one whose blocks are streamed."""


def compiles(operands: tuple[Node, ...], result: Node, numbers: int = 0) -> None:
    """A product and what follows it are one kernel in Gluon, which a GPU can run."""
    group, = fuse(decomposed(Graph(operands, (result,), numbers=numbers))).groups
    kernel = emit(group)
    assert kernel.plain and compile_cubin(kernel)


def product(dtype: DType) -> tuple[tuple[Node, Node], Node]:
    """Large enough to be streamed in bfloat16; in float32 a small one is written in Gluon, too, and compiled sooner."""
    rows, depth, columns = (256, 64, 512) if dtype is float32 else (2048, 256, 4096)
    x, w = inputs((rows, depth), (columns, depth), dtype=dtype)
    return (x, w), matmul(x, swap_last(w))


@pytest.mark.parametrize("dtype", sweep_but(lambda dtype: dtype is float32, DTYPES), ids=str)
def test_dropout(dtype: DType) -> None:
    """A program's neighbours share a draw where they lie in order: joined, they would lie otherwise than the tile."""
    operands, y = product(dtype)
    threshold, scale, seed, draw = (leaves.scalar(index=i, type=literal(x).type) for i, x in enumerate((1, 0.5, 1, 1)))
    compiles(operands, OPS["dropout"](y, threshold, scale, seed, draw), numbers=4)


@by_default("*float32")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masks_and_numbers_of_other_dtypes(dtype: DType) -> None:
    operands, y = product(dtype)
    mask, index = an_input(2, y.type.shape, bool_), an_input(3, y.type.shape, int64)
    moved = p.add(y, p.cast(p.cast(index, dtype=float32), dtype=dtype))
    compiles((*operands, mask, index), p.where(mask, moved, p.abs(y)))


@by_default("*float32")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_part_of_what_32_bits_do_not_count_is_read_at_wide_places(dtype: DType) -> None:
    """Columns of a matrix of 2.4e9 elements are added to a product that is small itself."""
    x, w, large = inputs((200_000, 64), (64, 768), (200_000, 12_000), dtype=dtype)
    part = movement.slice(large, starts=(0, 3), stops=(200_000, 771), steps=(1, 1))
    group, = fuse(Graph((x, w, large), (p.add(matmul(x, w), part),))).groups
    kernel = emit(group)
    rows = [line for line in kernel.source.splitlines() if line.strip().startswith("i = ")]
    assert "* 12000" in kernel.source and rows and all(".to(tl.int64)" in line for line in rows)
    assert compile_cubin(kernel)
