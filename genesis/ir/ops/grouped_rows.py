"""Rows added to a table by a long index: its numbers are sorted by their high bits alone, into groups of neighbours.

A group is `members` neighbouring rows, a power of two. Sorting by a group's number takes a digit or two, where a whole
sort takes two to four; within its group each row of the table looks for its own positions, as `rows_summed` does in a
short index. A group that is hit so often that it fills chunks of the sorted words has their sums made before, by
programs of their own: a row that every position hits is shared out like any other.

Everything is in rows: base is (outer, rows, inner), source (outer, positions, inner), words (1, positions) as
`ops/sort_steps.py` has them: a row's number above 32 bits of twice its position.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, Op, literal
from genesis.ir.opaque import Opaque
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import bitwise_and, cast, right_shift
from genesis.ir.ops.samples import NUMERIC, ascending, case, cases, forward_only, np, reals
from genesis.ir.sym_int import most
from genesis.ir.types import TensorType, float32, int32, int64

if TYPE_CHECKING:
    from numpy import ndarray

MOST_BITS: Final = 9
"""Maximum bits of a row's number within its group: each row looks through what its group was hit by."""

FEWEST: Final = 512
"""Minimum positions of a chunk; a chunk has four for each member of a group, so that sums are few beside the source."""

NUMBER: Final = (1 << 31) - 1
"""The bits of a word's upper half that are the row's number: sorting turns the sign over."""


def group_bits(rows: int, digit: int) -> int:
    """Bits of a row's number that are not sorted by, where digits of so many bits are.

    >>> group_bits(20439, 8), group_bits(1 << 20, 8), group_bits(200, 8)
    (7, 4, 0)
    """
    bits = max(most(rows) - 1, 1).bit_length()
    passes = max(1, -(-(bits - MOST_BITS) // digit))
    return max(bits - passes * digit, 0)


def _unpacked(words: Node) -> tuple[Node, Node]:
    """The numbers of rows, and the positions, of words."""
    flat = reshape(words, shape=(words.type.numel,))
    rows = bitwise_and(right_shift(flat, literal(32)), literal(NUMBER))
    return rows, right_shift(bitwise_and(flat, literal(0xFFFFFFFF)), literal(1))


def require_words(source: TensorType, words: TensorType) -> None:
    """Raise unless there is a word for each of the source's rows."""
    if source.ndim != 3 or words.dtype is not int64 or words.shape != (1, source.shape[1]):
        raise RuntimeError(f"source {source} and words {words} do not fit")


def _parts_type(words: TensorType, source: TensorType, bits: int, chunk: int) -> TensorType:
    require_words(source, words)
    dtype = source.dtype
    held = float32 if dtype.kind == "float" and dtype.itemsize < 4 else int32 if dtype.itemsize < 4 else dtype
    return source.with_dtype(held).with_shape((source.shape[0], source.shape[1] // chunk, 1 << bits, source.shape[2]))


def _parts(words: Node, source: Node, bits: int, chunk: int) -> Node:
    """All chunks' sums side by side, as a table with a row for each member of each chunk."""
    from genesis.ir.ops.indexing import index_add, take
    from genesis.ir.ops.leaves import full, iota
    from genesis.ir.ops.movement import take_range
    found = _parts_type(words.type, source.type, bits, chunk)
    outer, chunks, members, inner = found.shape
    rows, places = (take_range(x, 0, 0, chunks * chunk) for x in _unpacked(words))
    place = iota(shape=(chunks, chunk), axis=0, dtype=int64, device=words.type.device)
    at = reshape(place, shape=(chunks * chunk,)) * members + bitwise_and(rows, literal(members - 1))
    added = cast(take(source, places, axis=1), dtype=found.dtype)
    return reshape(index_add(full((outer, chunks * members, inner), 0, found.dtype, source.type.device), at, added,
                             axis=1), shape=found.shape)


def _reference_parts(words: ndarray, source: ndarray, bits: int, chunk: int) -> ndarray:
    outer, count, inner = source.shape
    found = np.zeros((outer, count // chunk, 1 << bits, inner), source.dtype)
    for p, word in enumerate(words[0][:count // chunk * chunk]):
        found[:, p // chunk, (word >> 32) & ((1 << bits) - 1)] += source[:, (word & 0xFFFFFFFF) >> 1]
    return found


group_parts: Op = Op("group_parts", "index", _parts_type, attrs=("bits", "chunk"), decompose=_parts, ulp=4,
                     differentiable=False, opaque=Opaque("scatter"),
                     doc="(outer, chunks, members, inner): of each whole chunk of words that lies in one group, the "
                         "sums of the source's rows at its positions, a row for each member of the group. Of a chunk "
                         "that lies in several nothing is said.",
                     samples=cases(*(forward_only(case(ascending(0, 2 * n - 1, int64).of(1, n), reals().of(s, n, 3),
                                                       bits=b, chunk=16)) for s, n, b in ((1, 37, 0), (2, 32, 1))),
                                   kinds=NUMERIC, scale=8), reference=_reference_parts)


def _sums_type(base: TensorType, words: TensorType, source: TensorType, *parts: TensorType, bits: int,
               chunk: int) -> TensorType:
    require_words(source, words)
    if base.ndim != 3 or base.shape[::2] != source.shape[::2] or source.dtype is not base.dtype:
        raise RuntimeError(f"rows of {source} do not fit {base}")
    return base


def add_words(base: Node, words: Node, source: Node) -> Node:
    """base with the source's rows added, one for each word."""
    from genesis.ir.ops.indexing import index_add, take
    rows, places = _unpacked(words)
    return index_add(base, rows, take(source, places, axis=1), axis=1)


def added_words(base: ndarray, words: ndarray, source: ndarray) -> ndarray:
    """`add_words`, by numpy."""
    result = base.copy()
    for word in words[0]:
        result[:, (word >> 32) & NUMBER] += source[:, (word & 0xFFFFFFFF) >> 1]
    return result


def _sums(base: Node, words: Node, source: Node, *parts: Node, bits: int, chunk: int) -> Node:
    return add_words(base, words, source)


def _reference_sums(base: ndarray, words: ndarray, source: ndarray, *parts: ndarray, bits: int,
                    chunk: int) -> ndarray:
    return added_words(base, words, source)


group_sums: Op = Op("group_sums", "index", _sums_type, attrs=("bits", "chunk"), decompose=_sums, ulp=4,
                    differentiable=False, opaque=Opaque("scatter", constant_base=True, over_base=True),
                    doc="base with the source's rows added by words in the order of their groups, those of 2^bits "
                        "rows. With `group_parts` as last operand whole chunks in one group are not added up again.",
                    samples=cases(*(forward_only(case(reals().of(s, rows, 3), ascending(0, 2 * n - 1, int64).of(1, n),
                                                      reals().of(s, n, 3), bits=1, chunk=64))
                                    for s, rows, n in ((1, 5, 37), (2, 4, 16))), kinds=NUMERIC, scale=8),
                    reference=_reference_sums)


def rows_by_group(base: Node, index: Node, source: Node) -> Node:
    """base with the source's rows added, by sorting the index by groups."""
    from genesis.ir.ops.sort_steps import DIGIT, grouped_words
    rows, count = base.type.shape[1], prod(index.type.shape)
    bits = group_bits(rows, DIGIT)
    chunk = max(FEWEST, 4 << bits)
    words = grouped_words(cast(index, dtype=int32), rows, bits)
    parts = (group_parts(words, source, bits=bits, chunk=chunk),) if count >= chunk else ()
    return group_sums(base, words, source, *parts, bits=bits, chunk=chunk)


__all__ = ["NUMBER", "add_words", "added_words", "group_bits", "group_parts", "group_sums", "require_words",
           "rows_by_group"]
