"""Online reductions: pairs of which the second waits for the first, and that one loop over a long row computes anyway.

A maximum and the sum of the exponentials below it: the sum is scaled down whenever the maximum grows (Milakov and
Gimelshein 2018). A sum and the sum of the squares of what is left without the mean (Welford 1962; Chan, Golub and
LeVeque 1979 for putting lanes together). Both run in each lane by itself; `g_online` and `g_welford` are the steps.

Beside squares, sums of other values times what is left without the mean, as a norm's gradient has one (a co-moment,
Welford's step for two variables; lanes are put together as squares are):

    Σ g (v - m)  with m → m'  is  Σ g (v - m') = Σ g (v - m) + (m - m') Σ g
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from genesis.codegen.cuda.kernel_ir import END, Apply, Constant, Kernel, Reduce, Statement, Value, operands_of
from genesis.ir.sym_int import SymInt
from genesis.ir.types import float32

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


@dataclass(frozen=True)
class _Product:
    """A sum's terms: products of what each element has and of what a row has.

    Attributes:
        each: the factors of each element, without the one below.
        scales: those that are one for a row, which wait for a reduction.
        last: the factor that the others stand beside: what an element has, or a difference that waits.
        waits: whether it is the latter.
        node: one of the products.
    """

    each: list[Value]
    scales: list[Value]
    last: Value
    waits: bool
    node: Apply


def with_early_sums(kernel: Kernel) -> tuple[Kernel, dict[str, str]]:
    """The kernel without sums of products that wait for a reduction where only a factor of a row does, or a mean:

        before: s = sum(g · ((v - mean) · c))        after: t = comoment(g), s = t · c
                s = sum(g · (v · c))                        t = sum(g · v), s = t · c

    A "comoment" shares the loop of the squares around the mean. And each such reduction → the squares.
    """
    statements = kernel.statements
    made, squares = _made(statements), sums_of_squares(statements, kernel.r_size)
    totals = {total.out.name: name for name, total in squares.items()}
    waiting = _waiting(kernel)
    found: list[Statement] = []
    beside: dict[str, str] = {}
    for s in statements:
        product = _product(s.operand, made, waiting) if isinstance(s, Reduce) and s.op == "sum" else None
        early = _early(s, product, made, totals) if isinstance(s, Reduce) and product is not None else None
        if early is None or product is None:
            found.append(s)
            continue
        assert isinstance(s, Reduce)
        sum_, around = early
        if sum_.op == "sum":
            found.append(replace(product.node, out=sum_.operand, operands=(*product.each, product.last)))
        else:
            beside[sum_.out.name] = around
        found.append(sum_)
        value = sum_.out
        for place, scale in enumerate(product.scales, 1):
            out = s.out if place == len(product.scales) else replace(s.out, name=f"{s.out.name}_scaled{place}")
            found.append(replace(product.node, out=out, operands=(value, scale)))
            value = out
    return replace(kernel, statements=tuple(found)) if len(found) > len(statements) else kernel, beside


def _product(value: Value, made: Made, waiting: Set[str]) -> _Product | None:
    """The factors of a float32 product that waits for reductions in one of them; None of anything else."""
    each: list[Value] = []
    scales: list[Value] = []
    node = None
    while value.vars == "xr" and value.dtype is float32 and value.name in waiting:
        step = made[value.name]
        if not isinstance(step, Apply) or step.compute is not float32 or step.node.op.name not in ("mul", "sub"):
            return None
        if step.node.op.name == "sub":
            break
        node, late = step, [x for x in step.operands if "r" in x.vars and x.name in waiting]
        if len(late) > 1 or (all("r" in x.vars for x in step.operands) and not late):
            return None
        value = late[0] if late else next(x for x in step.operands if "r" in x.vars)
        beside = step.operands[1 if step.operands[0] is value else 0]
        (each if "r" in beside.vars else scales).append(beside)
    if node is None or not scales or len(each) != 1:
        return None
    return _Product(each, scales, value, value.name in waiting, node)


def _early(s: Reduce, product: _Product, made: Made, totals: Mapping[str, str]) -> tuple[Reduce, str] | None:
    """The sum that waits for none of the scales, and the squares that it comes with, if it is a co-moment."""
    g, = product.each
    if not product.waits:
        if "xr" not in (g.vars, product.last.vars):
            return None
        terms = replace(s.operand, name=f"{s.out.name}_terms")
        return replace(s, out=replace(s.out, name=f"{s.out.name}_early"), operand=terms), ""
    last = made[product.last.name]
    if not isinstance(last, Apply) or last.node.op.name != "sub":
        return None
    off, around = last.operands
    average = _applied(made, around, "div")
    squares = totals.get(average[0].name) if average else None
    total = made[average[0].name] if squares is not None else None
    if squares is None or not isinstance(total, Reduce) or total.operand != off or g.vars != "xr":
        return None
    return replace(s, out=replace(s.out, name=f"{s.out.name}_comoment"), op="comoment", operand=g), squares


def _waiting(kernel: Kernel) -> set[str]:
    """The names of what waits for a reduction."""
    found: set[str] = set()
    for s in kernel.statements:
        if not isinstance(s, END) and (isinstance(s, Reduce) or any(
                x.name in found for x in operands_of(s, kernel.indices))):
            found.add(s.out.name)
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
