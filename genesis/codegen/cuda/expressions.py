"""Numbers and index expressions as Triton text."""

from __future__ import annotations

import math
from typing import Final

from genesis.codegen.cuda import lowerings
from genesis.ir.node import is_negative_zero
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import Size, SymInt, literal_value
from genesis.ir.types import DType, float32, int32, int64, uint8
from genesis.passes.fusion.index_map import Atom, Expr


def literal(number: bool | int | float, dtype: DType, inline: bool = False) -> str:
    """A number in a dtype, typed unless the other operand gives the type. In uint8 -1 is 255.

    >>> literal(0.5, float32), literal(0.5, float32, inline=True)
    ('tl.full((), 0.5, tl.float32)', '0.5')

    Triton takes the number -0.0 for 0:

    >>> literal(-0.0, float32)
    '(tl.full((), 0.0, tl.float32) * -1.0)'
    """
    if isinstance(number, SymInt):  # an argument of the kernel
        text = str(number) if isinstance(number.value, int) else _quotient(number)
        return f"tl.full((), {text}, {lowerings.triton_type(dtype)})"
    if dtype.kind == "float":
        value = float(number)
        if is_negative_zero(value):
            return f"({literal(0.0, dtype)} * -1.0)"
        text = repr(value) if math.isfinite(value) else f'float("{value}")'
    else:
        text = repr(int(number) % 2**8 if dtype is uint8 else int(number))
    if inline and dtype in (float32, int32, int64) and (dtype is not float32 or math.isfinite(float(number))):
        return text if not text.startswith("-") else f"({text})"
    return f"tl.full((), {text}, {lowerings.triton_type(dtype)})"


def _quotient(size: SymInt) -> str:
    """A formula with quotients as text, in float64 as Python has them: the same bits from an argument as from a number
    in the text."""
    def real(x: int | float | SymInt) -> str:
        if isinstance(x, SymInt) and not isinstance(x.value, int):
            return _quotient(x)
        return f"tl.full((), {x}, tl.float64)"

    terms = []
    for numbers, k in size.terms:
        factors = [real(k)] if k != 1 or not numbers else []
        for atom in numbers:
            kind, a, b = size.trace.atoms[atom]
            factors.append(f"({real(a)} / {real(b)})" if kind == "/" else real(size.trace.make((((atom,), 1),))))
        terms.append(" * ".join(factors))
    return f"({' + '.join(terms)})"


def expression(e: Expr, reciprocals: bool = False) -> str:
    """An index expression as Python text over x, r and loaded indices.

    Args:
        reciprocals: whether it may divide by an argument with `g_quotient`, which only Triton's language has.
    """
    parts = []
    for atom, k in e.terms:
        if atom.inner is None:
            text = atom.name
        else:
            inside = expression(atom.inner, reciprocals)
            inside = inside if atom.inner.is_atom and atom.inner.terms[0][0].inner is None else f"({inside})"
            text = (_by_multiplying(atom, inside) or (reciprocals and _by_reciprocal(atom, inside, e))
                    or _quotient_first(atom, reciprocals)
                    or f"({inside} {'//' if atom.kind == 'div' else '%'} {atom.number})")
        if k == -1:
            text = f"-{text}"
        elif k != 1:
            text = f"{text} * {k}"
        parts.append(text)
    if e.constant or not parts:
        parts.append(str(e.constant))
    return " + ".join(parts).replace("+ -", "- ")


def _quotient_first(atom: Atom, reciprocals: bool) -> str | None:
    """(x % 2000) // 400 as (x // 400) % 5, for which Triton sees that it is one number for all of 16 neighbours: of the
    quotient of a remainder it knows nothing, and loads what lies in vectors one by one. None for what is no such
    quotient."""
    inner = atom.inner
    assert inner is not None
    if atom.kind != "div" or not inner.is_atom or inner.is_constant or inner.terms[0][0].kind != "mod":
        return None
    rest = inner.terms[0][0]
    d, m = literal_value(atom.number), literal_value(rest.number)
    if d is None or m is None or not d or m % d or rest.inner is None:
        return None
    if not rest.inner.is_atom or rest.inner.range[0] < 0:
        return None
    return f"(({expression(rest.inner, reciprocals)} // {d}) % {m // d})"


def _by_multiplying(atom: Atom, inside: str) -> str | None:
    """A quotient or a remainder of a sum of such, as windows have them, as a product and a shift; None for others, in
    which Triton sees neighbours.

    LLVM makes divisions of 16 bits of several such quotients, and packs their sums (`packed_words.py`).
    """
    inner = atom.inner
    assert inner is not None
    if len(inner.terms) < 2 or any(x.inner is None for x, _ in inner.terms):
        return None
    d, low, high = (literal_value(size) for size in (atom.number, *inner.range))
    if d is None or d < 2 or low is None or high is None:
        return None
    before = -(low // d) * d if low < 0 else 0  # makes n no less than 0
    n, most = (f"({inside} + {before})" if before else inside), high + before
    if atom.kind == "mod" and d.bit_count() == 1:
        return f"({n} & {d - 1})"
    quotient = divided(n, most, d)
    if quotient is None or atom.kind == "div":
        return f"({quotient} - {before // d})" if quotient and before else quotient
    return f"({n} - {quotient} * {d})"


LEAST_DIVISOR: Final = 3
"""The smallest number whose reciprocal, of 32 bits, is an argument of 32 bits with a sign."""


def _by_reciprocal(atom: Atom, inside: str, e: Expr) -> str | None:
    """A quotient or a remainder by an argument: one product with its reciprocal, an argument, too, where a division of
    integers takes nine instructions and more. None where Triton sees by `//` and `%` which elements are neighbours.

    A multiple of what the same coordinate is divided by elsewhere in the sum is divided by that first.
    """
    d, times = atom.number, None
    if not has_reciprocal(atom):
        found = next(((other.number, k) for other, _ in e.terms if other.inner == atom.inner and has_reciprocal(other)
                      and (k := _times(d, other.number)) is not None), None)
        if found is None:
            return None
        d, times = found
    quotient = f"g_quotient({inside}, {(2**32 - 1) // d + 1})"
    quotient = quotient if times is None else f"({quotient} // {times})"
    return quotient if atom.kind == "div" else f"({inside} - {quotient} * {atom.number})"


def _times(size: Size, part: Size) -> int | None:
    """The number in the text that a size is of another, which is an argument; None where there is none."""
    if not isinstance(size, SymInt) or literal_value(size) is not None:
        return None
    times, rest = size.trace.divide(size, part)
    return literal_value(times) if rest.__class__ is int and rest == 0 else None


def has_reciprocal(atom: Atom) -> bool:
    """Whether 32 bits hold the product with the reciprocal for all sizes of the class, and the divisor is no multiple
    of 8, by which elements would be neighbours.

    n·m >> 32 with m the ceiling of 2^32 / d is exact as long as n·d < 2^32.
    """
    d = atom.number
    if not isinstance(d, SymInt) or literal_value(d) is not None or is_multiple(d, 8) or atom.inner is None:
        return False
    (least, largest), (_, high) = d.trace.range(d), d.trace.range(atom.inner.range[1])
    known = least is not None and largest is not None and high is not None
    return known and least >= LEAST_DIVISOR and largest * high < 2**32


def divided(n: str, most: int, d: int) -> str | None:
    """The quotient of 0 ≤ n ≤ most by a number as a product and a shift; None where 32 bits do not hold the product.

    It is exact where n·(m·d - 2^s) < 2^s for all n, with m the ceiling of 2^s / d (Granlund and Montgomery 1994).
    """
    for shift in range(1, 31):
        m = -(-2**shift // d)
        if most * m >= 2**31:
            return None
        if most * (m * d - 2**shift) < 2**shift:
            return f"({n} * {m} >> {shift})" if m > 1 else f"({n} >> {shift})"
    return None
