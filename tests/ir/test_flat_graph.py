"""What is kept of a compiled program makes the same graph again, and holds no node."""

from __future__ import annotations

import gc
import weakref

import pytest

from genesis.engine.compilation import compile_graph
from genesis.ir.flat_graph import FlatGraph
from genesis.ir.graph import Graph, rewrite, substitute
from genesis.ir.node import Node
from genesis.ir.parser import parse
from genesis.ir.printer import print_graph
from genesis.ir.types import cpu

PROGRAM = """graph(%0: f32[4,3], %1: f32[3], %2: f32[7]) {
  %3: f32[3,4] = permute(%0, axes=(1, 0))
  %4: f32[4,3] = mul(%0, -0.0)  # a.py:3 f
  %5: f32[1,3] = reshape(%1, shape=(1, 3))
  %6: f32[4,3] = expand(%5, shape=(4, 3))
  %7: f32[4,3] = add(%4, %6)
  %8: f32[4,3] = mul(%7, %7)  # a.py:5 g
  update %0 = %8
  return %3, %8
}"""


def test_it_gives_the_graph_again_node_for_node() -> None:
    graph = parse(PROGRAM)
    again = FlatGraph.of(graph).graph()
    assert again == graph and again.nodes == graph.nodes  # equal nodes are one node


def test_it_gives_a_graph_that_is_gone() -> None:
    graph = parse(PROGRAM)
    flat, text, last = FlatGraph.of(graph), print_graph(graph), weakref.ref(graph.outputs[1])
    del graph
    assert last() is None, "it holds nodes"
    assert print_graph(flat.graph()) == text


def test_a_plan_keeps_no_node_of_its_program() -> None:
    graph = parse(PROGRAM)
    compiled, text, last = compile_graph(graph, cpu), print_graph(graph), weakref.ref(graph.outputs[1])
    compiled.forget_passed()
    del graph
    gc.collect()
    assert last() is None
    assert print_graph(compiled.graph) == text


@pytest.mark.parametrize("change", [lambda graph: substitute(graph, {node: node for node in graph.nodes}),
                                    lambda graph: rewrite(graph, lambda node: None)], ids=["substitute", "rewrite"])
def test_a_pass_that_changes_nothing_gives_the_same_graph(change: object) -> None:
    graph = parse(PROGRAM)
    assert change(graph) is graph  # type: ignore[operator]


def test_a_rewrite_gives_what_it_makes_the_line_of_the_node() -> None:
    def doubled(node: Node) -> Node | None:
        from genesis.ir.node import make
        from genesis.ir.ops import pointwise
        return make(pointwise.add, (node.inputs[0], node.inputs[0])) if node.op is pointwise.mul else None
    graph: Graph = rewrite(parse(PROGRAM), doubled)
    lines = [str(node.source) for node in graph.nodes if node.op.name == "add" and node.source]
    assert lines == ["a.py:3 f", "a.py:5 g"]
