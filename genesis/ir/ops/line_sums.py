"""Lines with elements added at an index of each: scatter_add, in one order of the positions.

Everything is in lines: base is (lines, rows), index and source (lines, positions).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.exact_sums import exact_sums
from genesis.ir.ops.leaves import full, iota
from genesis.ir.ops.movement import pad, permute, reshape, take_range
from genesis.ir.ops.pointwise import cast, full_like, maximum, minimum
from genesis.ir.ops.row_number import in_range
from genesis.ir.ops.samples import NUMERIC, case, cases, forward_only, integers, reals
from genesis.ir.ops.segments import in_lines, integer_for, reshaped, sorted_index, write_segments
from genesis.ir.sym_int import hint, most
from genesis.ir.types import DType, TensorType, float32, int16, int32

if TYPE_CHECKING:
    from numpy import ndarray


SEVERAL_WARPS: Final = 384
"""Positions of a line above which several warps take it: one has three turns for so many."""

MANY_SUMS: Final = 1024
"""Sums of a line from which on several warps take it also if its positions are few, which are more than one warp takes
at once: it takes one warp longer to begin and to end them (H200: 9000 lines of 1024 sums and 256 positions 34 µs)."""

LEAST_TAKEN: Final = 512
"""Positions that several warps must have room to take at once, to be faster than one."""

MOST_TAKEN: Final = 2048
"""Maximum positions that several warps take at once, in some 1.4 µs (reckoned) if four of them seldom meet in a sum."""

ALL_AT_ONCE: Final = 10 << 10
"""Maximum positions of a line of floats that a program takes all at once, 10 a thread: of 12 some would not stay in
registers (`codegen/cuda/templates/scaled_lines.py`)."""

SUMS_AT_ONCE: Final = 16384
"""Sums of a line that a program has room for."""

COLUMNS: Final = (32, 16, 8)
"""Columns that a program may add up all at once. With four, pieces of 8 to 32 bytes, f16[2368, 1283] took 53 µs, as
moved, and bf16[7507, 88] in parts 35 for 20 (H200)."""

FEW_SUMS: Final = 8192
"""Maximum sums, and positions, of a program's columns: two are on a multiprocessor then."""

FEWEST_PROGRAMS: Final = 100
"""Programs from which on columns are added up where they lie. Fewer columns are moved to where lines are."""

FEW_POSITIONS: Final = 4096
"""Positions of a program's columns up to which they are added up where they lie by however few programs: they take less
time than a launch."""

MOST_SUMS: Final = 1 << 17
"""Maximum sums of a line that is added up in shared memory: up to eight programs have room for them."""


def _lines_type(base: TensorType, index: TensorType, source: TensorType) -> TensorType:
    if base.ndim != 2 or not base.shape[0] == index.shape[0] or index.shape != source.shape or (
            source.dtype is not base.dtype):
        raise RuntimeError(f"lines of {source} at {index} do not fit {base}")
    return base


def _lines(base: Node, index: Node, source: Node) -> Node:
    found = _by_block(base, index, source)
    if found is not None:
        return found
    shape, count = base.type.shape, index.type.numel
    ids, order = sorted_index(cast(index, dtype=integer_for(shape[-1])), 1)
    ids = in_lines(cast(ids, dtype=integer_for(base.type.numel)), shape)
    order = in_lines(cast(order, dtype=integer_for(count)), index.type.shape)
    found = write_segments(reshaped(base, (1, base.type.numel, 1)), reshaped(source, (1, count, 1)),
                           reshape(ids, shape=(count,)), reshape(order, shape=(count,)), add=True)
    return reshape(found, shape=shape)


def taken_at_once(rows: int, count: int) -> int:
    """Positions of a line that several warps take at once: no more than twice its sums, as those that meet in one take
    turns of the whole program. 0 where one warp is as fast.

    >>> taken_at_once(5000, 5000), taken_at_once(300, 5000), taken_at_once(10, 5000), taken_at_once(300, 300)
    (2048, 1024, 0, 0)
    """
    rows, count = hint(rows), hint(count)
    if rows >= MANY_SUMS and 128 < count <= SEVERAL_WARPS:
        return LEAST_TAKEN
    taken = min(1 << max(count - 1, 1).bit_length(), 1 << max(2 * rows - 1, 1).bit_length(), MOST_TAKEN)
    return taken if count > SEVERAL_WARPS and taken >= LEAST_TAKEN else 0


def scales_sums(dtype: DType) -> bool:
    """Whether sums of this dtype, which are made in float32, may be made of whole numbers."""
    return dtype.kind == "float" and dtype.itemsize <= 4


def in_whole_numbers(rows: int, count: int, dtype: DType) -> bool:
    """Whether the positions of a line are added as whole numbers: all at once if they stay in registers."""
    return scales_sums(dtype) and taken_at_once(rows, count) > 0


def columns_at_once(outer: int, rows: int, count: int, inner: int, dtype: DType) -> int:
    """How many columns of (outer, rows or positions, inner) a program adds up all at once, where they lie; 0 where they
    are to be moved to lines.

    >>> [columns_at_once(*sizes, float32) for sizes in ((9, 1024, 256, 1000), (1, 4768, 1024, 512), (1, 900, 900, 9))]
    [8, 0, 0]
    """
    if not scales_sums(dtype) or hint(outer) * hint(inner) < COLUMNS[-1]:
        return 0
    several = next((x for x in COLUMNS if max(most(rows), most(count)) * x <= FEW_SUMS and x < 2 * hint(inner)), 0)
    while several > COLUMNS[-1] and hint(outer) * hint(inner) < FEWEST_PROGRAMS * several:
        several //= 2
    few = most(count) * several <= FEW_POSITIONS
    return several if several and (few or hint(outer) * hint(inner) >= FEWEST_PROGRAMS * several) else 0


def _by_block(base: Node, index: Node, source: Node) -> Node | None:
    """Lines or columns whose elements are rows of one element, added by blocks of the index; None if these are too
    many."""
    from genesis.ir.ops.block_rows import fits_blocks, rows_by_block
    shape, count = base.type.shape, index.type.numel
    rows, flat = reshaped(base, (1, base.type.numel, 1)), reshaped(source, (1, count, 1))
    if not fits_blocks(base.type.numel, 1, count):
        return None
    number, inner = integer_for(base.type.numel), prod(shape[2:])
    ids, device = cast(index, dtype=number) * inner, index.type.device
    ids = ids + iota(shape=index.type.shape, axis=0, dtype=number, device=device) * (shape[1] * inner)
    if len(shape) == 3:
        ids = ids + iota(shape=index.type.shape, axis=2, dtype=number, device=device)
    return reshape(rows_by_block(rows, reshape(ids, shape=(count,)), flat), shape=shape)


def _reference_lines(base: ndarray, index: ndarray, source: ndarray) -> ndarray:
    import numpy
    result = base.copy()
    numpy.add.at(result, (numpy.arange(len(base))[:, None], index), source)
    return result


lines_added: Op = Op("lines_added", "index", _lines_type, decompose=_lines, differentiable=False, ulp=4,
                     opaque=Opaque("segment", partial=True),
                     doc="base (lines, rows) with source[l, p] added to element index[l, p] of line l, in one order: "
                         "lines whose sums do not fit a program, but whose positions do.",
                     samples=cases(*(forward_only(case(reals().of(n, rows), integers(0, rows).of(n, count),
                                                       reals().of(n, count)))
                                     for n, rows, count in ((3, 5, 9), (2, 40, 70), (1, 1, 3))), kinds=NUMERIC,
                                   scale=8), reference=_reference_lines)


def _lines_or_columns_type(base: TensorType, index: TensorType, source: TensorType) -> TensorType:
    if base.ndim not in (2, 3) or (base.shape[0], *base.shape[2:]) != (index.shape[0], *index.shape[2:]) or (
            index.shape != source.shape or source.dtype is not base.dtype):
        raise RuntimeError(f"lines of {source} at {index} do not fit {base}")
    return base


def _lines_summed(base: Node, index: Node, source: Node) -> Node:
    """In memory: columns are moved to where lines are, which may fit a program, unless there are too many positions.

    The base is not moved but added to what comes back, unless sums have more bits than its elements.
    """
    from genesis.ir.ops.sum_forms import faster_by_block
    lines, rows = base.type.shape[:2]
    if faster_by_block(lines, rows, index.type.shape[1], prod(index.type.shape[2:])):
        found = _by_block(base, index, source)
        if found is not None:
            return found
    if base.type.ndim == 2:
        return lines_added(base, index, source)
    outer, rows, inner = base.type.shape
    added_last = base.op.name != "const" and base.type.dtype.itemsize >= 4
    onto = full(base.type.shape, 0, base.type.dtype, base.type.device) if added_last else base
    moved = [reshaped(permute(x, axes=(0, 2, 1)) if x.op.name != "const" else x, (outer * inner, x.type.shape[1]))
             for x in (onto, _narrowed(index, rows), source)]
    found = permute(reshape(summed_in_parts(*moved), shape=(outer, inner, rows)), axes=(0, 2, 1))
    return base + found if added_last else found


MANY_MOVED: Final = 1 << 20
"""Elements of an index from which on it is narrowed where it is moved, 12 bytes fewer for each; with fewer the kernel
that reads at it moves it as it is."""


def _narrowed(index: Node, rows: int) -> Node:
    """The same numbers of sums in as few bytes as they have room in, as they are moved: what is outside stays there."""
    dtype = int16 if most(rows) < 1 << 15 else int32
    if (hint(index.type.numel) < MANY_MOVED or most(rows) >= 1 << 31
            or index.type.dtype.itemsize <= dtype.itemsize):
        return index
    return cast(minimum(maximum(index, full_like(index, -1)), full_like(index, rows)), dtype=dtype)


def _reference_columns(base: ndarray, index: ndarray, source: ndarray) -> ndarray:
    import numpy
    found = [_reference_lines(*(numpy.ascontiguousarray(x[..., i]) for x in (base, index, source)))
             for i in range(base.shape[2])] if base.ndim == 3 else []
    return numpy.stack(found, -1) if found else _reference_lines(base, index, source)


lines_summed: Op = Op("lines_summed", "index", _lines_or_columns_type, decompose=_lines_summed, differentiable=False,
                      ulp=4, opaque=Opaque("scatter", elementwise=2, constant_base=True, over_base=True),
                      doc="`lines_added` of lines whose sums fit the shared memory of a few programs: sums are made "
                          "there, with the same bits each time, and whole lines are written. Lines may be columns: "
                          "base (outer, rows, inner), index and source (outer, positions, inner).",
                      samples=cases(*(forward_only(case(reals().of(n, rows, *inner),
                                                        integers(0, rows).of(n, count, *inner),
                                                        reals().of(n, count, *inner)))
                                      for n, rows, count, *inner in ((3, 5, 9), (2, 40, 70), (1, 1, 3), (2, 5, 9, 3))),
                                    kinds=NUMERIC, scale=8), reference=_reference_columns)

def summed_in_parts(base: Node, index: Node, source: Node) -> Node:
    """`lines_summed`; of few long lines the parts of each are lines, and their sums are added up in order. Where it is
    faster, all positions are added at once (`sum_forms.py`)."""
    from genesis.ir.ops.sum_forms import parts_of_lines, rather_exact
    outer, rows, *inner = base.type.shape
    if rather_exact(outer, rows, index.type.shape[1], prod(inner), base.type.dtype):
        return exact_sums(base, index, source)
    if base.type.ndim != 2 or base.type.dtype.kind != "float":
        return lines_summed(base, index, source)
    (lines, rows), count = base.type.shape, index.type.shape[1]
    scaled = scales_sums(base.type.dtype)
    parts = parts_of_lines(hint(lines), hint(rows), hint(count), scaled) if most(rows) <= MOST_SUMS else 1
    if parts == 1:
        return lines_summed(base, index, source)
    total = base.type.dtype if base.type.dtype.itemsize >= 4 else float32
    source, length = cast(source, dtype=total), -(-count // parts)
    if count % parts:  # the last parts have positions more that add nothing
        more = (0, length * parts - count)
        index, source = _filled(index, more), pad(source, low=(0, 0), high=more, value=0)
    index, source = (reshape(x, shape=(lines * parts, length)) for x in (index, source))
    found = lines_summed(full((lines * parts, rows), 0, total, base.type.device), index, source)
    found = reshape(found, shape=(lines, parts, rows))
    summed = cast(base, dtype=total)
    for part in range(parts):
        summed = summed + reshape(take_range(found, 1, part, part + 1), shape=(lines, rows))
    return cast(summed, dtype=base.type.dtype)


def _filled(index: Node, more: tuple[int, int]) -> Node:
    """An index with so many positions more, at which 0 is added. Its check stays the last of what makes it: who adds
    takes that out of the loop, and so does not wait for what is loaded ahead."""
    moves, checked = [], index
    while checked.op.kind == "movement" and len(checked.inputs) == 1:
        moves.append(checked)
        checked = checked.inputs[0]
    if checked.op is not in_range:
        return pad(index, low=(0, 0), high=more, value=-1)
    found = checked.inputs[0]
    for move in reversed(moves):
        found = move.op(found, **move.attributes)
    return in_range(pad(found, low=(0, 0), high=more, value=0), **checked.attributes)
