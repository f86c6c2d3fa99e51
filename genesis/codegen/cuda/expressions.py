"""Numbers and index expressions as Triton text."""

from __future__ import annotations

import math

from genesis.codegen.cuda import lowerings
from genesis.ir.sym_int import SymInt
from genesis.ir.types import DType, float32, int32, int64, uint8
from genesis.passes.fusion.index_map import Atom, Expr


def literal(number: bool | int | float, dtype: DType, inline: bool = False) -> str:
    """A number in a dtype, typed unless the other operand gives the type. In uint8 -1 is 255.

    >>> literal(0.5, float32), literal(0.5, float32, inline=True)
    ('tl.full((), 0.5, tl.float32)', '0.5')
    """
    if isinstance(number, SymInt):  # an argument of the kernel
        text = str(number) if isinstance(number.value, int) else _quotient(number)
        return f"tl.full((), {text}, {lowerings.triton_type(dtype)})"
    if dtype.kind == "float":
        value = float(number)
        text = repr(value) if math.isfinite(value) else f'float("{value}")'
    else:
        text = repr(int(number) % 2**8 if dtype is uint8 else int(number))
    if inline and dtype in (float32, int32, int64) and (dtype is not float32 or math.isfinite(float(number))):
        return text if not text.startswith("-") else f"({text})"
    return f"tl.full((), {text}, {lowerings.triton_type(dtype)})"


def _quotient(size: SymInt) -> str:
    """A formula with quotients as text, in float64 as Python has them: the same bits from an argument as from a number
    in the text."""
    def real(x: int | float | SymInt) -> str:
        if isinstance(x, SymInt) and not isinstance(x.value, int):
            return _quotient(x)
        return f"tl.full((), {x}, tl.float64)"

    terms = []
    for numbers, k in size.terms:
        factors = [real(k)] if k != 1 or not numbers else []
        for atom in numbers:
            kind, a, b = size.trace.atoms[atom]
            factors.append(f"({real(a)} / {real(b)})" if kind == "/" else real(size.trace.make((((atom,), 1),))))
        terms.append(" * ".join(factors))
    return f"({' + '.join(terms)})"


def expression(e: Expr) -> str:
    """An index expression as Python text over x, r and loaded indices."""
    parts = []
    for atom, k in e.terms:
        if atom.inner is None:
            text = atom.name
        else:
            inside = expression(atom.inner)
            inside = inside if atom.inner.is_atom and atom.inner.terms[0][0].inner is None else f"({inside})"
            text = f"({inside} {_divided(atom)})"
        if k == -1:
            text = f"-{text}"
        elif k != 1:
            text = f"{text} * {k}"
        parts.append(text)
    if e.constant or not parts:
        parts.append(str(e.constant))
    return " + ".join(parts).replace("+ -", "- ")


def _divided(atom: Atom) -> str:
    """An operator and a number: of a quotient or a remainder.

    Sums of quotients and remainders, as windows have them, are divided by powers of 2 by their bits. Of one division
    by 2 beside one by 3, both of a few values, LLVM makes a division of a pair of 16-bit numbers, for which ptxas 12.8
    gave wrong results on an H200 (a gradient of `conv2d` with stride (3, 2) was 0 in its first column). Other
    numerators stay divisions: Triton sees neighbours in them.
    """
    number, inner = atom.number, atom.inner
    assert inner is not None
    if (isinstance(number, int) and number > 1 and number.bit_count() == 1 and len(inner.terms) > 1
            and any(term.inner is not None for term, _ in inner.terms)):
        return f">> {number.bit_length() - 1}" if atom.kind == "div" else f"& {number - 1}"
    return f"{'//' if atom.kind == 'div' else '%'} {number}"
