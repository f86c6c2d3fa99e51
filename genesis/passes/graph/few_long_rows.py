"""Rows that lie turned in memory and are so few and long that most of a GPU would wait for a few programs.

A program that reads across memory has some rows, to read what lies side by side in whole sectors. Of few rows there are
few programs, each with all of its rows' elements.
"""

from __future__ import annotations

from typing import Final

from genesis.ir.sym_int import Size, hint
from genesis.passes.gpu import Gpu

ROWS_ACROSS: Final = 16
"""Rows of a program that reads across: 64 bytes of float32 beside each other."""

FEW: Final = 4
"""Rows that lie turned are few where at most one multiprocessor in this many has a program of them, ..."""

LONG: Final = 2048
"""... and long from this many elements on: 16 of 2048 float32 take a program about 16 µs (H200: 16 splits of 16 rows of
6250 49.6 µs), splits in memory's order, their sum and the copy that turns what is computed three launches."""


def few_long_rows(rows: Size, elements: Size, gpu: Gpu) -> bool:
    """Whether so many rows of so many elements in all would have a few programs that read across.

    >>> from genesis.codegen.cuda.gpu_model import H200
    >>> few_long_rows(16, 16 * 100_000, H200), few_long_rows(16, 16 * 1000, H200), few_long_rows(1000, 10**7, H200)
    (True, False, False)
    """
    rows, elements = hint(rows), hint(elements)
    return FEW * -(-rows // ROWS_ACROSS) <= gpu.multiprocessors and elements >= LONG * max(rows, ROWS_ACROSS)
