"""Ranges of sizes: what is known of a size for all values of its symbols, and what that answers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

Range = tuple[int | None, int | None]
"""(least, most) of a size over all values that its symbols' classes admit; None where there is no such bound."""

COMPARISONS: Final[dict[str, Callable[[int, int], bool]]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt}

OPPOSITE: Final = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}
"""Comparison → the one that holds where it does not."""


def decided(name: str, least: int | None, most: int | None) -> bool | None:
    """The comparison with 0 of a size in this range; None where it depends on the size."""
    if name in ("<=", ">", "==", "!="):
        if most is not None and (most < 0 or (most == 0 and name in ("<=", ">"))):
            return name in ("<=", "!=")
        if least is not None and least > 0:
            return name in (">", "!=")
        return name == "==" if least == most == 0 else None
    if most is not None and most < 0:
        return name == "<"
    return name == ">=" if least is not None and least >= 0 else None


def sum_of(ranges: list[Range]) -> Range:
    """Where the sum of sizes in these ranges lies."""
    low, high = zip(*ranges, strict=True)
    return None if None in low else sum(low), None if None in high else sum(high)


def product_of(ranges: list[Range]) -> Range:
    """Where their product lies."""
    least, most = ranges[0]
    for low, high in ranges[1:]:
        if least is None or most is None or low is None or high is None:
            return None, None
        ends = [a * b for a in (least, most) for b in (low, high)]
        least, most = min(ends), max(ends)
    return least, most


def remainder_of(divisor: Range) -> Range:
    """Where a size % the divisor lies."""
    least, most = divisor
    return (0, None if most is None else most - 1) if least is not None and least > 0 else (None, None)


def quotient_of(of: Range, by: Range, rounded: bool) -> Range:
    """Where one size // the other lies, or / where it is not rounded."""
    (low, high), (least, most) = of, by
    if low is None or high is None or least is None or most is None or least <= 0:
        return None, None
    divide = operator.floordiv if rounded else operator.truediv
    ends = [divide(a, b) for a in (low, high) for b in (least, most)]
    return min(ends), max(ends)
