"""Each rule of the IR is broken once; `verify` names the rule and the node."""

from __future__ import annotations

import pytest

from genesis.ir import OPS, Graph, number, tensor_type
from genesis.ir.node import Node, unique
from genesis.ir.parser import parse
from genesis.ir.types import float32, float64
from genesis.ir.verify import ATTRIBUTES, VerifyError, verify

F4 = tensor_type((4,), float32)


def leaf(index: int, type=F4) -> Node:
    return OPS["input"](index=index, type=type)


def forged(op: str, inputs: tuple[Node, ...], attrs: tuple = (), type=F4) -> Node:
    """A node that `make` would not build."""
    return unique(OPS[op], inputs, attrs, type)


def test_a_valid_graph_comes_back():
    graph = parse("graph(%x: f32[4]) {\n %y: f32[4] = exp(%x)\n update %x = %y\n return %y }")
    assert verify(graph) is graph


x, y = leaf(0), leaf(1)
BROKEN = [
    (Graph((y,), (y,)), "input 0 of the graph has index 1"),
    (Graph((x * 2.0,), ()), "is a node of mul, not of input"),
    (Graph((x,), (), ((y, x),)), "which is no input of the graph"),
    (Graph((x,), (), ((x, x * 2.0), (x, x * 3.0))), "input 0 is updated twice"),
    (Graph((x,), (), ((x, OPS["sum"](x, axes=(0,))),)), "is updated with f32[]"),
    (Graph((x,), (OPS["call"](x, graph=Graph((x,), (x,))),)), "output 0 is all results of call"),
    (Graph((), (x,)), "none of the graph's inputs"),
    (Graph((x,), (OPS["add"](x, OPS["scalar"](index=1, type=tensor_type((), float64, weak=True))),), (), 1),
     "the graph has 1 numbers"),
    (Graph((x,), (OPS["add"](x, number(2.5)),)), "a number leaf is left"),
    (Graph((), (unique(OPS["data"], (), (F4,), F4),)), "a data leaf is left"),
    (Graph((x,), (forged("exp", (x,), (), tensor_type((5,), float32)),)), "exp gives f32[4]"),
    (Graph((x,), (forged("sum", (x,), ((0,), 1), tensor_type((), float32)),)), "attribute keepdims of sum cannot be 1"),
    (Graph((x,), (forged("cumsum", (x,), (1, False, 0)),)), "axis=1 are not distinct dimensions of 1"),
    (Graph((x,), (forged("add", (x, leaf(1, tensor_type((5,), float32)))),)), "shapes"),
    (Graph((x,), (forged("exp", (x,), (3,)),)), "exp has 0 attributes, the node 1"),
    (Graph((), (forged("const", (), (2, F4)),)), "a constant of f32 holds a int"),
    (Graph((x,), (OPS["item"](OPS["call"](x, graph=Graph((y,), (y,))), index=0),)), "input 0 of the graph has index 1"),
]


@pytest.mark.parametrize(("graph", "message"), BROKEN, ids=[m for _, m in BROKEN])
def test_broken(graph, message):
    if "shapes" in message:
        graph = Graph((x, leaf(1, tensor_type((5,), float32))), graph.outputs)
    with pytest.raises(VerifyError) as error:
        verify(graph)
    assert message in str(error.value)


def test_the_message_shows_the_node():
    bad = Graph((x,), (forged("exp", (x,), (), tensor_type((5,), float32)),))
    with pytest.raises(VerifyError, match=r"%1: f32\[5\] = exp\(%0\)"):
        verify(bad)


def test_every_attribute_has_a_rule():
    assert {name for op in OPS.values() for name in op.attrs} <= set(ATTRIBUTES)
