"""Reductions of what lies turned in memory: in memory's order, with the same results."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch

from genesis.codegen.cuda.gpu_model import H200
from genesis.ir import Graph, Node
from genesis.ir.ops import control, indexing, leaves, movement, reduction, sorting
from genesis.ir.ops import pointwise as p
from genesis.ir.types import float64, int64
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph import few_long_rows as few_rows
from genesis.passes.graph.reduce_in_order import reduce_in_order
from tests.codegen.cuda.evaluate import evaluate
from tests.codegen.cuda.programs import an_input, some
from tests.codegen.cuda.run_interpreted import run_schedule


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("order", "axes"), [((3, 1, 2, 0), (0, 3)), ((2, 3, 0, 1), (1, 2)), ((1, 0, 3, 2), (0, 1, 2)),
                                             ((3, 2, 1, 0), (0,))])
def test_what_is_permuted_is_reduced_as_it_lies(order: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    x = an_input(0, (4, 5, 6, 8))
    turned = p.mul(movement.permute(x, axes=order), 3.0)
    graph = Graph((x,), (reduction.sum(turned, axes=axes, keepdims=keepdims),))
    found = reduce_in_order(graph)
    reduced = next(node for node in found.nodes if node.op is reduction.sum)
    assert reduced["axes"] == tuple(sorted(order[axis] for axis in axes))
    assert not any(node.op is movement.permute and node.type.numel == x.type.numel for node in found.nodes)
    data = [some(x)]
    torch.testing.assert_close(run_schedule(fuse(found), data)[0], evaluate(graph, data)[0], rtol=1e-5, atol=1e-5)


def test_what_others_read_too_and_large_results_stay_as_they_are() -> None:
    x = an_input(0, (6, 40, 9))
    turned = movement.permute(x, axes=(2, 1, 0))
    shared = Graph((x,), (reduction.sum(turned, axes=(1,)), p.exp(turned)))
    assert reduce_in_order(shared).roots == shared.roots
    large = Graph((x,), (reduction.sum(turned, axes=(2,)),))
    assert reduce_in_order(large).roots == large.roots


def test_what_is_turned_back_lies_as_it_did() -> None:
    """A linear layer of one row: its transposed weight, turned back, times the row."""
    w, row = an_input(0, (48, 64)), an_input(1, (64,))
    back = movement.permute(movement.permute(w, axes=(1, 0)), axes=(1, 0))
    terms = p.mul(back, movement.expand(movement.reshape(row, shape=(1, 64)), shape=(48, 64)))
    graph = Graph((w, row), (reduction.sum(terms, axes=(1,)),))
    assert reduce_in_order(graph).roots == graph.roots


def test_one_of_several_results_is_reduced_as_it_is() -> None:
    x = an_input(0, (6, 40))
    values = control.item(sorting.sort(x, axis=1, descending=False), index=0)
    graph = Graph((x,), (reduction.sum(p.mul(values, 3.0), axes=(1,)),))
    assert reduce_in_order(graph).roots == graph.roots


def spread(x: Node, axes: tuple[int, ...], like: Node) -> Node:
    """A reduction's result, repeated along the axes that it lost."""
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(like.shape))
    return movement.expand(movement.reshape(x, shape=kept), shape=like.shape)


def large_permutations(graph: Graph, least: int) -> list[Node]:
    return [node for node in graph.nodes if node.op is movement.permute and node.type.numel >= least]


def test_values_between_two_permutations_are_computed_in_memory_order() -> None:
    """The gradient of a cross-entropy of logits that lie turned: two reductions that wait for each other, places along
    the reduced axis, and a result as large as the logits that goes back to their order."""
    x, target, g = an_input(0, (9, 5, 6)), an_input(1, (5, 6), int64), an_input(2, (5, 6))
    turned = movement.permute(x, axes=(1, 2, 0))
    off = p.sub(turned, spread(reduction.max(turned, axes=(2,)), (2,), turned))
    powers = p.exp(off)
    total = reduction.sum(powers, axes=(2,))
    picked = indexing.gather(off, movement.reshape(target, shape=(5, 6, 1)), axis=2)
    losses = p.sub(p.log(total), movement.reshape(picked, shape=(5, 6)))
    places = leaves.iota(shape=(5, 6, 9), axis=2, dtype=int64, device=x.type.device)
    hit = p.cast(p.eq(places, spread(target, (2,), turned)), dtype=x.dtype)
    gradient = p.mul(p.sub(p.div(powers, spread(total, (2,), turned)), hit), spread(g, (2,), turned))
    graph = Graph((x, target, g), (losses, movement.permute(gradient, axes=(2, 0, 1))))
    found = reduce_in_order(graph)
    assert not large_permutations(found, x.type.numel)
    assert {node["axes"] for node in found.nodes if node.op in (reduction.max, reduction.sum)} == {(0,)}
    data = [some(x), torch.randint(0, 9, (5, 6)), some(g)]
    for got, want in zip(run_schedule(fuse(found), data), evaluate(graph, data), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keepdims", [False, True])
def test_the_largest_is_picked_as_it_lies(keepdims: bool) -> None:
    """`x.max(0)`: the value is read at the place that argmax found, which is turned as the value is."""
    x = an_input(0, (5, 6, 40))
    turned = movement.permute(x, axes=(2, 0, 1))
    place = reduction.argmax(turned, axis=0, keepdims=keepdims)
    largest = indexing.gather(turned, place if keepdims else movement.reshape(place, shape=(1, 5, 6)), axis=0)
    graph = Graph((x,), (largest, place))
    found = reduce_in_order(graph)
    assert not large_permutations(found, x.type.numel)
    assert next(node for node in found.nodes if node.op is reduction.argmax)["axis"] == 2
    data = [some(x)]
    for got, want in zip(run_schedule(fuse(found), data), evaluate(graph, data), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_a_value_that_is_multiplied_by_itself_has_one_reader() -> None:
    x = an_input(0, (16, 9, 7))
    turned = movement.permute(x, axes=(2, 1, 0))
    found = reduce_in_order(Graph((x,), (reduction.sum(p.mul(turned, turned), axes=(0, 1, 2)),)))
    assert not large_permutations(found, 2)


def test_operands_in_two_orders_leave_both_as_they_are() -> None:
    x, y = an_input(0, (40, 9)), an_input(1, (9, 40))
    graph = Graph((x, y), (reduction.sum(p.mul(movement.permute(x, axes=(1, 0)), y), axes=(1,)),))
    assert reduce_in_order(graph).roots == graph.roots


def test_what_is_as_large_as_a_reduction_s_operand_may_be_wanted_in_one_set_and_not_in_another() -> None:
    x, y = an_input(0, (40, 9)), an_input(1, (40, 9))
    one, other = (movement.permute(each, axes=(1, 0)) for each in (x, y))
    graph = Graph((x, y), (reduction.sum(one, axes=(1,)), p.exp(other), reduction.sum(other, axes=(1,))))
    found = reduce_in_order(graph)
    assert found.roots[0].inputs[0] is x and found.roots[1:] == graph.roots[1:]


@pytest.mark.parametrize("rows", [16, 64, 500])
def test_few_long_rows_are_reduced_as_they_lie_and_written_as_they_are_wanted(rows: int) -> None:
    """A softmax of few rows that lie turned: one copy turns what comes out, and no reduction is across."""
    x = an_input(0, (6000, rows))
    turned = movement.permute(x, axes=(1, 0))
    powers = p.exp(p.sub(turned, spread(reduction.max(turned, axes=(1,)), (1,), turned)))
    graph = Graph((x,), (p.div(powers, spread(reduction.sum(powers, axes=(1,)), (1,), turned)),))
    found = reduce_in_order(graph, H200)
    assert [node["axes"] for node in found.nodes if node.op in (reduction.max, reduction.sum)] == [(0,), (0,)]
    assert [node.inputs[0] for node in large_permutations(found, x.type.numel)] == [x]
    data = [some(x)]
    torch.testing.assert_close(evaluate(found, data)[0], evaluate(graph, data)[0], rtol=1e-6, atol=1e-9)
    assert reduce_in_order(graph).roots == graph.roots, "no kernel has rows of its own on a CPU"


@pytest.mark.parametrize("shape", [(100, 500), (6000, 600)], ids=["short", "many"])
def test_short_rows_and_many_are_read_across_once(shape: tuple[int, int]) -> None:
    x = an_input(0, shape)
    turned = movement.permute(x, axes=(1, 0))
    graph = Graph((x,), (p.sub(turned, spread(reduction.max(turned, axes=(1,)), (1,), turned)),))
    assert reduce_in_order(graph, H200).roots == graph.roots


def test_what_is_computed_beside_a_value_in_order_is_left_to_both_orders() -> None:
    """A standardization with the gradient that comes in: what the forward reduces is of one order, the rest of two."""
    x, g = an_input(0, (6000, 40)), an_input(1, (40, 6000))
    turned = movement.permute(x, axes=(1, 0))
    off = p.sub(turned, spread(reduction.max(turned, axes=(1,)), (1,), turned))
    graph = Graph((x, g), (off, reduction.sum(p.mul(off, g), axes=(1,))))
    found = reduce_in_order(graph, H200)
    assert next(node for node in found.nodes if node.op is reduction.max)["axes"] == (0,)
    assert next(node for node in found.nodes if node.op is reduction.sum)["axes"] == (1,)
    data = [some(x), some(g)]
    for got, want in zip(evaluate(found, data), evaluate(graph, data), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_keep_their_values(seed: int, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permutations, reductions and what is repeated of them, in any order; each value in float64. All rows count as few
    and long, or none do."""
    if few:
        monkeypatch.setattr(few_rows, "ROWS_ACROSS", 1)
        monkeypatch.setattr(few_rows, "LONG", 1)
    rng = Random(seed)
    shape = rng.choice([(8, 9, 10), (9, 1, 12), (8, 11)])
    axes = tuple(rng.sample(range(len(shape)), len(shape)))
    x, y = (an_input(i, shape, float64) for i in range(2))
    values: list[Node] = [movement.permute(x, axes=axes)]
    beside = an_input(2, values[0].shape, float64)
    if rng.random() < 0.3:
        values.append(movement.permute(y, axes=axes))
    elif few and rng.random() < 0.5:
        values.append(beside)

    def drawn() -> Node:
        v = rng.choice(values)
        along = tuple(sorted(rng.sample(range(v.type.ndim), rng.randint(1, v.type.ndim))))
        match rng.choice(("permute", "reduce", "reduce", "pointwise", "both", "pick")):
            case "permute":
                return movement.permute(v, axes=tuple(rng.sample(range(v.type.ndim), v.type.ndim)))
            case "reduce":
                total = rng.choice((reduction.sum, reduction.max))(v, axes=along)
                return p.sub(v, spread(p.sin(total), along, v))
            case "pick":
                index = reduction.argmax(v, axis=along[0], keepdims=True)
                picked = p.add(indexing.gather(v, index, axis=along[0]), p.cast(index, dtype=float64))
                return p.mul(v, movement.expand(picked, shape=v.shape))
            case "both":
                return p.add(v, rng.choice([other for other in values if other.shape == v.shape]))
        return rng.choice((lambda v: p.mul(v, 1.5), lambda v: p.mul(v, v), p.sin))(v)

    for _ in range(rng.randint(1, 5)):
        values.append(drawn())
    last = values[-1]
    ends = [reduction.sum(last, axes=(rng.randrange(last.type.ndim),)),
            movement.permute(last, axes=movement.inverse(axes)), last]
    graph = Graph((x, y, beside), tuple(rng.sample(ends[:2], rng.randint(1, 2)) if rng.random() < 0.8 else ends))
    found = reduce_in_order(graph, replace(H200, multiprocessors=10_000) if few else None)
    data = [some(x), some(y), some(beside)]
    for got, want in zip(evaluate(found, data), evaluate(graph, data), strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
