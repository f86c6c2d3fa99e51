"""Where what a kernel reads of a memory begins: in its argument, not in its text.

    for t in range(100):                       in3 + (x + 512)        one text, and 100 launches whose
        h = cell(x[t], h)                      in3 + (x + 1024)   →   in3 begins 2 KB, 4 KB, ... further on
                                               ...

Steps of a loop that a program writes out differ in nothing else, and each text is a compilation of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.kernel_ir import Kernel, Load
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import SymInt, hint, literal_value
from genesis.ir.types import DType
from genesis.passes.fusion.index_map import Expr, offset

ALIGNED: Final = 16
"""Bytes that a memory's start is a multiple of, and what a kernel takes for its start has to be."""


def with_starts(kernel: Kernel) -> tuple[Kernel, dict[str, int]]:
    """(the kernel, its loads counted from where the first of them begins, the elements before it by argument)."""
    addresses: dict[str, list[Expr]] = {}
    for s in kernel.statements:
        if isinstance(s, Load):
            addresses.setdefault(s.argument, []).append(s.address)
    starts = {argument.name: start for argument in kernel.arguments if argument.role == "in"
              if (start := start_of(addresses.get(argument.name, ()), argument.node.dtype))}
    if not starts:
        return kernel, starts
    return replace(kernel, statements=tuple([
        replace(s, address=offset(s.address, -starts[s.argument])) if isinstance(s, Load) and s.argument in starts
        else s for s in kernel.statements])), starts


def start_of(addresses: Sequence[Expr], dtype: DType) -> int:
    """The most elements, in whole vectors, that lie before all of these addresses; 0 where that takes knowing what a
    symbolic size is, and where one counts back from its constant, as into a view that is flipped."""
    if not addresses or not all(hint(k) >= 0 and hint(atom.low) >= 0 for e in addresses for atom, k in e.terms):
        return 0
    constants = [e.constant for e in addresses]
    beyond = [literal_value(x - constants[0]) for x in constants]
    if None in beyond:
        return 0
    multiple = ALIGNED // dtype.itemsize
    first = min(zip(beyond, constants, strict=True), key=lambda pair: pair[0] or 0)[1]
    if isinstance(first, SymInt):  # the number of the size at hand is no start for others
        return first if is_multiple(first, multiple) else 0
    return max(first - first % multiple, 0)
