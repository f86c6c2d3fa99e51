"""Flat loops that read or write pieces of memory from any element on: parts of concatenations, slices that are copied.

A thread that has 16 bytes of neighbours moves them at once where they begin at a multiple of 16. Of a piece that begins
elsewhere it moves each element by itself, and as the next lane's are 16 bytes away, a warp's load of two-byte values
fetches 64 bytes out of 16 sectors, eight times over. So a program's blocks begin where the vectors of what it writes
do, `shift` elements before the piece, and of what begins elsewhere a thread has neighbours of one word: a warp reads
a line of memory, twice, and stores it at once.

    before: x = first + arange, out0 + (x + 1512315)      after: near = first + arange, x = near - 3
                                                                 out0 + (near + 1512312)

The first and the last program have masks, which would take vectors apart; the others have none.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import VECTOR
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Random, Store
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import SymInt, literal_value

WORD: Final = 4
"""Bytes of neighbours that a thread has of what begins anywhere, so that all lanes of a warp have a line of memory."""

WIDEST: Final = 2
"""Bytes of an element whose stores are worth a shift: wider ones fill lines of memory when each lane has one."""


def shift_of(kernel: Kernel) -> int:
    """How many elements before a flat loop's first the vector begins that its stores begin in; 0 where they begin with
    one, or not all in the same place."""
    if kernel.has_r or kernel.folds or any(isinstance(s, Random) for s in kernel.statements):
        return 0
    itemsizes = _itemsizes(kernel)
    stores = [s for s in kernel.statements if isinstance(s, Store)]
    starts = {(s.address.constant, itemsizes[s.argument]) for s in stores if is_run(s)}
    if len(starts) != 1 or not all(map(is_run, stores)):
        return 0
    (start, itemsize), = starts
    number = literal_value(start)
    start = start if number is None else number
    if itemsize > WIDEST or is_multiple(start, VECTOR // itemsize):
        return 0
    vector = VECTOR // itemsize
    return start - start // vector * vector


def is_shifted(shift: int) -> bool:
    """Whether a loop is shifted, by a number or by what may be none."""
    return isinstance(shift, SymInt) or shift > 0


def is_run(s: Load | Store) -> bool:
    """Whether it goes through neighbours in the loop's order."""
    return len(s.address.terms) == 1 and s.address.terms[0][1] == 1 and s.address.terms[0][0].kind == "var"


def neighbours_of(kernel: Kernel, shift: int) -> int:
    """How many neighbours a thread of a flat loop has, where something that it moves begins at no vector; 0 where
    nothing does."""
    if kernel.has_r or kernel.folds:
        return 0
    itemsizes = _itemsizes(kernel)
    runs = [s for s in kernel.statements if isinstance(s, (Load, Store)) and is_run(s)]
    single = [itemsize for s in runs if (itemsize := itemsizes[s.argument]) <= WORD
              and not is_multiple(from_vector(s, shift), VECTOR // itemsize)]
    return WORD // min(single) if single else 0


def from_vector(s: Load | Store, shift: int) -> int:
    """Where a run begins, counted from the vector that the loop's blocks begin with."""
    number = literal_value(s.address.constant)
    return (s.address.constant if number is None else number) - shift


def _itemsizes(kernel: Kernel) -> dict[str, int]:
    return {argument.name: argument.node.dtype.itemsize for argument in kernel.arguments}
