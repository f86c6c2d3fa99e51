"""Slices stand before what is computed row by row: rows that nobody reads are not made, nor are their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from genesis.ir.graph import Graph
from genesis.ir.node import OPS, Node
from genesis.ir.ops import contraction, leaves, movement, pointwise, reduction, softmax
from genesis.ir.types import float64, tensor_type
from genesis.passes.graph import slice_early as module
from genesis.passes.graph.autodiff import gradients
from genesis.passes.graph.slice_early import slice_early
from tests.evaluate import evaluate
from tests.passes.texts import assert_text

linear, layer_norm, rms_norm = OPS["linear"], OPS["layer_norm"], OPS["rms_norm"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of the tests' size are worth leaving out."""
    monkeypatch.setattr(module, "LEAST_BYTES", 1)


def inputs(*sizes: tuple[int, ...]) -> tuple[Node, ...]:
    """Operands of these shapes."""
    return tuple([leaves.input(index=i, type=tensor_type(size, float64)) for i, size in enumerate(sizes)])


def first(x: Node, axis: int = 1, count: int = 1) -> Node:
    """The first places of an axis."""
    return movement.take_range(x, axis, 0, count)


def values_of(graph: Graph) -> list[Any]:
    """The outputs, of drawn operands."""
    feeds = {x: np.random.default_rng(x["index"]).standard_normal(x.shape) for x in graph.inputs}
    return evaluate(graph.outputs, feeds)


def moved(*outputs: Node, operands: tuple[Node, ...]) -> Graph:
    """The graph after the pass, which changed it and none of its values."""
    before = Graph(operands, outputs)
    after = slice_early(before)
    assert after is not before
    for found, wanted in zip(values_of(after), values_of(before), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
    return after


def shapes(graph: Graph, op: Any) -> list[tuple[int, ...]]:
    """What an op's results have for shapes."""
    return [node.shape for node in graph.nodes if node.op is op]


def test_a_product_is_made_for_the_rows_that_are_read() -> None:
    x, w, b = inputs((4, 9, 6), (5, 6), (5,))
    assert_text(slice_early(Graph((x, w, b), (first(linear(x, w, b)),))), """
        graph(%0: f64[4,9,6], %1: f64[5,6], %2: f64[5]) {
          %3: f64[4,1,6] = slice(%0, starts=(0,0,0), stops=(4,1,6), steps=(1,1,1))
          %4: f64[4,1,5] = linear(%3, %1, %2)
          return %4
        }""")


RULES: dict[str, tuple[Callable[..., Node], tuple[tuple[int, ...], ...], Any, tuple[int, ...]]] = {
    "rows of a product, one of its columns' dimension whole": (lambda a, b: first(contraction.matmul(a, b), 0, 3),
                                                               ((8, 6), (6, 5)), contraction.matmul, (3, 5)),
    "columns of a product": (lambda a, b: first(contraction.matmul(a, b), 1, 2), ((8, 6), (6, 5)),
                             contraction.matmul, (8, 2)),
    "batches of a product": (lambda a, b: first(contraction.matmul(a, b), 0), ((4, 8, 6), (4, 6, 5)),
                             contraction.matmul, (1, 8, 5)),
    "a norm": (lambda x, w, b: first(layer_norm(x, w, b, ndim=1, eps=1e-5)), ((4, 9, 6), (6,), (6,)), layer_norm,
               (4, 1, 6)),
    "a norm over two": (lambda x, w, b: first(layer_norm(x, w, b, ndim=2, eps=1e-5), 0), ((4, 9, 6), (9, 6), (9, 6)),
                        layer_norm, (1, 9, 6)),
    "a norm without a mean": (lambda x, w: first(rms_norm(x, w, ndim=1, eps=1e-5)), ((4, 9, 6), (6,)), rms_norm,
                              (4, 1, 6)),
    "softmax": (lambda x: first(softmax.softmax(x, axis=2)), ((4, 9, 6),), softmax.softmax, (4, 1, 6)),
    "every third row from the second on": (
        lambda x, w, b: movement.slice(linear(x, w, b), starts=(0, 1, 0), stops=(4, 9, 5), steps=(1, 3, 1)),
        ((4, 9, 6), (5, 6), (5,)), linear, (4, 3, 5)),
    "behind a permutation": (lambda x, w, b: first(movement.permute(linear(x, w, b), axes=(1, 2, 0)), 0),
                             ((4, 9, 6), (5, 6), (5,)), linear, (4, 1, 5)),
    "behind a sum that ends a dimension": (lambda x, w, b: first(reduction.sum(linear(x, w, b), axes=(0,)), 0, 2),
                                           ((4, 9, 6), (5, 6), (5,)), linear, (4, 2, 5)),
    "behind a sum that keeps it": (lambda x, w, b: first(reduction.sum(linear(x, w, b), axes=(2,), keepdims=True)),
                                   ((4, 9, 6), (5, 6), (5,)), linear, (4, 1, 5)),
    "behind a row for all": (lambda x, w, b: first(linear(x, w, b) * movement.expand(b, shape=(4, 9, 5))),
                             ((4, 9, 6), (5, 6), (5,)), linear, (4, 1, 5)),
    "behind rows for each batch": (
        lambda x, w, b: first(linear(movement.expand(x, shape=(4, 9, 6)), w, b), 1, 2), ((1, 9, 6), (5, 6), (5,)),
        linear, (4, 2, 5)),
    "behind batches of one": (
        lambda x, w, b: movement.slice(movement.expand(linear(x, w, b), shape=(4, 9, 5)), starts=(2, 0, 0),
                                       stops=(4, 1, 5), steps=(1, 1, 1)),
        ((1, 9, 6), (5, 6), (5,)), linear, (1, 1, 5)),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule(name: str) -> None:
    program, sizes, op, shape = RULES[name]
    operands = inputs(*sizes)
    assert shapes(moved(program(*operands), operands=operands), op) == [shape]


def block(x: Node, *weights: Node) -> Node:
    """Norm, product, activation, product, added to what comes in."""
    gain, bias, up, down = weights
    inner = pointwise.gelu(linear(layer_norm(x, gain, bias, ndim=1, eps=1e-5), up), approximate="none")
    return pointwise.add(x, linear(inner, down))


WEIGHTS = (6,), (6,), (10, 6), (6, 10)


def test_a_residual_block_is_made_for_one_row() -> None:
    x, *weights = operands = inputs((4, 9, 6), *WEIGHTS)
    after = moved(first(block(x, *weights)), operands=operands)
    assert shapes(after, linear) == [(4, 1, 10), (4, 1, 6)] and shapes(after, movement.slice) == [(4, 1, 6)]


def test_gradients_are_those_of_the_whole() -> None:
    x, *weights = operands = inputs((4, 9, 6), *WEIGHTS)
    before = Graph(operands, (reduction.sum(first(block(x, *weights)), axes=(0, 1, 2)),))
    found = [Graph(operands, tuple(gradients(graph.outputs, [graph.outputs[0] * 0.0 + 1.0], operands)))
             for graph in (before, slice_early(before))]
    for got, wanted in zip(values_of(found[1]), values_of(found[0]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)
    assert max(np.prod(shape) for shape in shapes(found[1], contraction.matmul)) <= 60  # of weights: none of all rows


def test_what_mixes_rows_is_made_whole() -> None:
    q, w, b = operands = inputs((4, 2, 9, 6), (5, 6), (5,))
    y = OPS["sdpa"](q, q, q, causal=False, scale=1.0)
    after = moved(first(linear(y, w, b), 2), operands=operands)
    assert shapes(after, OPS["sdpa"]) == [(4, 2, 9, 6)] and shapes(after, linear) == [(4, 2, 1, 5)]


@pytest.mark.parametrize("outputs", [
    lambda y: (first(y), y),
    lambda y: (first(y), pointwise.exp(y)),
    lambda y: (first(y), first(y, 1, 2)),
    lambda y: (first(y, 2),),
    lambda y: (first(y, 1, 8),),
    lambda y: (first(movement.reshape(y, shape=(36, 5)), 0, 2),),
], ids=["returned", "read whole", "in two parts", "some columns", "nearly all", "its rows as others"])
def test_what_is_wanted_otherwise_stays_whole(outputs: Callable[[Node], tuple[Node, ...]]) -> None:
    x, w, b = inputs((4, 9, 6), (5, 6), (5,))
    graph = Graph((x, w, b), outputs(linear(x, w, b)))
    assert slice_early(graph) is graph


def test_a_norm_wants_all_of_its_columns() -> None:
    x, w, b = inputs((4, 9, 6), (6,), (6,))
    for ndim, axis in ((1, 2), (2, 1)):
        graph = Graph((x,), (first(layer_norm(x, *(movement.expand(y, shape=x.shape[-ndim:]) for y in (w, b)),
                                              ndim=ndim, eps=1e-5), axis),))
        assert slice_early(graph) is graph


def test_parts_that_are_alike_are_one() -> None:
    x, w, b = operands = inputs((4, 9, 6), (5, 6), (5,))
    y = linear(x, w, b)
    assert shapes(moved(pointwise.exp(first(y)), first(pointwise.sin(y)), operands=operands), linear) == [(4, 1, 5)]


def test_small_values_and_loops_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = inputs((4, 9, 6), (5, 6), (5,))
    graph = Graph((x,), (first(pointwise.exp(x)),))
    assert slice_early(graph) is graph
    graph, left_out = Graph((x, w, b), (first(linear(x, w, b)),)), 8 * 4 * 8 * 5
    monkeypatch.setattr(module, "LEAST_BYTES", left_out)
    assert slice_early(graph) is not graph
    monkeypatch.setattr(module, "LEAST_BYTES", left_out + 1)
    assert slice_early(graph) is graph
