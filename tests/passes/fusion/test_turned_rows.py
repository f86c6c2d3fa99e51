"""Permuted values that are copied before several reductions of the middle of their rows."""

from __future__ import annotations

import pytest

from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops import composite, movement
from genesis.ir.ops import reduction as r
from genesis.passes.fusion import turned_rows as module
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.turned_rows import FIRST, turned_rows
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import an_input, check

BIG = (1879, 30, 5, 61)  # as it lies; its softmax is over the first axis
ORDER = (3, 1, 0, 2)


def permuted(shape: tuple[int, ...] = BIG, order: tuple[int, ...] = ORDER) -> tuple[Node, Node]:
    x = an_input(0, shape)
    return x, movement.permute(x, axes=order)


def test_a_softmax_over_a_middle_axis_reads_a_copy() -> None:
    x, turned = permuted()
    graph = decomposed(Graph((x,), (composite.log_softmax(turned, axis=2),)))
    schedule = fuse(graph)
    copy, softmax = schedule.groups
    assert copy.outputs == softmax.inputs == (turned,)
    assert {missed.why for missed in schedule.missed if missed.producer is turned} == {FIRST}


@pytest.mark.parametrize(("order", "axis", "why"), [
    ((3, 1, 0, 2), 0, "rows are lines of memory"), ((3, 1, 2, 0), 3, "the last axis is read across"),
    ((0, 2, 1, 3), 1, "neighbours are neighbours")])
def test_others_are_read_as_they_lie(order: tuple[int, ...], axis: int, why: str) -> None:
    x, turned = permuted(order=order)
    assert not turned_rows(decomposed(Graph((x,), (composite.softmax(turned, axis=axis),)))), why


def test_one_reduction_and_small_values_need_no_copy() -> None:
    x, turned = permuted()
    assert not turned_rows(Graph((x,), (r.sum(turned, axes=(2,)),)))
    x, turned = permuted((79, 30, 5, 61))
    assert not turned_rows(decomposed(Graph((x,), (composite.softmax(turned, axis=2),))))


def test_values_of_a_copy_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_BYTES", 1)
    x, turned = permuted((37, 3, 2, 9))
    assert len(check([x], composite.softmax(turned, axis=2), turned * 2.0).groups) == 2
