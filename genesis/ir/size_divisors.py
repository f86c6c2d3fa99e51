"""What divides a size: a number, or another size, whatever the symbols are."""

from __future__ import annotations

import math
from typing import overload

from genesis.ir.polynomials import common_factors
from genesis.ir.sym_int import Size, SymInt, terms_of


def is_multiple(size: Size, number: int) -> bool:
    """Does the number divide the size, and every other that a symbolic size can be?"""
    if not isinstance(size, SymInt):
        return size % number == 0
    return size.trace.divides(number, size)


def divided_by(size: Size, number: int) -> bool:
    """Does the number divide the size? Where only some of a class's sizes are multiples, the answer becomes a guard.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(T=12) as trace:
    ...     is_multiple(trace.symbol("T"), 4), divided_by(trace.symbol("T"), 4), len(trace.guards)
    (False, True, 1)
    """
    return is_multiple(size, number) or bool(size % number < 1)


def twos(size: Size) -> int:
    """The largest power of two that divides the size, and every other that a symbolic size can be.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(T=48) as trace:
    ...     twos(40), twos(trace.symbol("T") * 2)
    (8, 32)
    """
    return int(gcd(size, 1 << 62) if isinstance(size, SymInt) else size & -size)


@overload
def gcd(a: int, b: int) -> int: ...


@overload
def gcd(a: Size, b: Size) -> Size: ...


def gcd(a: Size, b: Size) -> Size:
    """A common divisor of two sizes, whatever the symbols are: the greatest that their terms show.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(B=8) as trace:
    ...     B = trace.symbol("B")
    ...     gcd(B * 96, 64), gcd((B - 1) * 6, B - 1) == B - 1
    (32, True)

    It is positive, as that of numbers, though a size that is rounded up has terms below 0.

    >>> with Trace(T=601) as trace:
    ...     length = -(-trace.symbol("T") // 128) * 128
    ...     gcd(length, length * 32) == length
    True
    """
    symbolic = a if isinstance(a, SymInt) else b
    if not isinstance(symbolic, SymInt):
        return math.gcd(a, b)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, SymInt) and len(one.terms) > 1:  # a sum shows what it divides in no single term
            rest = one.trace.divide(other, one)[1]
            if rest.__class__ is int and rest == 0:
                return one
    terms = (*terms_of(a), *terms_of(b))
    common = terms[0][0]
    for atoms, _ in terms[1:]:
        common = common_factors(common, atoms)
    found = symbolic.trace.make(((common, math.gcd(*(k for _, k in terms))),))
    most = symbolic.trace.range(found)[1]
    return -found if most is not None and most <= 0 else found
