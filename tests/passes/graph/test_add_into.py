"""Rows that are added to zeros, which are added to another value, are added to that."""

from __future__ import annotations

import torch

from genesis.engine.backends import backend_named
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import pointwise
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.indexing import index_add
from genesis.ir.ops.leaves import zeros_like
from genesis.ir.types import bfloat16, float32, int64
from genesis.passes.graph.add_into import add_into
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.programs import an_input

ROWS, SIZE = 4096, 256
operands = an_input(0, (64, ROWS), bfloat16), an_input(1, (64, SIZE), bfloat16), an_input(2, (300,), int64), an_input(
    3, (300, SIZE), float32)


def gradients() -> tuple[Node, Node]:
    """Those of a tied table: a product, and the rows that were looked up."""
    logits, x, ids, rows = operands
    product = pointwise.cast(matmul(swap_last(logits), x), dtype=float32)
    return product, index_add(zeros_like(product), ids, rows, axis=0)


def test_a_tied_tables_gradient() -> None:
    product, table = gradients()
    for total in (pointwise.add(product, table), pointwise.add(table, product)):
        wanted = index_add(product, *operands[2:], axis=0)
        assert add_into(Graph(operands, (total,))).outputs == (wanted,)


def test_no_table_of_zeros_is_left() -> None:
    product, table = gradients()
    schedule = run_passes(Graph(operands, (pointwise.add(product, table),)), backend_named("h200")).schedule
    ops = [{x.op.name for x in group.nodes} for group in schedule.groups]
    assert not any("full" in names and group.outputs[0].shape == (ROWS, SIZE)
                   for names, group in zip(ops, schedule.groups, strict=True))
    assert "add" not in ops[-1]


def test_what_others_read_stays() -> None:
    product, table = gradients()
    total = pointwise.add(product, table)
    for outputs in ((total, table), (total, product)):
        graph = Graph(operands, outputs)
        assert add_into(graph) is graph
    small = index_add(zeros_like(an_input(0, (10, 4), float32)), an_input(1, (3,), int64), an_input(2, (3, 4), float32),
                      axis=0)
    graph = Graph((), (pointwise.add(pointwise.exp(an_input(0, (10, 4), float32)), small),))
    assert add_into(graph) is graph


def small_tables() -> tuple[Node, Node]:
    """Rows of two indices, each added to zeros of its own: two experts' gradients."""
    first, second = (index_add(zeros_like(an_input(0, (10, 4), float32)), an_input(i, (3,), int64),
                               an_input(i + 1, (3, 4), float32), axis=0) for i in (1, 3))
    return first, second


def test_without_a_gpu_small_tables_are_added_one_after_the_other() -> None:
    first, second = small_tables()
    graph = Graph((), (pointwise.add(first, second),))
    assert add_into(graph) is graph, "a kernel adds both up where the sum is read"
    assert add_into(graph, on_gpu=False).outputs == (index_add(first, *second.inputs[1:], axis=0),)
    for outputs in ((pointwise.add(first, second), first), (pointwise.add(first, second), second)):
        graph = Graph((), outputs)
        assert add_into(graph, on_gpu=False) is graph, "somebody else reads one"


def test_a_cpu_plan_of_rows_adds_in_place() -> None:
    first, second = small_tables()
    inputs = tuple(x for table in (first, second) for x in table.inputs[1:])
    graph = Graph(tuple(an_input(i, x.shape, x.dtype) for i, x in enumerate(inputs)), ())
    tables = [index_add(zeros_like(an_input(9, (10, 4), float32)), *graph.inputs[i:i + 2], axis=0) for i in (0, 2)]
    graph = Graph(graph.inputs, (pointwise.add(*tables),))
    stages = run_passes(graph, backend_named("cpu"), last="lower").stages
    calls = [call.label.split(" ")[0] for call in stages["code"][0]]
    assert calls.count("index_add") == 2 and "add" not in calls, calls


def test_values() -> None:
    """The same sums in another order."""
    from tests.evaluate import evaluate
    product, table = gradients()
    graph = Graph(operands, (pointwise.add(product, table),))
    generator = torch.Generator().manual_seed(0)
    data = [torch.randn(64, ROWS, generator=generator).numpy(), torch.randn(64, SIZE, generator=generator).numpy(),
            torch.randint(0, ROWS, (300,), generator=generator).numpy(),
            torch.randn(300, SIZE, generator=generator).numpy()]
    feeds = {x: value.astype(x.dtype.numpy) for x, value in zip(operands, data, strict=True)}
    want, = evaluate(graph.roots, feeds)
    found, = evaluate(add_into(graph).roots, feeds)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(want), rtol=1e-6, atol=1e-5)
