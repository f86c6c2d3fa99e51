"""Reductions of what lies turned in memory: in memory's order, with the same results."""

from __future__ import annotations

import pytest
import torch

from genesis.ir import Graph
from genesis.ir.ops import control, movement, reduction, sorting
from genesis.ir.ops import pointwise as p
from genesis.passes.fusion.fuse import fuse
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


def test_one_of_several_results_is_reduced_as_it_is() -> None:
    x = an_input(0, (6, 40))
    values = control.item(sorting.sort(x, axis=1, descending=False), index=0)
    graph = Graph((x,), (reduction.sum(p.mul(values, 3.0), axes=(1,)),))
    assert reduce_in_order(graph).roots == graph.roots
