"""Which keys a program of attention's forward reads, and which it asks the L2 for before it waits.

A cache has room for keys that are yet to come, a window leaves keys behind, and short texts of a batch begin late.
Where a mask hides a key from all queries or from none, a program looks first which keys are seen, and its loops go from
the first tile of them to the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.prefetch import MOST_BYTES
from genesis.codegen.cuda.templates.operands import address
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import hint, is_literal, most
from genesis.ir.types import bool_
from genesis.passes.fusion.index_map import Expr

if TYPE_CHECKING:
    from genesis.codegen.cuda.templates.attention import Attention

FEWEST_LOOKED_FOR: Final = 256
"""Keys of a program from which on it looks first which of them are seen: below, that takes as long as what it saves."""

SEEN_BLOCK: Final = 1024
"""Keys that are looked at together."""

ASKING: Final = 5
"""Programs for each multiprocessor, at most, that ask for keys and values before they wait: as many as have room. A
token's step at 4096 of context takes 1 % less so (H200, 2026-11)."""


def hides_keys(a: Attention) -> bool:
    """Does the mask hide a key from all queries or from none?"""
    return (a.mask is bool_ and not a.causal and not a.views["mask"].row.terms
            and bool(a.views["mask"].column.terms))


def masks_keys(a: Attention) -> bool:
    """Does it so, and are there keys enough to look for those seen?"""
    return hides_keys(a) and hint(a.keys) >= FEWEST_LOOKED_FOR


def any_seen(a: Attention) -> list[str]:
    """Lines for `seen`, whether a tile of keys has one that is."""
    column = address(a.views["mask"].column, "j")
    return [f"j = tl.arange(0, J){a.integer}",
            f"seen = tl.max(tl.load(mask_at + ({column}), mask=j < keys, other=0).to(tl.int32), 0) != 0"]


def seen_range(a: Attention) -> list[str]:
    """Lines that narrow the loops to the tiles from the first key that is seen to the last: `begin`, `full`, `end`."""
    column = address(a.views["mask"].column, "j")
    return [
        "first = keys", "last = keys * 0",
        "for start in range(0, keys, SEEN):",
        "    j = start + tl.arange(0, SEEN)",
        f"    seen = tl.load(mask_at + ({column}), mask=j < keys, other=0) != 0",
        "    last = tl.maximum(last, tl.max(tl.where(seen, j + 1, 0), 0))",
        "    first = tl.minimum(first, tl.min(tl.where(seen, j, keys), 0))",
        "begin = first // J * J",
        "end = tl.minimum(end, last)",
        "full = tl.minimum(full, end)"]


def keys_asked_for(a: Attention) -> list[str]:
    """Lines that ask the L2 for a program's keys and values before it waits, where there are as few programs as run at
    once and each walks over one piece of memory. That of one query a token is one, and the kernels before it leave the
    memory idle.

    A mask of keys is looked at for whether the piece is filled yet. What is written to it meanwhile, or was there
    before, makes the answer wrong at times: then too much is asked for, or nothing. It is read past the L1, so that the
    mask itself is read anew after the wait.
    """
    programs = hint(a.batch) * hint(-(-a.queries // a.tile.i))
    if not (a.gpu.dependent_launch and a.gpu.bulk_prefetch) or a.causal or programs > ASKING * a.gpu.multiprocessors:
        return []
    found = []
    for name, size in (("k", a.head), ("v", a.value_head)):
        view = a.views[name]
        nbytes = a.keys * size * view.base.dtype.itemsize
        in_one_piece = _steps(view.row) == size and _steps(view.column) == 1
        if in_one_piece and is_literal(nbytes) and is_multiple(nbytes, 16) and most(nbytes) <= MOST_BYTES:
            found.append(f"g_ask({name}_at, filled, {nbytes})")
    if not found:
        return []
    filled = "tl.full((), 1, tl.int1)"
    if a.mask is bool_:
        view = a.views["mask"]
        filled = f"tl.load(mask_at + {view.row.constant + view.column.constant}, cache_modifier='.cg') != 0"
    return [f"filled = {filled}", *found]


def _steps(part: Expr) -> int | None:
    """Elements from one place to the next along an axis, from the first on; None if they are not evenly apart."""
    if part.constant or len(part.terms) != 1 or part.terms[0][0].kind != "var":
        return None
    return part.terms[0][1]
