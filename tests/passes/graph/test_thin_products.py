"""Products of one large matrix by several thin ones are one product, and sums of products over few terms are, too."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import movement, pointwise
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.types import bfloat16
from genesis.ir.verify import verify
from genesis.passes.graph import thin_products as module
from genesis.passes.graph.thin_products import thin_products
from tests.codegen.cuda.evaluate import evaluate
from tests.codegen.cuda.programs import inputs, some

ROWS, DEPTH = 40, 48


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of the tests' size count as large, of eight columns as thin."""
    monkeypatch.setattr(module, "FEWEST_ELEMENTS", 64)
    monkeypatch.setattr(module, "THIN", 8)
    monkeypatch.setattr(module, "MOST", 16)


def joined(operands: Sequence[Node], *outputs: Node) -> Graph:
    """The graph after the pass, whose values are those of before."""
    before = Graph(tuple(operands), outputs)
    after = thin_products(before)
    verify(after)
    data = [some(x) for x in before.inputs]
    for found, wanted in zip(evaluate(after, data), evaluate(before, data), strict=True):
        torch.testing.assert_close(found, wanted, rtol=5e-2, atol=0.3)
    return after


def products(graph: Graph) -> list[tuple[Any, ...]]:
    """The shapes of all products."""
    return sorted(tuple(node.type.shape) for node in graph.nodes if node.op is matmul)


def test_columns_of_one_matrix() -> None:
    x, a, b, c = inputs((ROWS, DEPTH), (4, DEPTH), (6, DEPTH), (DEPTH, 3), dtype=bfloat16)
    graph = joined((x, a, b, c), matmul(x, swap_last(a)), matmul(x, swap_last(b)))
    assert products(graph) == [(ROWS, 10)]
    concat, = (node for node in graph.nodes if node.op is movement.concat)
    assert concat.type.shape == (10, DEPTH), "as the matrices lie in memory"
    assert products(joined((x, a, b, c), matmul(x, swap_last(a)), matmul(x, c))) == [(ROWS, 7)]


def test_rows_by_one_matrix() -> None:
    x, a, b = inputs((ROWS, DEPTH), (ROWS, 4), (ROWS, 6), dtype=bfloat16)
    assert products(joined((x, a, b), matmul(swap_last(a), x), matmul(swap_last(b), x))) == [(10, DEPTH)]


def test_sums_over_few_terms() -> None:
    a, b, c, d, e, f = inputs((ROWS, 4), (4, DEPTH), (ROWS, 6), (6, DEPTH), (ROWS, 32), (32, DEPTH), dtype=bfloat16)
    shape = (2, ROWS // 2, DEPTH)
    terms = [movement.reshape(matmul(*pair), shape=shape) for pair in ((a, b), (e, f), (c, d))]
    graph = joined((a, b, c, d, e, f), pointwise.add(pointwise.add(terms[0], terms[1]), terms[2]))
    depths = sorted(node.inputs[0].type.shape[1] for node in graph.nodes if node.op is matmul)
    assert depths == [10, 32], "the product over many terms is as it was"


def test_a_backward_puts_gradients_together_once() -> None:
    """The product with the input and the sum read them in one order, whichever came first in each."""
    x, a, b, p, q = inputs((ROWS, DEPTH), (ROWS, 4), (ROWS, 6), (4, DEPTH), (6, DEPTH), dtype=bfloat16)
    graph = joined((x, a, b, p, q), matmul(swap_last(b), x), matmul(swap_last(a), x),
                   pointwise.add(matmul(a, p), matmul(b, q)))
    beside = {node for node in graph.nodes if node.op is movement.concat and {a, b} == set(node.inputs)}
    assert len(beside) == 1


def test_terms_that_others_read_are_left() -> None:
    a, b, c, d = inputs((ROWS, 4), (4, DEPTH), (ROWS, 6), (6, DEPTH), dtype=bfloat16)
    graph = Graph((a, b, c, d), (pointwise.add(matmul(a, b), matmul(c, d)), matmul(c, d)))
    assert thin_products(graph) is graph


def test_together_they_stay_thin() -> None:
    x, *others = inputs((ROWS, DEPTH), *[(DEPTH, 7)] * 5, dtype=bfloat16)
    graph = joined((x, *others), *(matmul(x, other) for other in others))
    assert products(graph) == [(ROWS, 7), (ROWS, 14), (ROWS, 14)]


def test_products_that_need_each_other_are_left() -> None:
    """The second one's matrix is made of the first one."""
    x, a = inputs((DEPTH, DEPTH), (DEPTH, 4), dtype=bfloat16)
    first = matmul(x, a)
    graph = Graph((x, a), (first, matmul(x, pointwise.mul(first, first))))
    assert thin_products(graph) is graph


def test_pairs_that_need_each_other_crosswise() -> None:
    """Each pair could be joined, but not both: a1 → b1 and b2 → a2."""
    x, y, p, q = inputs((DEPTH, DEPTH), (DEPTH, DEPTH), (DEPTH, 4), (DEPTH, 5), dtype=bfloat16)
    a1, b2 = matmul(x, p), matmul(y, q)
    b1, a2 = matmul(y, a1), matmul(x, b2)
    joined((x, y, p, q), a1, a2, b1, b2)


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int) -> None:
    """Products by two matrices, of thin matrices that are made of others: whatever is joined, no value waits for
    itself, and the values are those of before."""
    draw = random.Random(seed)
    given = inputs((DEPTH, DEPTH), (DEPTH, DEPTH), (DEPTH, 2), (DEPTH, 4), (DEPTH, 4), dtype=bfloat16)
    x, y, *thin = given
    large = [pointwise.mul(m, 1 / 8) for m in (x, y)]
    wide: list[Node] = []
    for _ in range(12):
        a, m = draw.choice(thin), draw.choice(large)
        kind = draw.randrange(4)
        if kind < 2:
            thin.append(matmul(m, a))
        elif kind == 2:
            thin.append(swap_last(matmul(swap_last(a), m)))
        else:
            b = draw.choice([t for t in thin if t.type.shape == a.type.shape])
            wide.append(matmul(a, swap_last(b)))
            if len(wide) > 1:
                wide.append(pointwise.add(wide[-1], wide[-2]))
    joined(given, *thin[3:], *wide)
