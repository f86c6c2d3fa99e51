"""Sums around a mean or a maximum that are split: what is reduced is read once, and the results are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from genesis.codegen.cuda.gpu_model import H200
from genesis.ir import Graph, Node
from genesis.ir.ops import composite, movement, reduction
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.types import bfloat16, float16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph import split_reductions as split
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.programs import an_input, some
from tests.codegen.cuda.run_interpreted import run_schedule
from tests.sweeping import by_default

GPU = replace(H200, multiprocessors=4)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of what is small enough for the interpreter, and not of the splits' results again."""
    monkeypatch.setattr(split, "SMALLEST", 200)
    monkeypatch.setattr(split, "WHOLE_ROW", 0)
    monkeypatch.setattr(split, "FEWEST_COLUMNS", 8)
    monkeypatch.setattr(split, "EACH", 1)
    monkeypatch.setattr(split, "COLUMNS", 16)
    monkeypatch.setattr(split, "SHORTEST_SPLIT", 8)
    monkeypatch.setattr(split, "FEWER_SPLITS", (16, 8))
    monkeypatch.setattr(split, "MULTIPLE", 8)
    monkeypatch.setattr(split, "FEWEST_ROWS", 1)
    monkeypatch.setattr(split, "ROW_SPLITS", ((4, 1000),))


def variance(x: Node, axes: tuple[int, ...]) -> Node:
    """The mean square of what is left without the mean."""
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    wide = p.cast(x, dtype=float32)
    mean = p.div(reduction.sum(wide, axes=axes, keepdims=True), float(count))
    off = p.sub(wide, movement.expand(mean, shape=x.shape))
    return p.div(reduction.sum(p.mul(off, off), axes=axes), float(count))


def exponentials(x: Node, axes: tuple[int, ...]) -> Node:
    """log Σ exp of a whole."""
    wide = p.cast(x, dtype=float32)
    largest = reduction.max(wide, axes=axes, keepdims=True)
    finite = p.where_(p.isinf(largest), 0.0, largest)
    total = reduction.sum(p.exp(p.sub(wide, movement.expand(finite, shape=x.shape))), axes=axes, keepdims=True)
    return p.add(p.log(total), finite)


@by_default("*-dtype0", "*-shape0-*", "*-shape2-*")
@pytest.mark.parametrize("dtype", [float32, bfloat16, float16])
@pytest.mark.parametrize(("shape", "axes"), [((2, 300), (1,)), ((301, 3), (0,)), ((5, 3, 80), (0, 2)),
                                             ((13, 17), (0, 1)), ((11, 1, 3, 1, 7), (0, 2, 3, 4)),
                                             ((6, 4, 3, 5), (0, 1, 3)), ((2, 3, 1, 9, 5), (0, 3, 4))])
@pytest.mark.parametrize("spread", [variance, exponentials])
def test_a_split_spread_is_the_whole_one_and_reads_once(spread, shape, axes, dtype) -> None:
    x = an_input(0, shape, dtype)
    graph = decomposed(Graph((x,), (spread(x, axes),)))
    cut = split.split_reductions(graph, GPU)
    assert sorted(node["how"] for node in cut.nodes if node.op is reduce_splits) == (
        ["squares", "sum"] if spread is variance else ["exponentials", "max"])
    schedule = fuse(cut)
    assert [sum(read is x for read in group.inputs) for group in schedule.groups] == [1, 0]
    data = some(x) * 2 + 30  # a mean far from 0, which single sums of squares would lose digits to
    want, = evaluate(graph, [data])
    torch.testing.assert_close(run_schedule(schedule, [data])[0], want, rtol=2e-6, atol=0)


def test_infinities_and_nan_are_what_they_are_in_the_whole() -> None:
    x = an_input(0, (6, 200))
    data, inf = some(x), float("inf")
    data[0, 3:] = -inf
    data[1] = -inf
    data[2, :100] = -inf
    data[3, 150] = inf
    data[4, 7] = float("nan")
    graph = decomposed(Graph((x,), (exponentials(x, (1,)), composite.softmax(x, axis=1))))
    cut = split.split_reductions(graph, GPU)
    assert any(node.op is reduce_splits and node["how"] == "exponentials" for node in cut.nodes)
    for columns in (False, True):
        if columns:
            x, data = an_input(0, (200, 6)), data.T.contiguous()
            graph = decomposed(Graph((x,), (exponentials(x, (0,)), composite.softmax(x, axis=0))))
            cut = split.split_reductions(graph, GPU)
        found = run_schedule(fuse(cut), [data])
        axis = 0 if columns else 1
        torch.testing.assert_close(found[0], data.logsumexp(axis, keepdim=True), equal_nan=True)
        torch.testing.assert_close(found[1], data.softmax(axis), equal_nan=True)


def test_what_is_around_another_number_is_not_taken_apart() -> None:
    x, y = an_input(0, (400, 2)), an_input(1, (1, 2))
    off = p.sub(x, movement.expand(y, shape=x.shape))  # no reduction of x: one reading does anyway
    graph = Graph((x, y), (reduction.sum(p.mul(off, off), axes=(0,)),))
    assert [node["how"] for node in split.split_reductions(graph, GPU).nodes if node.op is reduce_splits] == ["sum"]
