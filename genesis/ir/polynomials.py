"""Polynomials of atoms: how a symbolic size (`sym_int.py`) is written down.

An atom is what cannot be multiplied out: a symbol, or a quotient. A trace (`size_trace.py`) numbers them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

Atoms = tuple[int, ...]
"""A product: the numbers of the atoms that are multiplied, sorted."""

Terms = tuple[tuple[Atoms, int], ...]
"""A polynomial: (product, coefficient), sorted. () is the constant's. A coefficient is a float where a formula of
floats has one."""

Atom = tuple[str, Any, Any]
"""(a kind of `SYMBOLS`, name, None), (operator, left, right) of sizes, ("is", size, None or a hint):
the first says what the others are."""

DIVISIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "//": operator.floordiv, "%": operator.mod, "/": operator.truediv}
"""The operators that atoms are made with."""

SYMBOLS: Final = {"symbol": 1, "eighth": 8, "sixteenth": 16}
"""The atoms that a symbol's value makes → what it is divided by."""


def sorted_terms(sums: dict[Atoms, int]) -> Terms:
    """The polynomial of these coefficients."""
    return tuple(sorted([(atoms, k) for atoms, k in sums.items() if k]))


def common_factors(atoms: Atoms, others: Atoms) -> Atoms:
    """The factors that two products of atoms share, a square's twice; sorted as `atoms` are."""
    left, found = list(others), []
    for atom in atoms:
        if atom in left:
            left.remove(atom)
            found.append(atom)
    return tuple(found)


def without_factors(atoms: Atoms, factors: Atoms) -> Atoms | None:
    """The product of atoms divided by the product of factors, None if it is none."""
    left = list(atoms)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)
