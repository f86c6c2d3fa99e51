"""One form for programs that mean the same: control markers gone, constants folded, views merged.

Rules are rows of a table, by op. Each must keep the value bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, literal, make
from genesis.ir.numbers import fold_numbers
from genesis.ir.ops import control, leaves, movement, pointwise

Rule = Callable[[Node], Node | None]


def canonicalize(graph: Graph) -> Graph:
    """Apply the rules to every node, operands first, until nothing changes.

        before: %1: f32[2,3] = reshape(%0, shape=(2,3))    after: %1: f32[6] = reshape(%0, shape=(6,))
                %2: f32[6] = reshape(%1, shape=(6,))              (or %0 itself, if it has that shape)
    """
    while True:
        after = rewrite(graph, _apply)
        if after.roots == graph.roots:
            return after
        graph = after


def _apply(node: Node) -> Node | None:
    for rule in _RULES.get(node.op.name, ()):
        found = rule(node)
        if found is not None and found is not node:
            again = _apply(found)
            return found if again is None else again
    return _fold(node) if node.op.kind == "pointwise" else None


def _fold(node: Node) -> Node | None:
    """A pointwise op on literals is a literal, unless it leaves the range of a Python float."""
    inputs = node.inputs
    if not inputs or not all(x.op is leaves.const and x.type.weak for x in inputs):
        return None
    if node.op is pointwise.cast:
        return make(leaves.const, (), (fold_numbers("cast", inputs[0]["value"], dtype=node["dtype"]), node.type))
    if not node.type.weak or node.op is pointwise.neg and inputs[0]["value"] == 0:
        return None
    return literal(fold_numbers(node.op.name, *(x["value"] for x in inputs), **node.attributes))


def _first(node: Node) -> Node:
    """The value itself: the op only marks it."""
    return node.inputs[0]


def _memory(node: Node) -> Node:
    return node.inputs[1]


def _unchanged(node: Node) -> Node | None:
    """The op does nothing when the type stays and no element moves."""
    return node.inputs[0] if node.type is node.inputs[0].type else None


def _merge(node: Node) -> Node | None:
    """op(op(x, a), b) → op(x, b): the last shape counts."""
    x = node.inputs[0]
    return make(node.op, x.inputs, node.attrs) if x.op is node.op else None


def _permute(node: Node) -> Node | None:
    axes, x = node["axes"], node.inputs[0]
    if axes == tuple(range(len(axes))):
        return x
    if x.op is movement.permute:
        inner = x["axes"]
        return movement.permute(x.inputs[0], axes=tuple(inner[a] for a in axes))
    return None


def _of_constant(node: Node) -> Node | None:
    """A movement of a constant is a constant."""
    x = node.inputs[0]
    if x.op is leaves.const and not x.type.weak:
        return make(leaves.const, (), (x["value"], node.type))
    return None


def _cast(node: Node) -> Node | None:
    x, target = node.inputs[0], node.type.dtype
    if x.type.weak:
        return None
    if x.type.dtype is target:
        return x
    if x.op is leaves.const:
        return make(leaves.const, (), (fold_numbers("cast", x["value"], dtype=target), node.type))
    if x.op is pointwise.cast and not x.inputs[0].type.weak and _holds(x.type.dtype.name, x.inputs[0].type.dtype.name):
        return pointwise.cast(x.inputs[0], dtype=target)
    return None


_EXACT = {  # dtype: the dtypes whose every value it holds
    "float64": {"float32", "float16", "bfloat16", "int32", "int16", "int8", "uint8", "bool"},
    "float32": {"float16", "bfloat16", "int16", "int8", "uint8", "bool"},
    "int64": {"int32", "int16", "int8", "uint8", "bool"},
    "int32": {"int16", "int8", "uint8", "bool"},
    "int16": {"int8", "uint8", "bool"},
}


def _holds(wide: str, narrow: str) -> bool:
    return narrow in _EXACT.get(wide, ())


def _is_constant(x: Node, value: float) -> bool:
    return x.op is leaves.const and x["value"] == value


def _times_one(node: Node) -> Node | None:
    a, b = node.inputs
    if node.type.weak:
        return None
    if _is_constant(b, 1) and a.type is node.type:
        return a
    return b if _is_constant(a, 1) and b.type is node.type else None


def _over_one(node: Node) -> Node | None:
    a, b = node.inputs
    return a if _is_constant(b, 1) and a.type is node.type else None


def _double_negation(node: Node) -> Node | None:
    x = node.inputs[0]
    return x.inputs[0] if x.op is pointwise.neg else None


def _weak_constant(node: Node) -> Node | None:
    """A constant operand of full shape is the same number as a literal, when every dtype holds it exactly."""
    if node.type.weak or node.type.dtype.kind != "float" or node.op is pointwise.where:
        return None
    inputs = list(node.inputs)
    strong = [x for x in inputs if not x.type.weak]
    for i, x in enumerate(inputs):
        exact = x.op is leaves.const and float(x["value"]).is_integer() and abs(x["value"]) <= 256
        if exact and not x.type.weak and len(strong) > 1 and any(
                y is not x and y.op is not leaves.const for y in strong):
            inputs[i] = literal(float(x["value"]))
    return make(node.op, tuple(inputs), node.attrs) if tuple(inputs) != node.inputs else None


def _no_axes(node: Node) -> Node | None:
    """A reduction over nothing is its operand."""
    x = node.inputs[0]
    return x if not node["axes"] and x.type is node.type else None


def _sum_of_zero(node: Node) -> Node | None:
    x = node.inputs[0]
    if _is_constant(x, 0) and x.type.numel:
        return make(leaves.const, (), (x["value"], node.type))
    return None


def _expand_of_expand(node: Node) -> Node | None:
    return _merge(node)


def _single_concat(node: Node) -> Node | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _whole_region(node: Node) -> Node | None:
    base, value = node.inputs
    return value if value.type is base.type else None


_RULES: dict[str, tuple[Rule, ...]] = {
    "watch": (_first,),
    "stop_gradient": (_first,),
    "known": (_memory,),
    "overwritten": (_memory,),
    "reshape": (_unchanged, _merge, _of_constant),
    "expand": (_unchanged, _expand_of_expand, _of_constant),
    "permute": (_permute, _of_constant),
    "slice": (_unchanged, _of_constant),
    "flip": (_of_constant,),
    "concat": (_single_concat,),
    "assign": (_whole_region,),
    "cast": (_cast,),
    "mul": (_times_one, _weak_constant),
    "add": (_weak_constant,),
    "sub": (_weak_constant,),
    "div": (_over_one, _weak_constant),
    "neg": (_double_negation,),
    "sum": (_no_axes, _sum_of_zero),
    "max": (_no_axes,),
    "min": (_no_axes,),
}

