"""Permuted values that are copied before several reductions of the middle of their rows."""

from __future__ import annotations

import pytest
import torch

from genesis.codegen.cuda.gpu_model import H200
from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops import composite, movement, scan
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.types import bfloat16
from genesis.passes.fusion import turned_rows as module
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.turned_rows import FIRST, turned_rows
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.programs import an_input, check, some
from tests.codegen.cuda.run_interpreted import run_schedule

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
    ((3, 1, 0, 2), 0, "rows are lines of memory"), ((1, 2, 3, 0), 3, "the last axis is read across"),
    ((0, 2, 1, 3), 1, "neighbours are neighbours")])
def test_others_are_read_as_they_lie(order: tuple[int, ...], axis: int, why: str) -> None:
    x, turned = permuted(order=order)
    assert not turned_rows(decomposed(Graph((x,), (composite.softmax(turned, axis=axis),)))), why


@pytest.mark.parametrize(("order", "why"), [((2, 1, 0), "the next row's elements lie 30 further"),
                                             ((0, 1, 2), "they lie as they are"), ((1, 2, 0), "they lie beside")])
def test_rows_whose_next_is_not_beside_them_are_copied(order: tuple[int, ...], why: str) -> None:
    x, turned = permuted((3000, 30, 61), order)
    rows = composite.softmax(turned, axis=2)
    assert turned_rows(decomposed(Graph((x,), (rows,)))) == ({turned} if order == (2, 1, 0) else set()), why


@pytest.mark.parametrize(("shape", "copied"), [((2200, 16), True), ((9000, 600), False), ((900, 40), False)],
                         ids=["few and long", "many", "short"])
def test_few_long_rows_beside_others_are_copied_first(shape: tuple[int, int], copied: bool) -> None:
    """A norm's backward of rows that lie turned, with a gradient that does not: a few programs would have all rows."""
    x, g = an_input(0, shape), an_input(1, shape[::-1])
    turned = movement.permute(x, axes=(1, 0))
    total = r.sum(p.mul(turned, p.exp(p.sub(g, movement.expand(r.max(g, axes=(1,), keepdims=True), shape=g.shape)))),
                  axes=(1,), keepdims=True)
    graph = Graph((x, g), (p.sub(p.mul(turned, movement.expand(total, shape=g.shape)), g),))
    assert turned_rows(graph, H200) == ({turned} if copied else set())
    assert not turned_rows(graph)
    schedule = fuse(graph, gpu=H200)
    assert ((turned,) in [group.outputs for group in schedule.groups]) == copied
    if copied:
        data = [some(x), some(g)]
        torch.testing.assert_close(run_schedule(schedule, data)[0], evaluate(graph, data)[0], rtol=1e-4, atol=1e-2)


def test_rows_that_are_summed_for_weights_too_are_copied() -> None:
    """A norm's backward: its programs go through whole rows, one after the other."""
    x, turned = permuted((1024, 3000), (1, 0))
    off = p.sub(turned, movement.expand(r.sum(turned, axes=(1,), keepdims=True), shape=turned.shape))
    rows = p.div(off, movement.expand(r.sum(off, axes=(1,), keepdims=True), shape=turned.shape))
    assert not turned_rows(Graph((x,), (rows,)))
    assert turned_rows(Graph((x,), (rows, r.sum(rows, axes=(0,))))) == {turned}


def test_what_a_scan_reads_is_copied_with_what_is_computed_of_it() -> None:
    x = an_input(0, (631, 5000))
    turned = movement.permute(p.mul(x, 2.0), axes=(1, 0))
    scanned = scan.cumsum(turned, axis=1)
    assert turned_rows(Graph((x,), (scanned,))) == {turned}
    assert not turned_rows(Graph((x,), (scanned, turned.inputs[0]))), "it is in memory anyway"
    assert not turned_rows(Graph((x,), (scan.cumsum(turned, axis=0),))), "it scans what lies side by side"


def test_one_reduction_and_small_values_need_no_copy() -> None:
    x, turned = permuted()
    assert not turned_rows(Graph((x,), (r.sum(turned, axes=(2,)),)))
    x, turned = permuted((79, 30, 5, 61))
    assert not turned_rows(decomposed(Graph((x,), (composite.softmax(turned, axis=2),))))


def test_values_of_a_copy_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_BYTES", 1)
    x, turned = permuted((37, 3, 2, 9))
    assert len(check([x], composite.softmax(turned, axis=2), turned * 2.0).groups) == 2
    x, turned = permuted((37, 3, 9), (2, 1, 0))
    assert len(check([x], composite.softmax(turned, axis=2)).groups) == 2
    turned = movement.permute(p.mul(x, 2.0), axes=(1, 2, 0))
    assert len(check([x], scan.cumsum(turned, axis=2)).groups) == 1  # short rows beside each other, read as they lie


@pytest.mark.parametrize(("shape", "width", "axis", "why"), [
    ((1589, 1000, 73), 9, 0, ""), ((1589, 1000, 73), 9, 2, "rows are read once"),
    ((1589, 1000, 17), 9, 0, "pieces lie beside each other"), ((1589, 250, 300), 36, 0, "pieces are sectors and more"),
    ((40, 40_000, 73), 9, 0, "registers hold a column"), ((1589, 100, 73), 9, 0, "it is small")])
def test_columns_of_short_pieces_of_longer_rows_are_copied(shape: tuple[int, ...], width: int, axis: int,
                                                           why: str) -> None:
    """Each of three readings brought 76 MB for 28.6 (H200, softmax over 0 with its gradient: 221 µs)."""
    x = an_input(0, shape, bfloat16)
    part = movement.slice(x, starts=(0, 0, 0), stops=(*shape[:2], width), steps=(1, 1, 1))
    found = turned_rows(decomposed(Graph((x,), (composite.softmax(part, axis=axis),))))
    assert found == (set() if why else {part}), why
    assert not turned_rows(Graph((x,), (r.sum(part, axes=(axis,)),)))


def test_columns_of_copied_pieces_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_BYTES", 0)
    monkeypatch.setattr(module, "LONG_COLUMN", 16)
    x = an_input(0, (70, 11, 30))
    part = movement.slice(x, starts=(0, 0, 2), stops=(70, 11, 7), steps=(1, 1, 1))
    copy, _ = check([x], composite.softmax(part, axis=0)).groups
    assert copy.outputs == (part,)
