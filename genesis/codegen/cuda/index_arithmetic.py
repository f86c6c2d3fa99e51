"""Integers that are computed from coordinates alone, as index expressions.

What a formula makes of `iota` with numbers (where a window begins, which windows see an element) is then part of an
address: it needs no 64 bits, no check that it lies inside, and the compiler sees which elements are neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from genesis.ir.node import Node
from genesis.ir.types import int32, int64
from genesis.passes.fusion.index_map import Expr, add, constant, floordiv, mod_, scale
from genesis.passes.fusion.views import Point, pieces

LIMIT: Final = 2**31
"""Expressions are computed in 32 bits: their values are less than this, and at least minus this."""


def index_expression(node: Node, point: Point) -> Expr | None:
    """An integer node's element at a point; None where it is more than sums, multiples, quotients and remainders by
    numbers of coordinates and loaded indices."""
    if node.dtype not in (int32, int64):
        return None
    name = node.op.name
    if name == "iota":
        found: Expr | None = point[node["axis"]]
    elif name == "const":
        found = constant(node["value"]) if isinstance(node["value"], int) else None
    elif node.op.kind == "movement":
        first, *others = pieces(node, point)
        plain = first.operand is not None and not first.bounds and not others
        found = index_expression(first.operand, first.point) if plain and first.operand is not None else None
    elif name == "cast":
        found = index_expression(node.inputs[0], point)
    elif name in _ARITHMETIC:
        operands = [index_expression(x, () if x.type.weak else point) for x in node.inputs]
        known = [x for x in operands if x is not None]
        found = _ARITHMETIC[name](*known) if len(known) == len(operands) else None
    else:
        return None
    return found if found is not None and _fits(found) else None


def known_comparison(name: str, a: Expr, b: Expr) -> bool | None:
    """What a comparison of two expressions gives at every point; None where points differ."""
    low, high = add(a, scale(b, -1)).range
    match name:
        case "lt" | "ge":
            found = True if high < 0 else False if low >= 0 else None
        case "le" | "gt":
            found = True if high <= 0 else False if low > 0 else None
        case _:
            found = False if low > 0 or high < 0 else True if low == high == 0 else None
    return found if found is None or name in ("lt", "le", "eq") else not found


def _fits(e: Expr) -> bool:
    low, high = e.range
    return low >= -LIMIT and high < LIMIT


def _product(a: Expr, b: Expr) -> Expr | None:
    if b.is_constant:
        return scale(a, b.constant)
    return scale(b, a.constant) if a.is_constant else None


def _by_number(divide: Callable[[Expr, int], Expr]) -> Callable[[Expr, Expr], Expr | None]:
    return lambda a, b: divide(a, b.constant) if b.is_constant and b.constant > 0 else None


def _larger(a: Expr, b: Expr) -> Expr | None:
    """Where one is the larger at every point, that."""
    known = known_comparison("ge", a, b)
    return a if known else b if known_comparison("le", a, b) else None


def _smaller(a: Expr, b: Expr) -> Expr | None:
    return a if known_comparison("le", a, b) else b if known_comparison("ge", a, b) else None


_ARITHMETIC: Final[dict[str, Callable[..., Expr | None]]] = {
    "add": add, "sub": lambda a, b: add(a, scale(b, -1)), "neg": lambda a: scale(a, -1), "mul": _product,
    "floor_divide": _by_number(floordiv), "remainder": _by_number(mod_), "maximum": _larger, "minimum": _smaller,
}
