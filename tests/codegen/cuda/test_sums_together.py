"""The small sums of many layers' columns are one launch."""

from __future__ import annotations

import pytest
import torch

import genesis
from genesis import engine
from genesis.codegen.cuda.emit import emit
from genesis.engine.backends import FakeCUDABackend
from genesis.ir import Graph, Node
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.contraction import matmul
from genesis.ir.types import bfloat16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.sums_together import FEWEST, sums_together
from genesis.passes.groups import Schedule
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import an_input, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule

SHAPES = ((528, 37), (33, 2), (128, 64), (99, 40), (260, 33), (32, 96), (129, 5), (127, 32))
"""Rows of less than a block, of one and of several; columns of less than a program, of one and of more."""


def rounded(x: Node) -> Node:
    """A bias's gradient in autocast."""
    return p.cast(p.cast(x, dtype=bfloat16), dtype=float32)


def parts(*shapes: tuple[int, int]) -> tuple[Node, ...]:
    """Matrices of parts, one behind the other."""
    return tuple(an_input(i, shape) for i, shape in enumerate(shapes))


def together(*outputs: Node) -> Schedule:
    """The kernels of these results."""
    inputs = {x for output in outputs for x in _leaves(output)}
    graph = Graph(tuple(sorted(inputs, key=lambda x: x["index"])), outputs)
    return sums_together(fuse(decomposed(graph)))


def _leaves(node: Node) -> set[Node]:
    return {node} if node.op.name == "input" else set().union(*map(_leaves, node.inputs))


def test_sums_of_unlike_matrices_are_one_launch() -> None:
    """Every other one is rounded to 16 bits on the way, as a bias's gradient is in autocast."""
    given = parts(*SHAPES)
    sums = [r.sum(x, axes=(0,)) for x in given]
    schedule = together(*(rounded(x) if i % 2 else x for i, x in enumerate(sums)))
    assert kinds(schedule) == ["sums_of_columns"]
    data = [some(x) for x in given]
    for i, (x, found) in enumerate(zip(data, run_schedule(schedule, data), strict=True)):
        want = x.double().sum(0)
        if i % 2:
            assert torch.equal(found, found.bfloat16().float())
        torch.testing.assert_close(found.double(), want, rtol=4e-3 if i % 2 else 1e-5, atol=1e-4)


def test_the_kernel_compiles_for_hopper() -> None:
    sums = [r.sum(x, axes=(0,)) for x in parts(*SHAPES)]
    group, = together(*sums[:-1], rounded(sums[-1])).groups
    assert compile_cubin(emit(group))[:4] == b"\x7fELF"


def test_sums_that_others_wait_for_are_a_launch_of_their_own() -> None:
    """What a product reads is there before it: the others may be later."""
    *given, matrix = parts(*[(64, 32)] * 2 * FEWEST, (32, 16))
    sums = [r.sum(x, axes=(0,)) for x in given]
    rows = [matmul(movement.reshape(x, shape=(1, 32)), matrix) for x in sums[FEWEST:]]
    schedule = together(*sums, *rows)
    assert kinds(schedule).count("sums_of_columns") == 2 and kinds(schedule).count("loop") == 0
    data = [some(x) for x in (*given, matrix)]
    want = [x.double().sum(0) for x in data[:-1]]
    want += [x[None] @ data[-1].double() for x in want[FEWEST:]]
    for value, found in zip(want, run_schedule(schedule, data), strict=True):
        torch.testing.assert_close(found.double().reshape(value.shape), value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(16, 32), (1 << 14, 256)], ids=["few rows", "large"])
def test_few_sums_and_large_ones_stay_where_they_are(shape: tuple[int, int]) -> None:
    others = [r.sum(x, axes=(0,)) for x in parts(*[shape] * FEWEST)]
    few = [r.sum(x, axes=(0,)) for x in parts(*[(64, 32)] * (FEWEST - 1))]
    assert set(kinds(together(*others))) == set(kinds(together(*few))) == {"loop"}


def test_one_plan_has_the_sums_of_any_number_of_rows() -> None:
    def sums(rows: int) -> list[genesis.Tensor]:
        data = [genesis.ones(rows, 5 + i, device="cuda") * (i + 1) for i in range(FEWEST + 1)]
        genesis.eval(*data)
        found = [x.sum(0) for x in data]
        genesis.eval(*found)
        return found

    with FakeCUDABackend(HostDriver(memory_bytes=1 << 24)):
        origins = []
        for rows in (150, 140, 157):
            found = sums(rows)
            plan = engine.last_plan()
            assert plan is not None and [step.label for step in plan.plan.steps] == [f"sums_of_columns ×{FEWEST + 1}"]
            origins.append(plan.origin)
            assert [x.tolist() for x in found] == [[(i + 1.0) * rows] * (5 + i) for i in range(FEWEST + 1)]
        assert origins[1:] == ["other size"] * 2
