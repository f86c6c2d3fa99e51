"""Canonicalize's rules for pointwise ops and reductions: what needs no computing, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from genesis.ir.node import Node, Op, literal, make
from genesis.ir.numbers import Number, fold_numbers
from genesis.ir.numbers import cast as cast_number
from genesis.ir.ops import leaves, pointwise, reduction
from genesis.ir.sym_int import SymInt
from genesis.ir.types import DType, float32

Rule = Callable[[Node], "Node | None"]


def fold(node: Node) -> Node | None:
    """A pointwise op on literals is a literal; one that raises is left to raise when the plan runs."""
    inputs = node.inputs
    for x in inputs:
        if x.op is not leaves.const or not x.type.weak:
            return None
    if not inputs or _open(inputs):
        return None
    if node.op is pointwise.cast:
        return _converted(inputs[0]["value"], node)
    if not node.type.weak:
        return None
    try:
        value = fold_numbers(node.op, *(x["value"] for x in inputs), **node.attributes)
    except ArithmeticError:
        return None
    return literal(_PLAIN[node.type.dtype.kind](value))  # maximum(2, 1.5) is the float 2.0


def _open(constants: Iterable[Node]) -> bool:
    """Is one of the constants a size that is not fixed? A kernel computes with it when it knows it."""
    return any(isinstance(x["value"], SymInt) for x in constants)


_PLAIN: Final = {"bool": bool, "int": int, "float": float}


# Casts

def _cast(node: Node) -> Node | None:
    """A cast of a constant is a constant; a cast from a dtype that holds every value of the one before needs no stop
    there."""
    x, target = node.inputs[0], node.type.dtype
    if x.type.weak:
        return None
    if x.type.dtype is target:
        return x
    if x.op is leaves.const:
        return None if _open((x,)) else _converted(cast_number(x["value"], x.type.dtype), node)
    if x.op is pointwise.cast and not x.inputs[0].type.weak and holds(x.type.dtype, x.inputs[0].type.dtype):
        return pointwise.cast(x.inputs[0], dtype=target)
    return None


def _converted(value: Number, node: Node) -> Node | None:
    """The constant of a cast's type, where Python converts the number as any device would."""
    target = node.type.dtype
    if target.kind == "int" and not (math.isfinite(value) and target.min <= int(value) <= target.max):
        return None
    if target.kind == "float" and type(value) is int and abs(value) > 2**53:  # would be rounded twice
        return None
    return leaves.full(node.type.shape, cast_number(value, target), target, node.type.device)


_SMALL = frozenset({"uint8", "int8", "bool"})
_EXACT: Final = {  # dtype: the dtypes whose every value it holds
    "float64": _SMALL | {"float32", "float16", "bfloat16", "int32", "int16"},
    "float32": _SMALL | {"float16", "bfloat16", "int16"},
    "float16": _SMALL,
    "bfloat16": _SMALL,
    "int64": _SMALL | {"int32", "int16"},
    "int32": _SMALL | {"int16"},
    "int16": _SMALL,
    "int8": {"bool"},
    "uint8": {"bool"},
}


def holds(larger: DType, smaller: DType) -> bool:
    """Whether `larger` has every value of `smaller`."""
    return smaller.name in _EXACT.get(larger.name, ())


# Constants as operands

def _of_constants(node: Node) -> Node | None:
    """A sum, difference, product or quotient of float constants, as devices compute it: dtypes of 16 bits in float32.

    Python's float64 result rounded to float32 is the float32 result: 53 bits are more than 2 · 24 + 2 (Figueroa 1995).
    """
    for x in node.inputs:
        if x.op is not leaves.const:
            return None
    if node.type.weak or node.type.dtype.kind != "float" or _open(node.inputs):
        return None
    computed_in = node.type.dtype if node.type.dtype.itemsize == 8 else float32
    stored = [x["value"] if x.type.weak else cast_number(x["value"], node.type.dtype)
              for x in node.inputs]
    value = fold_numbers(node.op, *(cast_number(x, computed_in) for x in stored))
    found = leaves.full(node.type.shape, cast_number(cast_number(value, computed_in), node.type.dtype), node.type.dtype,
                        node.type.device)
    return None if found is node else found


def is_constant(x: Node, value: float) -> bool:
    """Whether every element of x is this number; 0 is not -0.0."""
    return x.op is leaves.const and not _open((x,)) and x["value"] == value and not (
        value == 0 and math.copysign(1.0, float(x["value"])) < 0)


def _neutral(value: float, left: bool = False, floats: bool = True) -> Rule:
    """op(x, value) → x, and op(value, x) → x if `left`."""
    def rule(node: Node) -> Node | None:
        a, b = node.inputs
        if node.type.weak or not (floats or node.type.dtype.kind != "float"):
            return None
        if is_constant(b, value) and a.type is node.type:
            return a
        return b if left and is_constant(a, value) and b.type is node.type else None
    return rule


def _times_zero(node: Node) -> Node | None:
    """0, for integers and bool only: floats have NaN, infinity and -0.0."""
    if node.type.weak or node.type.dtype.kind == "float" or not any(is_constant(x, 0) for x in node.inputs):
        return None
    return leaves.zeros_like(node)


def _number_last(node: Node) -> Node | None:
    """2.0 · x → x · 2.0, so that both are one node."""
    a, b = node.inputs
    return make(node.op, (b, a), node.attrs) if a.type.weak and not b.type.weak else None


def _weak_constant(node: Node) -> Node | None:
    """A constant operand of full shape is the same number as a literal, when every dtype holds it exactly."""
    a, b = node.inputs
    if (a.op is not leaves.const and b.op is not leaves.const) or node.type.weak or node.type.dtype.kind != "float":
        return None
    if _is_small_integer(a) and not b.type.weak and b.op is not leaves.const:
        return make(node.op, (literal(float(a["value"])), b), node.attrs)
    if _is_small_integer(b) and not a.type.weak and a.op is not leaves.const:
        return make(node.op, (a, literal(float(b["value"]))), node.attrs)
    return None


def _is_small_integer(x: Node) -> bool:
    return (x.op is leaves.const and not x.type.weak and not _open((x,))
            and float(x["value"]).is_integer() and abs(x["value"]) <= 256)


def _power(node: Node) -> Node | None:
    """x¹ is x and x² is x · x, as torch computes them."""
    x, exponent = node.inputs
    if node.type.weak or x.type is not node.type or not exponent.type.weak:
        return None
    if is_constant(exponent, 1):
        return x
    return make(pointwise.mul, (x, x)) if is_constant(exponent, 2) else None


# Repetition

def _undone(node: Node) -> Node | None:
    """op(op(x)) → x."""
    x = node.inputs[0]
    return x.inputs[0] if x.op is node.op and x.inputs[0].type is node.type else None


def _absolute(node: Node) -> Node | None:
    """||x|| and |-x| are |x|."""
    x = node.inputs[0]
    if node.type.weak:
        return None
    if x.op is node.op:
        return x
    return make(node.op, x.inputs) if x.op is pointwise.neg else None


def _idempotent(node: Node) -> Node | None:
    """op(x, x) → x."""
    a, b = node.inputs
    return a if a is b and a.type is node.type else None


def _choice(node: Node) -> Node | None:
    """A branch, when both are the same or the condition is known."""
    condition, a, b = node.inputs
    if a is b:
        return a
    if condition.op is not leaves.const:
        return None
    chosen = a if condition["value"] else b
    if not chosen.type.weak:
        return chosen
    return _converted(chosen["value"], node) if chosen.op is leaves.const else None  # a number becomes a tensor here


# Reductions

def _over_nothing(node: Node) -> Node | None:
    """A reduction over no axes is its operand."""
    x = node.inputs[0]
    return x if not node["axes"] and x.type is node.type else None


def _sum_of_zeros(node: Node) -> Node | None:
    """0, also when there are none of them."""
    x = node.inputs[0]
    return leaves.zeros_like(node) if is_constant(x, 0) or not x.type.numel else None


RULES: Final[dict[Op, tuple[Rule, ...]]] = {
    pointwise.cast: (_cast,),
    pointwise.add: (_of_constants, _number_last, _neutral(0, left=True, floats=False), _weak_constant),
    pointwise.sub: (_of_constants, _neutral(0), _weak_constant),
    pointwise.mul: (_of_constants, _number_last, _neutral(1, left=True), _times_zero, _weak_constant),
    pointwise.div: (_of_constants, _neutral(1), _weak_constant),
    pointwise.pow: (_power,),
    pointwise.neg: (_undone, _of_constants),
    pointwise.bitwise_not: (_undone,),
    pointwise.abs: (_absolute,),
    pointwise.maximum: (_number_last, _idempotent),
    pointwise.minimum: (_number_last, _idempotent),
    pointwise.bitwise_and: (_number_last, _idempotent),
    pointwise.bitwise_or: (_number_last, _idempotent),
    pointwise.bitwise_xor: (_number_last,),
    pointwise.eq: (_number_last,),
    pointwise.ne: (_number_last,),
    pointwise.where: (_choice,),
    reduction.sum: (_over_nothing, _sum_of_zeros),
    reduction.prod: (_over_nothing,),
    reduction.max: (_over_nothing,),
    reduction.min: (_over_nothing,),
}
