"""How many neighbours a thread has of what a loop reads and writes: as many as are moved at once, or those of a word.

Triton gives a thread 16 bytes of neighbours of what is aligned best in a kernel, and the same elements of all else.
What begins anywhere, or ends there under a mask, then comes one by one, each time 16 bytes from the next lane's: a
warp's load of two-byte values touches 512 bytes for 64. Where something in a loop cannot be moved in vectors a thread
has as many neighbours of everything as that can be moved in, or a word of them: all lanes of a warp together have whole
lines of memory.

    x = tl.max_contiguous(tl.multiple_of(first + arange, 2), 2)          out0 + (x % 74 + x // 74 * 592)

Rows of 74 two-byte values are written at multiples of 4 bytes, as two divides 74 and 592, and four does not.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import VECTOR
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Store
from genesis.codegen.cuda.shifted import WORD
from genesis.ir.size_divisors import is_multiple, twos
from genesis.ir.sym_int import Size, as_written
from genesis.passes.fusion.index_map import Atom, Bound, Expr

MANY: Final = 1 << 20
"""More neighbours than anything is moved in."""


def neighbours(kernel: Kernel, along: str, size: int | None, named: bool = False) -> int:
    """How many neighbours along a coordinate a thread is to have; 0 where Triton may have its way.

    Args:
        along: the coordinate that neighbouring lanes differ in, "x" or "r".
        size: where the coordinate ends under a mask, None where no block reaches past the end.
        named: whether the size is a number in the kernel's text, not its argument.
    """
    widths = {x.name: x.node.dtype.itemsize for x in kernel.arguments}
    taken = [(VECTOR // widths[s.argument], s) for s in kernel.statements if isinstance(s, Load | Store)
             and _depends(s.address, along) and lies_along(s, not kernel.has_r) == along]
    if kernel.indices or not taken:
        return 0
    end = MANY if size is None else _twos(size) if named else known_multiple(size)
    seen = max(at_once(s.address, along, vector) for vector, s in taken)
    real = min(min(end, at_once(s.address, along, vector), *(_within(bound, along) for bound in (
        s.bounds if isinstance(s, Load) else ()))) for vector, s in taken)
    stored = min((at_once(s.address, along, MANY) for _, s in taken if isinstance(s, Store)), default=MANY)
    count = max(real, min(stored, WORD // min(widths[s.argument] for _, s in taken)), 1)
    if count < seen:
        return count
    return int(kernel.has_r and any(is_aimless(s, along) for _, s in taken))


def lies_along(s: Load | Store, flat: bool) -> str:
    """The coordinate that neighbours of a load or store in memory differ in: of a block of rows x, if it goes by ones
    from row to row and not along them."""
    return "x" if flat or (_steps(s.address, "x") and not _steps(s.address, "r")) else "r"


def bytes_at_once(kernel: Kernel, along: str) -> int:
    """How many bytes along a coordinate everything in a kernel is moved in at least, its bounds and ends apart."""
    widths = {x.name: x.node.dtype.itemsize for x in kernel.arguments}
    return min((widths[s.argument] * at_once(s.address, along, VECTOR // widths[s.argument])
                for s in kernel.statements if isinstance(s, Load | Store) and _depends(s.address, along)), default=0)


def has_more(s: Load | Store, kernel: Kernel, along: str, count: int) -> bool:
    """Whether Triton would have a thread move more neighbours of a load or store than it is to have."""
    width = next(x.node.dtype.itemsize for x in kernel.arguments if x.name == s.argument)
    if not count or not _depends(s.address, along):
        return False
    return at_once(s.address, along, VECTOR // width) > count or (kernel.has_r and is_aimless(s, along))


def is_aimless(s: Load | Store, along: str) -> bool:
    """Whether Triton knows of no neighbours of what goes by ones along a coordinate, as of a remainder by an odd
    number. In a block of rows it then has lanes go from row to row: of rows of 13 of 39 each lane stored to another
    line."""
    own = tuple([term for term in s.address.terms if _depends(Expr(0, (term,)), along)])
    return _steps(s.address, along) and at_once(Expr(0, own), along, 2) == 1


def divides(kernel: Kernel, along: str) -> bool:
    """Whether a coordinate is divided in some address."""
    return any(atom.inner is not None and _depends(atom.inner, along) for s in kernel.statements
               if isinstance(s, Load | Store) for atom, _ in s.address.terms)


def at_once(e: Expr, along: str, most: int) -> int:
    """How many neighbours along a coordinate are neighbours in memory, from a multiple of their number on: a power of
    two up to `most`.

    >>> from genesis.passes.fusion.index_map import add, floordiv, mod_, offset, scale, variable
    >>> x = variable("x", 740)
    >>> rows = add(mod_(x, 74), scale(floordiv(x, 74), 592))
    >>> at_once(rows, "x", 8), at_once(x, "x", 8), at_once(offset(x, 4), "x", 8)
    (2, 8, 4)
    """
    found, count = 0, min(most, _twos(e.constant))
    for atom, k in e.terms:
        if not _depends(Expr(0, ((atom, k),)), along):
            count = min(count, _twos(k))
        elif k == 1 and (step := _step(atom, along)):
            found, count = found + 1, min(count, step)
        else:
            count = min(count, _same(atom, along), _twos(k))
    return count if found == 1 else 1


def _step(atom: Atom, along: str) -> int:
    """How many neighbours an atom goes through by ones, from a multiple of their number on; 0 if it does not."""
    if atom.kind == "var":
        return MANY
    if atom.kind != "mod" or not _steps(atom.inner, along):
        return 0
    return at_once(atom.inner, along, _twos(atom.number))  # type: ignore[arg-type]


def steps_along(e: Expr, along: str) -> bool:
    """Whether neighbours along a coordinate are neighbours in memory, if only some of them."""
    return _steps(e, along)


def _steps(e: Expr | None, along: str) -> bool:
    """Whether an expression goes by ones from neighbour to neighbour."""
    return e is not None and any(k == 1 and _depends(Expr(0, ((atom, k),)), along) and _step(atom, along)
                                 for atom, k in e.terms)


def _same(atom: Atom, along: str) -> int:
    """How many neighbours an atom is the same for, from a multiple of their number on."""
    if atom.inner is None:
        return 1
    if _steps(atom.inner, along):
        return at_once(atom.inner, along, _twos(atom.number)) if atom.kind == "div" else 1
    return min((_same(inner, along) for inner, k in atom.inner.terms if _depends(Expr(0, ((inner, k),)), along)),
               default=MANY)


def _within(bound: Bound, along: str) -> int:
    """How many neighbours are all within a bound or all outside of it, from a multiple of their number on."""
    low, high = bound.e.range
    ends = [end - bound.e.constant for end, matters in ((bound.low, low < bound.low), (bound.high, high >= bound.high))
            if matters]
    base = Expr(0, bound.e.terms)
    if not _depends(base, along):
        return MANY
    if _steps(base, along):
        return min(at_once(base, along, MANY), *map(_twos, ends)) if ends else MANY
    return min(_same(atom, along) for atom, k in base.terms if _depends(Expr(0, ((atom, k),)), along))


def _depends(e: Expr, along: str) -> bool:
    """Whether an expression depends on a coordinate."""
    return any(atom.name == along if atom.inner is None else _depends(atom.inner, along) for atom, _ in e.terms)


def known_multiple(size: Size) -> int:
    """The power of two that a kernel knows to divide a size that is its argument, 16 at most."""
    return next((number for number in (16, 8, 4, 2) if is_multiple(as_written(size), number)), 1)


def _twos(n: int) -> int:
    """The largest power of two that divides a size as a kernel writes it, `MANY` at most."""
    written = as_written(n)
    return MANY if is_multiple(written, MANY) else twos(written)
