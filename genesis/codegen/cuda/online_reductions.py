"""Online reductions: pairs of which the second waits for the first, and that one loop over a long row computes anyway.

A maximum and the sum of the exponentials below it: the sum is scaled down whenever the maximum grows (Milakov and
Gimelshein 2018). A sum and the sum of the squares of what is left without the mean (Welford 1962; Chan, Golub and
LeVeque 1979 for putting lanes together). Both run in each lane by itself; `g_online` and `g_welford` are the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from genesis.codegen.cuda.kernel_ir import END, Apply, Constant, Reduce, Statement, Value
from genesis.ir.sym_int import SymInt

Made = dict[str, Statement]


def sums_of_exponentials(statements: Sequence[Statement]) -> dict[str, Reduce]:
    """Sums of exp(v - max v) by name → that maximum."""
    made = _made(statements)
    found: dict[str, Reduce] = {}
    for s in made.values():
        if isinstance(s, Reduce) and s.op == "sum" and s.operand.vars == "xr":
            for exponent in _applied(made, s.operand, "exp"):
                difference = _applied(made, exponent, "sub")
                largest = made[difference[1].name] if difference else None
                if isinstance(largest, Reduce) and largest.op == "max" and largest.operand == difference[0] and (
                        largest not in found.values()):
                    found[s.out.name] = largest
    return found


def sums_of_squares(statements: Sequence[Statement], size: int) -> dict[str, Reduce]:
    """Sums of (v - Σ v / size)² by name → the sum of v."""
    made = _made(statements)
    found: dict[str, Reduce] = {}
    for s in made.values():
        if not (isinstance(s, Reduce) and s.op == "sum" and s.operand.vars == "xr" and s.operand.dtype.kind == "float"):
            continue
        square = _applied(made, s.operand, "mul")
        centred = _applied(made, square[0], "sub") if square and square[0] == square[1] else ()
        average = _applied(made, centred[1], "div") if centred else ()
        count = made[average[1].name] if average else None
        total = made[average[0].name] if isinstance(count, Constant) and is_number(count.number, size) else None
        if isinstance(total, Reduce) and total.op == "sum" and total.operand == centred[0] and (
                total not in found.values()):
            found[s.out.name] = total
    return found


def beside_spreads(parts: Sequence[Reduce], spread: str, beside: str) -> dict[str, Reduce]:
    """Parts of a split that are spreads of this kind (`ir.ops.splits.SPREADS`), by name → the reduction of the same
    values that comes with it: another part, or one that nobody asked for."""
    found: dict[str, Reduce] = {}
    for s in parts:
        if s.op == spread:
            others = [x for x in parts if x.op == beside and x.operand == s.operand and x not in found.values()]
            unasked = Reduce(replace(s.out, name=f"{s.out.name}_{beside}"), beside, s.operand)
            found[s.out.name] = others[0] if others else unasked
    return found


def is_number(value: object, size: int) -> bool:
    """Is it this number, or the same symbolic size?"""
    if isinstance(size, SymInt):
        return isinstance(value, SymInt) and value.terms == size.terms
    return isinstance(value, int | float) and value == size


def _made(statements: Sequence[Statement]) -> Made:
    return {s.out.name: s for s in statements if not isinstance(s, END)}


def _applied(made: Made, value: Value, op: str) -> tuple[Value, ...]:
    """The operands of the op that makes a value; none if another does."""
    s = made[value.name]
    return s.operands if isinstance(s, Apply) and s.node.op.name == op else ()
