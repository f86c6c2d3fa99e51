"""The place of an extreme of few long rows or columns is looked for in pieces: the first of equals wins, and NaN."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from genesis.codegen.cuda.gpu_model import H200, GpuModel
from genesis.ir import OPS, Graph
from genesis.ir.types import dtype_named
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.split_argmax import split_argmax
from tests.codegen.cuda.evaluate import evaluate
from tests.codegen.cuda.programs import an_input
from tests.codegen.cuda.run_interpreted import run_schedule

SHAPES = [((1, 300_001), 1), ((262_147,), 0), ((70_001, 4), 0), ((2, 9001, 15), 1), ((4111, 64), 0)]


SMALL = replace(H200, multiprocessors=8)
"""Of so few programs the interpreter runs all."""


def split(shape: tuple[int, ...], axis: int, dtype: str = "float32", name: str = "argmax",
          gpu: GpuModel = H200) -> Graph:
    """The program of one argmax after the pass."""
    x = an_input(0, shape, dtype_named(dtype))
    return split_argmax(Graph((x,), (OPS[name](x, axis=axis, keepdims=False),)), gpu)


def is_split(graph: Graph) -> bool:
    return sum(node.op.name in ("argmax", "argmin") for node in graph.nodes) > 1


@pytest.mark.parametrize(("shape", "axis", "pieces"), [
    *((shape, axis, True) for shape, axis in SHAPES), ((4096, 960), 0, True), ((40, 70_007), 1, True),
    ((5, 8000), 1, False),        # a program reads such a row in two rounds
    ((20_000, 1200), 0, False),   # 75 programs of 132 multiprocessors
    ((100, 70_007), 1, False),
    ((3000, 16), 0, False),       # no more than a launch takes
    ((400, 900), 0, False)])      # pieces would be a few rows
def test_pieces_are_looked_at_where_programs_are_few(shape: tuple[int, ...], axis: int, pieces: bool) -> None:
    assert is_split(split(shape, axis)) is pieces


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_the_first_of_equals_and_the_first_nan_win(shape: tuple[int, ...], axis: int, name: str) -> None:
    """Whatever piece they are in; what fills up the last piece never wins, not even where all elements are as large."""
    graph = split(shape, axis, name=name)
    worst = -math.inf if name == "argmax" else math.inf
    values = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(0)).float()
    length = shape[axis]
    nan = values.clone()
    nan.narrow(axis, length // 2, length // 2).fill_(math.nan)
    late = torch.full(shape, worst)
    late.narrow(axis, length - 1, 1).fill_(0.0)
    for data in (values, nan, late, torch.full(shape, worst)):
        got, = evaluate(graph, [data])
        assert torch.equal(got, getattr(torch, name)(data, axis))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers(dtype: str) -> None:
    graph = split((1, 300_001), 1, dtype)
    assert is_split(graph)
    kind = getattr(torch, dtype)
    for data in (torch.zeros(1, 300_001), torch.arange(300_001)[None] >= 299_999):
        got, = evaluate(graph, [data.to(kind)])
        assert got.tolist() == [int(data[0].int().argmax())]


@pytest.mark.parametrize(("shape", "axis"), [((1, 300_001), 1), ((70_001, 4), 0)])
def test_two_kernels_read_the_values_once(shape: tuple[int, ...], axis: int) -> None:
    """One makes each piece's extreme and its place, the other chooses among these."""
    schedule = fuse(split(shape, axis, gpu=SMALL))
    assert len(schedule.groups) == 2
    data = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    got, = run_schedule(schedule, [data])
    assert torch.equal(got, data.argmax(axis))
