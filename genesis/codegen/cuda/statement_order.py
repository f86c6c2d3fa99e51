"""The order in which a kernel's statements are printed: loads first, stores last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from genesis.codegen.cuda.kernel_ir import END, Load, Number, Statement, Store
from genesis.passes.fusion.index_map import atoms

FULL_ROW: Final = 8192
"""Minimum elements of a row that takes most of a program's registers."""


def loads_first(statements: Sequence[Statement], full: bool) -> list[Statement]:
    """What needs no value is loaded before anything is computed, which hides the time that it takes.

    Args:
        full: whether a row fills the registers until it is reduced. Its weights are then loaded where they are used:
            they are in the cache, or in shared memory.
    """
    def waits(s: Statement) -> bool:
        if isinstance(s, Load):
            if full and s.out.vars == "r":
                return True
            return any(atom.kind == "loaded" for atom in atoms([s.address, *(bound.e for bound in s.bounds)]))
        return not isinstance(s, Number)
    return sorted(statements, key=waits)


def stores_last(statements: Sequence[Statement]) -> list[Statement]:
    """All loads come before the first store, and what is computed last is stored first.

    A store may want its value in another layout than the computation has it in. Triton 3.6 then takes the converted
    value for whatever a later store needs of it, also for what is computed before the conversion, and refuses its
    own code (triton-lang/triton#8257). So what is computed from a value is stored before the value is.
    """
    place = {s.out.name: number for number, s in enumerate(statements) if not isinstance(s, END)}

    def order(s: Statement) -> int:
        if not isinstance(s, END):
            return -len(statements)
        return -place[s.value.name if isinstance(s, Store) else s.operand.name]
    return sorted(statements, key=order)
