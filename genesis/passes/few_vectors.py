"""Products of a matrix and a few vectors: what a model that writes one token after another consists of.

Their time is that of reading the matrix once, so no pass cuts them into parts, and they have a kernel of their own
(`codegen/cuda/templates/few_vectors.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from genesis.ir.sym_int import Size

FEW: Final = 4
"""Most vectors of a product that are multiplied one by one: with more, that takes longer than reading the matrix."""


def few_vectors(rows: Size, columns: Size) -> tuple[bool, int] | None:
    """(whether the vectors are rows of the first operand, how many there are) of a product of this shape; None if it
    has many of both, or if that is not known.

    >>> few_vectors(1, 768), few_vectors(768, 2), few_vectors(64, 768)
    ((True, 1), (False, 2), None)
    """
    sides = [(size, by_row) for size, by_row in ((rows, True), (columns, False))
             if size.__class__ is int and 0 < size <= FEW]
    if not sides:
        return None
    size, by_row = min(sides, key=lambda side: side[0])
    return by_row, size
