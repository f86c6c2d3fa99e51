"""Flat loops whose last program alone has a mask: where the number of elements is no multiple of a vector.

`x < x_size` is true or false of whole vectors where `x_size` is a multiple of one. Else the compiler loads and stores
element by element under that mask, in all programs, though only the last one reaches past the end. So a program asks
once whether its block is whole, and has the statements for either answer:

    before: load(in0 + x, mask=x < x_size) …       after: if x_size - first >= XBLOCK: load(in0 + x) …
                                                          else: load(in0 + x, mask=x < x_size) …

A program takes one of the two, so that registers are those of the larger, and the text is twice as long.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import HEAVY, VECTOR, Blocks
from genesis.codegen.cuda.kernel_ir import Apply, Kernel, Load, Random, Store
from genesis.ir.size_divisors import is_multiple
from genesis.ir.types import DType
from genesis.passes.fusion.materialize import weight

FEWEST: Final = 1024
"""Elements of a program from which on its statements are there twice: those of small loops have smaller blocks."""

WIDEST: Final = 2
"""Bytes of an element at most: wider ones fill lines of memory when each lane loads one."""


def last_apart(kernel: Kernel, blocks: Blocks) -> bool:
    """Whether whole programs of a flat loop move vectors that a mask would take apart."""
    if kernel.has_r or kernel.folds or blocks.x < FEWEST or any(isinstance(s, Random) for s in kernel.statements):
        return False
    dtypes = {argument.name: argument.node.dtype for argument in kernel.arguments}
    moved = [s for s in kernel.statements if isinstance(s, (Load, Store)) and _flat(s, dtypes)]
    narrowest = min((dtypes[s.argument].itemsize for s in moved), default=VECTOR)
    if narrowest > WIDEST or is_multiple(kernel.x_size, VECTOR // narrowest):
        return False
    return sum(weight(s.node) for s in kernel.statements if isinstance(s, Apply)) <= HEAVY


def _flat(s: Load | Store, dtypes: dict[str, DType]) -> bool:
    """Whether it runs along x from a multiple of a vector on."""
    along = [(atom.kind, k) for atom, k in s.address.terms] == [("var", 1)]
    bounded = isinstance(s, Load) and bool(s.bounds)
    return along and not bounded and is_multiple(s.address.constant, VECTOR // dtypes[s.argument].itemsize)


def branches(first: str, whole: list[str], last: list[str]) -> list[str]:
    """The statements of a program whose block is whole, or those of the last.

    Args:
        first: where the program's block begins, in as many bits as positions need.
    """
    return alternatives(f"x_size - {first} >= XBLOCK", whole, last)


def alternatives(condition: str, whole: list[str], last: list[str]) -> list[str]:
    """Lines that go into one of two branches."""
    return [f"if {condition}:", *("    " + line for line in whole), "else:", *("    " + line for line in last)]
