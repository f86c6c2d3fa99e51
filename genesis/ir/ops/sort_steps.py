"""The steps of a sort for a backend that sorts a block of elements at a time: runs that are merged, or digit by digit.

A step's *word* is an int64 that is compared as a whole: the element's key (an integer in the order of the elements)
above 32 bits of its position, so that no two words are equal and every sort is stable. The lowest bit says whether the
element is -0.0, whose key is that of 0.0.
"""

from __future__ import annotations

import builtins
from typing import Final

from genesis.ir.node import Node, Op, literal
from genesis.ir.opaque import Opaque
from genesis.ir.ops.control import item
from genesis.ir.ops.floats import bitcast, signbit
from genesis.ir.ops.indexing import gather
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import concat, expand, pad, reshape, take_range
from genesis.ir.ops.pointwise import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cast,
    eq,
    isnan,
    left_shift,
    lt,
    ne,
    right_shift,
    where_,
)
from genesis.ir.ops.reduction import sum
from genesis.ir.ops.samples import Values, ascending, case, cases, np
from genesis.ir.ops.scan import cumsum
from genesis.ir.sym_int import hint, most
from genesis.ir.types import DType, TensorType, bool_, float32, int16, int32, int64, uint8

RUN: Final = 1024
"""Elements of a longer row that are sorted at a time, to be merged."""

MOST_RUNS: Final = 16
"""The most runs that are merged; a row of more is sorted digit by digit."""

MERGED_RUNS: Final = 128
"""The most runs, of all rows, that are merged: each takes 0.27 µs and the steps by digits 40 together, so that these
are faster for more (H200, 2026-11)."""

DIGIT: Final = 8
"""Bits of a digit."""

BLOCK: Final = 4096
"""Elements whose digits are counted together."""

FEW_BLOCKS: Final = 32
"""The most blocks whose counts each program of the next step adds up for itself: reading 32 KiB from the cache takes
less than the three launches of a scan."""


def is_few_runs(length: int, rows: int) -> bool:
    """Whether rows of this length are sorted by merging runs; longer ones, or more of them, are sorted by digits."""
    return length <= RUN * MOST_RUNS and hint(length * rows) <= RUN * MERGED_RUNS


def by_runs(rows: Node, descending: bool) -> tuple[Node, Node]:
    """Rows of a few runs, sorted one by one and merged: the elements, and where they were."""
    merged = merge_runs(sort_runs(rows, descending=descending, run=RUN), run=RUN, dtype=rows.type.dtype,
                        descending=descending)
    return item(merged, index=0), item(merged, index=1)


def by_digits(rows: Node, descending: bool, bits: int = 0) -> tuple[Node, Node]:
    """Stable sorts by one digit after another, the lowest first (Hollerith 1889), of the lowest `bits` of the keys.

    The scan over the counts of (row, digit, block) says where the elements of a block with a digit go: after those with
    smaller digits, and after those of earlier blocks with the same one. Words are made of the elements by the first
    steps, and elements of the words by the last one.
    """
    dtype, found = rows.type.dtype, rows
    last = 32 + (bits or 8 * dtype.itemsize) - 1
    for shift in range(32, last + 1, DIGIT):
        table = _table(found, shift, descending)
        if shift + DIGIT > last:
            pair = digit_elements(found, table, shift=shift, dtype=dtype, descending=descending)
            return item(pair, index=0), item(pair, index=1)
        found = digit_scatter(found, table, shift=shift, descending=descending)
    raise AssertionError("keys have no digits")


def grouped_words(numbers: Node, below: int, low: int) -> Node:
    """Words (1, count) of a row of int32 from 0 up to, and without, `below`, in the order of what is above their `low`
    lowest bits; those that are equal there stay in their order."""
    found = reshape(numbers, shape=(1, numbers.type.numel))
    for shift in range(32 + low, 32 + builtins.max(most(below) - 1, 1).bit_length(), DIGIT):
        found = digit_scatter(found, _table(found, shift, False), shift=shift)
    return found


def _table(x: Node, shift: int, descending: bool) -> Node:
    """How often each digit occurs, as running sums; few counts are added up by whoever wants them."""
    counts = digit_counts(x, shift=shift, descending=descending)
    few = hint(x.type.shape[0] * _blocks(x.type)) <= FEW_BLOCKS
    return counts if few else cumsum(reshape(counts, shape=(counts.type.numel,)), axis=0)


# Words

def ordered(x: Node) -> Node:
    """Integers of the elements' size in the order of the elements; of 16 bits for those of 8."""
    dtype = x.type.dtype
    if dtype.kind != "float":
        return cast(x, dtype=int16) if dtype.itemsize == 1 else x
    whole = {2: int16, 4: int32, 8: int64}[dtype.itemsize]
    top = literal(int(whole.max or 0))
    bits = bitcast(x + 0.0, dtype=whole)  # -0.0 + 0.0 = 0.0
    # Without its sign a negative float's bits grow as it falls: turn them over.
    return where_(isnan(x), top, where_(lt(bits, literal(0)), bitwise_xor(bits, top), bits))


def _words(x: Node, descending: bool) -> Node:
    """The elements of rows as words."""
    keys = cast(ordered(x), dtype=int64)
    low = left_shift(iota(shape=x.type.shape, axis=1, dtype=int64, device=x.type.device), literal(1))
    if x.type.dtype.kind == "float":
        low = bitwise_or(low, cast(bitwise_and(eq(x, literal(0.0)), signbit(x)), dtype=int64))
    return bitwise_or(left_shift(bitwise_not(keys) if descending else keys, literal(32)), low)


def _elements(words: Node, dtype: DType, descending: bool) -> tuple[Node, Node]:
    """The elements of words, and their positions."""
    keys = right_shift(words, literal(32))
    keys = bitwise_not(keys) if descending else keys
    index = right_shift(bitwise_and(words, literal(0xFFFFFFFF)), literal(1))
    if dtype.kind != "float":
        return cast(keys, dtype=dtype), index
    whole = {2: int16, 4: int32}[dtype.itemsize]
    top = literal(int(whole.max or 0))
    bits = cast(keys, dtype=whole)
    value = bitcast(where_(lt(bits, literal(0)), bitwise_xor(bits, top), bits), dtype=dtype)
    return where_(ne(bitwise_and(words, literal(1)), literal(0)), -value, value), index


def turn_of(dtype: DType) -> int:
    """The sign of words' keys: turned over, their lowest digits are in the keys' order as unsigned numbers."""
    bits = 8 * dtype.itemsize
    return 0 if dtype in (uint8, bool_) else -(1 << 63) if bits == 32 else 1 << (31 + bits)


def _turned(words: Node, dtype: DType) -> Node:
    turn = turn_of(dtype)
    return bitwise_xor(words, literal(turn)) if turn else words


def _as_words(x: Node, descending: bool) -> Node:
    """Rows of words, which elements become."""
    return x if x.type.dtype is int64 else _turned(_words(x, descending), x.type.dtype)


# Runs

def _words_type(x: TensorType, descending: bool, run: int) -> TensorType:
    if x.ndim != 2 or x.dtype.itemsize == 8:
        raise RuntimeError(f"words are made of rows of at most 32 bits, not of {x}")
    return x.with_dtype(int64)


def _runs_of(words: Node, run: int) -> Node:
    """Runs sorted by `sort` itself: what the steps mean, for a backend that has no kernel for them."""
    from genesis.ir.ops.sorting import sort
    length = words.type.shape[1]
    parts = [item(sort(take_range(words, 1, start, builtins.min(start + run, length)), axis=1), index=0)
             for start in range(0, length, run)]
    return concat(*parts, axis=1) if len(parts) > 1 else parts[0] if parts else words


def _reference_words(x, descending: bool, run: int):  # type: ignore[no-untyped-def]
    """The words of float32 and integers, by numpy."""
    keys, zero = x.astype("int64"), 0
    if x.dtype.kind == "f":
        bits = (x + 0.0).astype("float32").view("int32").astype("int64")
        keys = np.where(np.isnan(x), 0x7FFFFFFF, np.where(bits < 0, bits ^ 0x7FFFFFFF, bits))
        zero = ((x == 0) & np.signbit(x)).astype("int64")
    words = ((~keys if descending else keys) << 32) | (2 * np.arange(x.shape[1])) | zero
    parts = [np.sort(words[:, start:start + run], 1) for start in range(0, words.shape[1], run)]
    return np.concatenate(parts or [words], 1)


sort_runs: Op = Op("sort_runs", "sort", _words_type, attrs=("descending", "run"), defaults={"descending": False},
                   opaque=Opaque("sort", elementwise=1),
                   differentiable=False, doc="Rows (n, m) as words, each run of `run` neighbours sorted.",
                   decompose=lambda x, descending, run: _runs_of(_words(x, descending), run),
                   samples=cases(*(case(Values(-9, 9, dtype).of(3, 37), descending=d, run=r)
                                   for dtype in (float32, int32, uint8, bool_)
                                   for d in (False, True) for r in (64, 16)), kinds=("bool",)),
                   reference=_reference_words)


def _merge_type(words: TensorType, run: int, dtype: DType, descending: bool) -> tuple[TensorType, TensorType]:
    if words.ndim != 2 or words.dtype is not int64:
        raise RuntimeError(f"words are int64 in rows, not {words}")
    return words.with_dtype(dtype), words


def _reference_merge(words, run: int, dtype: DType, descending: bool):  # type: ignore[no-untyped-def]
    """Merged words of integers, by numpy."""
    found = np.sort(words, 1)
    keys = found >> 32
    return ~keys if descending else keys, (found & 0xFFFFFFFF) >> 1


merge_runs: Op = Op("merge_runs", "sort", _merge_type, attrs=("run", "dtype", "descending"), opaque=Opaque("long_sort"),
                    defaults={"descending": False}, differentiable=False,
                    doc="Rows of words in sorted runs of `run` neighbours → the elements of this dtype in order, and "
                        "their positions.",
                    decompose=lambda words, run, dtype, descending: _elements(
                        _runs_of(words, words.type.shape[1]), dtype, descending),
                    samples=cases(*(case(ascending(-2**60, 2**60, int64, run).of(2, size), run=run, dtype=int32,
                                         descending=d) for run, size, d in (
                        (16, 37, False), (16, 100, True), (8, 50, False), (16, 16, False), (32, 64, True))),
                        kinds=("bool",)), reference=_reference_merge)


# Digits

def _blocks(words: TensorType) -> int:
    return -(-words.shape[1] // BLOCK)


def _counts_type(x: TensorType, shift: int, descending: bool) -> TensorType:
    if x.ndim != 2 or (x.dtype.itemsize == 8 and x.dtype is not int64):
        raise RuntimeError(f"digits are counted of rows of words, or of elements of at most 32 bits, not of {x}")
    return x.with_shape((x.shape[0], 1 << DIGIT, _blocks(x))).with_dtype(int32)


def _digits(words: Node, shift: int) -> Node:
    return bitwise_and(right_shift(words, literal(shift)), literal((1 << DIGIT) - 1))


def _counts(x: Node, shift: int, descending: bool) -> Node:
    """A comparison with every digit; a block that reaches past the end has digits that are none."""
    rows, length = x.type.shape
    blocks = _blocks(x.type)
    digits = pad(_digits(_as_words(x, descending), shift), low=(0, 0), high=(0, blocks * BLOCK - length), value=-1)
    shape = (rows, 1 << DIGIT, blocks, BLOCK)
    same = eq(expand(reshape(digits, shape=(rows, 1, blocks, BLOCK)), shape=shape),
              iota(shape=shape, axis=1, dtype=int64, device=x.type.device))
    return sum(cast(same, dtype=int32), axes=(3,))


def _reference_counts(words, shift: int, descending: bool):  # type: ignore[no-untyped-def]
    """How often each digit occurs in each block of words."""
    digits = (words >> shift) & ((1 << DIGIT) - 1)
    blocks = [digits[:, start:start + BLOCK] for start in range(0, words.shape[1], BLOCK)]
    found = [[np.bincount(row, minlength=1 << DIGIT) for row in block] for block in blocks]
    return np.array(found, "int32").transpose(1, 2, 0)


digit_counts: Op = Op("digit_counts", "sort", _counts_type, attrs=("shift", "descending"), differentiable=False,
                      defaults={"descending": False}, opaque=Opaque("long_sort"),
                      doc="How often each digit of the words' bits from `shift` on occurs in each block of a row: "
                          "(rows, digits, blocks), int32. Elements of less than 64 bits become words first.",
                      decompose=_counts,
                      samples=cases(*(case(Values(-2**40, 2**40, int64).of(*s), shift=k) for s, k in (
                          ((2, 37), 32), ((1, 5000), 34))), kinds=("bool",)), reference=_reference_counts)


def _scatter_type(x: TensorType, table: TensorType, shift: int, descending: bool) -> TensorType:
    counted = _counts_type(x, shift, descending)
    if table.shape not in (counted.shape, (counted.numel,)):
        raise RuntimeError(f"{table} is neither {counted.numel} counts nor their ends")
    return x.with_dtype(int64)


def _by_digit(x: Node, table: Node, shift: int, descending: bool) -> Node:
    from genesis.ir.ops.sorting import sort
    words = _as_words(x, descending)
    order = item(sort(cast(_digits(words, shift), dtype=int32), axis=1), index=1)
    return gather(words, order, axis=1)


def _elements_type(x: TensorType, table: TensorType, shift: int, dtype: DType,
                   descending: bool) -> tuple[TensorType, TensorType]:
    words = _scatter_type(x, table, shift, descending)
    return words.with_dtype(dtype), words


_ENDS: Final = Values(37, 37, int32).of(1 << DIGIT)
"""Running sums of the counts of 37 words with digit 0."""

digit_scatter: Op = Op("digit_scatter", "sort", _scatter_type, attrs=("shift", "descending"), differentiable=False,
                       defaults={"descending": False}, opaque=Opaque("long_sort"),
                       doc="Rows of words, or of elements that become words, sorted by the digit of their bits from "
                           "`shift` on, those of equal digits in their order. The table is `digit_counts`, or in one "
                           "dimension its running sums.", decompose=_by_digit,
                       samples=cases(case(Values(0, 2**32 - 1, int64).of(1, 37), _ENDS, shift=32), kinds=("bool",)),
                       reference=lambda x, table, shift, descending: x)

digit_elements: Op = Op("digit_elements", "sort", _elements_type, attrs=("shift", "dtype", "descending"),
                        differentiable=False, defaults={"descending": False}, opaque=Opaque("long_sort"),
                        doc="`digit_scatter`, and what the words then stand for: elements of a dtype, and where they "
                            "were (int64).",
                        decompose=lambda x, table, shift, dtype, descending: _elements(
                            _turned(_by_digit(x, table, shift, descending), dtype), dtype, descending),
                        samples=cases(case(Values(0, 2**32 - 1, int64).of(1, 37), _ENDS, shift=32, dtype=uint8),
                                      kinds=("bool",)),
                        reference=lambda x, table, shift, dtype, descending: (x >> 32, (x & 0xFFFFFFFF) >> 1))

__all__ = ["BLOCK", "DIGIT", "MOST_RUNS", "RUN", "by_digits", "by_runs", "digit_counts", "digit_elements",
           "digit_scatter", "grouped_words", "is_few_runs", "merge_runs", "ordered", "sort_runs", "turn_of"]
