"""Products whose transpose is handed out are computed transposed; permuted batches are written where they lie."""

from __future__ import annotations

import pytest

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.movement import permute
from genesis.ir.types import DType, bfloat16, float32
from genesis.passes.graph.turn_products import turn_products
from tests.codegen.cuda.programs import check, inputs


def turned(*outputs: Node) -> tuple[Node, ...]:
    operands = tuple(x for x in Graph((), outputs).nodes if x.op.name == "input")
    return turn_products(Graph(operands, outputs)).outputs


def test_a_transposed_product_is_the_product_of_transposes() -> None:
    a, b = inputs((3, 4), (4, 5))
    assert turned(swap_last(matmul(a, b))) == (matmul(swap_last(b), swap_last(a)),)


def test_columns_lie_side_by_side_in_other_orders_too() -> None:
    a, b = inputs((2, 3, 4), (2, 4, 5))
    assert turned(permute(matmul(a, b), axes=(2, 0, 1))) == (
        permute(matmul(swap_last(b), swap_last(a)), axes=(1, 0, 2)),)


@pytest.mark.parametrize("axes", [(1, 0, 2), (0, 1, 2)])
def test_what_has_its_columns_side_by_side_is_left(axes: tuple[int, ...]) -> None:
    a, b = inputs((2, 3, 4), (2, 4, 5))
    node = permute(matmul(a, b), axes=axes)
    assert turned(node) == (node,)


def test_a_product_that_is_read_otherwise_is_left() -> None:
    a, b = inputs((3, 4), (4, 5))
    both = (matmul(a, b), swap_last(matmul(a, b)))
    assert turned(*both) == both


def test_a_product_of_a_turned_product_is_turned_too() -> None:
    a, b, c = inputs((3, 4), (4, 5), (3, 6))
    first = swap_last(matmul(a, b))
    want = matmul(swap_last(b), swap_last(a))
    assert turned(first, swap_last(matmul(first, c))) == (want, matmul(swap_last(c), swap_last(want)))


def test_a_product_that_turned_products_alone_read_beside_its_transpose_is_turned_too() -> None:
    """A chain of products, all transposes of which are handed out: none is computed both ways."""
    a, *others = inputs((3, 3), *[(3, 3)] * 40)
    product, want, found = a, swap_last(a), []
    for x in others:
        product, want = matmul(product, x), matmul(swap_last(x), want)
        found.append((swap_last(product), want))
    assert turned(*(given for given, _ in found)) == tuple(wanted for _, wanted in found)
    squares = matmul(others[0], others[1])
    both = matmul(squares, squares)
    across = matmul(swap_last(others[1]), swap_last(others[0]))
    assert turned(swap_last(both), swap_last(squares)) == (matmul(across, across), across)


def test_a_product_that_one_more_reads_is_left_beside_turned_ones() -> None:
    a, b, c = inputs((3, 4), (4, 5), (5, 6))
    first = matmul(a, b)
    second = matmul(first, c)
    assert turned(swap_last(second), swap_last(first), first) == (
        matmul(swap_last(c), swap_last(first)), swap_last(first), first)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 0, 1), (0, 2, 1)])
@pytest.mark.parametrize("columns", [40, 25])
def test_a_permuted_batch_is_one_kernel(axes: tuple[int, ...], dtype: DType, columns: int) -> None:
    a, b = inputs((4, 37, 50), (4, 50, columns), dtype=dtype)
    graph = turn_products(Graph((a, b), (permute(matmul(a, b), axes=axes),)))
    schedule = check((a, b), *graph.outputs, tolerance=1e-1 if dtype is bfloat16 else 1e-4)
    assert [group.kind for group in schedule.groups if group.kind != "joined"] == ["matmul"]
