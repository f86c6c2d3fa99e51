"""Random programs for property tests: every way in which values share memory, die, or are asked for twice."""

from __future__ import annotations

from hypothesis import strategies as st

from genesis.ir import OPS, Graph, Node, make, tensor_type
from genesis.ir.ops import control, leaves
from genesis.ir.types import float64

SIZES = (3, 8, 12)
"""Square matrices: 72, 512 and 1152 bytes, so that some fit a place of the arena exactly and some do not."""


@st.composite
def graphs(draw: st.DrawFn, longest: int = 14) -> Graph:
    """A program of views, pointwise ops, reductions, products and an op with several results.

    Its outputs may be inputs, views and one value twice; its updates may swap inputs or write views of them.
    """
    inputs = tuple(leaves.input(index=i, type=tensor_type((n, n), float64))
                   for i, n in enumerate(draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4))))
    values: list[Node] = list(inputs)
    for _ in range(draw(st.integers(0, longest))):
        values += draw(st.sampled_from(_STEPS))(draw, values)
    recent = st.sampled_from(values[::-1])
    outputs = tuple(draw(st.lists(recent, max_size=4)))
    updates = []
    for x in inputs:
        fitting = [v for v in values if v.type is x.type]
        if draw(st.booleans()):
            updates.append((x, draw(st.sampled_from(fitting[::-1]))))
    return Graph(inputs, outputs, tuple(updates))


def _matrix(draw: st.DrawFn, values: list[Node]) -> Node:
    return draw(st.sampled_from([v for v in values if v.type.ndim == 2][::-1]))


def _like(draw: st.DrawFn, values: list[Node], x: Node) -> Node:
    return draw(st.sampled_from([v for v in values if v.type is x.type][::-1]))


def _unary(draw: st.DrawFn, values: list[Node]) -> list[Node]:
    return [OPS[draw(st.sampled_from(["tanh", "neg", "sin"]))](draw(st.sampled_from(values[::-1])))]


def _binary(draw: st.DrawFn, values: list[Node]) -> list[Node]:
    x = draw(st.sampled_from(values[::-1]))
    return [OPS[draw(st.sampled_from(["add", "mul", "maximum"]))](x, _like(draw, values, x))]


def _transposed(draw: st.DrawFn, values: list[Node]) -> list[Node]:
    return [OPS["permute"](_matrix(draw, values), axes=(1, 0))]


def _flat(draw: st.DrawFn, values: list[Node]) -> list[Node]:
    """A view, or a copy when the operand is a transposed view."""
    x = _matrix(draw, values)
    return [OPS["reshape"](x, shape=(x.type.numel,))]


def _row_sums_spread(draw: st.DrawFn, values: list[Node]) -> list[Node]:
    """A reduction, and a view that repeats it."""
    x = _matrix(draw, values)
    sums = OPS["sum"](x, axes=(1,), keepdims=True)
    return [OPS["expand"](sums, shape=x.type.shape)]


def _product(draw: st.DrawFn, values: list[Node]) -> list[Node]:
    x = _matrix(draw, values)
    return [OPS["matmul"](x, _like(draw, values, x)) * 0.1]


def _assigned(draw: st.DrawFn, values: list[Node]) -> list[Node]:
    """The first row of one matrix over that of another."""
    x = _matrix(draw, values)
    n = x.type.shape[0]
    region = {"starts": (0, 0), "stops": (1, n), "steps": (1, 1)}
    return [OPS["assign"](x, OPS["slice"](_like(draw, values, x), **region), **region)]


def _standardized(draw: st.DrawFn, values: list[Node]) -> list[Node]:
    """An op whose result the CPU adopts from torch."""
    return [OPS["layer_norm"](_matrix(draw, values), ndim=1, eps=1e-5)]


def _several(draw: st.DrawFn, values: list[Node]) -> list[Node]:
    """The results of one op with several, of which some may stay unused."""
    x = _matrix(draw, values)
    node = OPS["sgd"](0.1, 0.9, 0.0, 0.01, *(_like(draw, values, x) for _ in range(6)), count=2, momentum=True,
                      nesterov=False)
    return [make(control.item, (node,), (i,)) for i in draw(st.sets(st.integers(0, 3), min_size=1))]


_STEPS = (_unary, _binary, _binary, _transposed, _flat, _row_sums_spread, _product, _assigned, _standardized, _several)
