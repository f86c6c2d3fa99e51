"""Which float32 values of a kernel are only ever seen rounded to 16 bits, or in sums that average their errors out:
cheap arithmetic is good enough for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from genesis.codegen.cuda.kernel_ir import (
    END,
    Apply,
    Fold,
    Kernel,
    Load,
    Reduce,
    Select,
    Statement,
    Store,
    Value,
    operands_of,
)
from genesis.ir.types import DType, float32

REDUCTIONS: Final = {"sum", "max", "min"}


def rounded_values(kernel: Kernel, statements: Sequence[Statement] | None = None,
                   seen: Iterable[str] = ()) -> frozenset[str]:
    """Names of float32 values that reach memory as float16 or bfloat16 alone, through arithmetic and sums.

    Args:
        statements: those of the kernel that use the values, when others compute them anew.
        seen: values that somebody else sees in float32.
    """
    exact = set(seen)
    dtypes = {argument.name: argument.node.dtype for argument in kernel.arguments}
    powers = _summed_powers(kernel)
    found = set()
    for s in reversed(kernel.statements if statements is None else statements):
        if not isinstance(s, END) and s.out.dtype is float32 and s.out.name not in exact:
            found.add(s.out.name)
        on = not isinstance(s, END) and ((s.out.name in found and _passes_on(s)) or (
            isinstance(s, Reduce) and s.operand.name in powers))
        if not _rounds(s, dtypes) and not on:
            exact.update(value.name for value in operands_of(s, kernel.indices))
    return frozenset(found)


def _summed_powers(kernel: Kernel) -> set[str]:
    """Names of exp(v - max v) of a row of 16-bit values, as a softmax sums them up. One of the powers is 1 and none is
    more, so that what is off in the sum is 2^-22 of it, whatever is made of it, and v is off by 2^-12."""
    made = {s.out.name: s for s in kernel.statements if not isinstance(s, END)}

    def of(name: str, op: str) -> Sequence[Value]:
        s = made.get(name)
        return s.operands if isinstance(s, Apply) and s.node.op.name == op else ()

    found = set()
    for s in made.values():
        if isinstance(s, Reduce) and s.op == "sum":
            for exponent in of(s.operand.name, "exp") if s.operand.dtype is float32 else ():
                value, top = of(exponent.name, "sub") or (None, None)
                largest = made.get(top.name) if top is not None else None
                if isinstance(largest, Reduce) and largest.op == "max" and largest.operand == value and any(
                        isinstance(made.get(x.name), Load) and _low(x.dtype) for x in of(value.name, "cast")):
                    found.add(s.operand.name)
    return found


def _rounds(s: Statement, dtypes: dict[str, DType]) -> bool:
    """Does all that comes of the operands here have 16 bits?"""
    if isinstance(s, Store):
        return _low(dtypes[s.argument])
    return isinstance(s, Apply) and _low(s.node.dtype)


def _passes_on(s: Statement) -> bool:
    if isinstance(s, Apply):
        return s.compute is float32 and s.node.op.rounds
    return isinstance(s, Select) or (isinstance(s, (Reduce, Fold)) and s.op in REDUCTIONS)


def _low(dtype: DType) -> bool:
    return dtype.kind == "float" and dtype.itemsize == 2
