"""The text of a graph: print → parse gives the equal graph; a mistake is named by line and column."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genesis.ir import OPS, Graph, literal, make, tensor_type
from genesis.ir.ops.leaves import full
from genesis.ir.parser import ParseError, parse
from genesis.ir.printer import print_graph
from genesis.ir.source import TextSource
from genesis.ir.types import DTYPES, Device, bfloat16, float32, int64
from genesis.ir.verify import verify
from tests.ops.test_registry import TESTED, build, dtypes, parts

TRAINING_STEP = """\
graph(%0: f32[4,8], %1: f32[8]; 2 numbers) {
  %2: f32[4,8] = expand(%1, shape=(4,8))
  %3: f32[4,8] = add(%0, %2)                              # train.py:41 Block.forward
  %4: f64~[] = scalar(index=1)
  %5: f32[4,8] = mul(%3, %4)
  %6: bool[4,8] = gt(%5, -inf)
  update %0 = %5
  return %6, 2.5
}"""


def test_golden():
    assert print_graph(parse(TRAINING_STEP)) == TRAINING_STEP


def test_an_empty_graph():
    assert parse("graph() { return }") == Graph((), ())
    assert print_graph(Graph((), ())) == "graph() {\n  return\n}"


@pytest.mark.parametrize("name", TESTED)
def test_every_op_survives_print_and_parse(name):
    """The very same nodes come back, for every sample; verify finds nothing wrong with them."""
    op = OPS[name]
    for position, case in enumerate(op.samples.cases):
        built = build(case, dtypes(op)[-1], "contiguous", position)
        inputs = tuple(OPS["input"](index=i, type=x.type) for i, x in enumerate(
            x for x in built.operands if x.op.name == "input"))
        renumbered = iter(inputs)
        operands = tuple(next(renumbered) if x.op.name == "input" else x for x in built.operands)
        graph = Graph(inputs, tuple(parts(op(*operands, **case.attributes))))
        verify(graph)
        again = parse(str(graph))
        assert again == graph
        assert again.nodes == graph.nodes
        assert str(again) == str(graph)


@pytest.mark.parametrize("value", [0.1, -0.0, 0.0, 1e-300, math.inf, -math.inf, math.nan, 5e-324, 3, -7, True, 2**62])
def test_literals_keep_every_bit(value):
    x = OPS["input"](index=0, type=tensor_type((2,), float32 if type(value) is float else int64))
    graph = Graph((x,), (make(OPS["add"], (x, literal(value))), full((2,), value, float32)))
    assert parse(str(graph)) == graph


def test_signed_zeros_and_nans_stay_apart_and_together():
    """0.0 == -0.0 must not make two constants one; NaN != NaN must not make one constant two."""
    assert full((2,), 0.0, float32) is not full((2,), -0.0, float32)
    assert full((2,), float("nan"), float32) is full((2,), float(np.float32("nan")), float32)
    assert literal(float("nan")) is literal(math.nan)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_types_of_every_dtype_and_device(dtype, device):
    x = OPS["input"](index=0, type=tensor_type((3,), dtype, Device(device)))
    iota = OPS["iota"](shape=(3,), axis=0, dtype=int64, device=Device(device))
    graph = Graph((x,), (OPS["cast"](x, dtype=bfloat16), iota))
    assert parse(str(graph)) == graph


def test_a_called_graph_is_printed_inside():
    x = OPS["input"](index=0, type=tensor_type((3,), float32))
    inner = Graph((x,), (x * 2.0,))
    graph = Graph((x,), (OPS["item"](OPS["call"](x + 1.0, graph=inner), index=0),))
    verify(graph)
    assert print_graph(graph, sources=False) == """\
graph(%0: f32[3]) {
  %1: f32[3] = add(%0, 1.0)
  %2: (f32[3],) = call(%1, graph=graph(%0: f32[3]) {
    %1: f32[3] = mul(%0, 2.0)
    return %1
  })
  %3: f32[3] = item(%2, index=0)
  return %3
}"""
    assert parse(str(graph)) == graph


def test_sources_come_back_as_text():
    graph = parse("""graph(%x: f32[7]) {
      # about the whole
      %y: f32[7] = neg(%x) # net.py:7 Net.forward
      return %y }""")
    assert isinstance(graph.outputs[0].source, TextSource)
    assert str(graph.outputs[0].source) == "net.py:7 Net.forward"


@pytest.mark.parametrize(("old", "new", "message"), [
    ("f32[4,8] = add", "f32[4] = add", "line 3, column 7: add gives f32[4,8], not f32[4]"),
    ("add(", "ad(", "line 3, column 18: no op has this name"),
    ("add(%0, %2)", "add(%0, %1)", "line 3, column 18: add: shapes (4, 8) and (8,) differ"),
    ("shape=(4,8))", "shape=(4,8), axis=0)", "line 2, column 42: expand has the attributes shape, each once"),
    ("(%1, shape=(4,8))", "(%1)", "line 2, column 18: expand needs the attribute shape"),
    ("%3: f32", "%2: f32", "line 3, column 3: %2 is defined twice"),
    ("gt(%5", "gt(%9", "line 6, column 22: %9 is not defined"),
    ("update %0 =", "update %0 -", "line 7, column 13: '-' begins nothing"),
    ("f32[8];", "f33[8];", "line 1, column 25: unknown dtype 'f33'"),
    ("2 numbers", "two numbers", "line 1, column 33: expected how many numbers, found two"),
])
def test_mistakes_are_located(old, new, message):
    with pytest.raises(ParseError) as error:
        parse(TRAINING_STEP.replace(old, new))
    assert str(error.value).startswith(message)
    assert str(error.value).splitlines()[-1].endswith("^")
