"""Sorting along an axis. Equal elements keep their order; NaN is the largest; 0.0 and -0.0 are equal.

`sort` and `topk` are what programs say. The others are steps of their decomposition, for a backend that sorts a block
of elements at a time. A step's *word* is an int64 that is compared as a whole: the element's key (an integer in the
order of the elements) above 32 bits of its position, so that no two words are equal and every sort is stable. The
lowest bit says whether the element is -0.0, whose key is that of 0.0.
"""

from __future__ import annotations

import builtins
from math import prod, sqrt
from typing import Final

from genesis.ir.node import Node, Op, literal
from genesis.ir.opaque import Opaque
from genesis.ir.ops.control import item
from genesis.ir.ops.floats import bitcast, signbit
from genesis.ir.ops.indexing import gather, gather_type, scatter
from genesis.ir.ops.leaves import full, iota, zeros_like
from genesis.ir.ops.movement import concat, expand, inverse, pad, permute, reshape, take_range
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
from genesis.ir.ops.reduction import max, min, sum
from genesis.ir.ops.samples import (
    ANY,
    NUMERIC,
    Array,
    Samples,
    Values,
    ascending,
    case,
    cases,
    np,
    permutations,
    reals,
    shuffled,
)
from genesis.ir.ops.scan import cumsum
from genesis.ir.sym_int import most
from genesis.ir.types import DType, TensorType, bool_, float32, int16, int32, int64, uint8

NARROW_TILE: Final = 8192
"""The longest row that one program sorts when key and position share 32 bits: dtypes of 8 and 16 bits."""

WIDE_TILE: Final = 4096
"""The longest row that one program sorts in words of 64 bits: dtypes of 32 bits."""

RUN: Final = 1024
"""Elements of a longer row that are sorted at a time, to be merged."""

MOST_RUNS: Final = 16
"""The most runs that are merged; a row of more is sorted digit by digit."""

DIGIT: Final = 8
"""Bits of a digit."""

BLOCK: Final = 4096
"""Elements whose digits are counted together."""

FEW_BLOCKS: Final = 32
"""The most blocks whose counts each program of the next step adds up for itself: reading 32 KiB from the cache takes
less than the three launches of a scan."""

SHORT_COLUMN: Final = 256
"""The longest axis that is sorted where it lies although it is not the last; longer ones are moved there first."""


def tile_limit(x: TensorType) -> int:
    """The longest row of this dtype that one program sorts; 0 for 64-bit dtypes."""
    return {1: NARROW_TILE, 2: NARROW_TILE, 4: WIDE_TILE}.get(x.dtype.itemsize, 0)


def in_one_tile(x: TensorType, axis: int) -> bool:
    """Can one program sort a row (of several side by side, if the axis is not the last)?"""
    inner = prod(x.shape[axis + 1:])
    limit = tile_limit(x) if inner == 1 else builtins.min(tile_limit(x), SHORT_COLUMN)
    return bool(most(x.shape[axis]) <= limit)  # and so can it the longer ones that the same program is for


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


def _checked(x: TensorType, axis: int) -> None:
    if not 0 <= axis < x.ndim:
        raise IndexError(f"axis {axis} is not a dimension of shape {x.shape}")


def _pair(x: TensorType, axis: int, descending: bool) -> tuple[TensorType, TensorType]:
    _checked(x, axis)
    return x, x.with_dtype(int64)


def _sort_vjp(g: tuple[Node | None, ...], x: Node, y: Node, axis: int, descending: bool) -> Node | None:
    return None if g[0] is None else unsort(g[0], item(y, index=1), axis=axis)


def _order(x, axis: int, descending: bool):  # type: ignore[no-untyped-def]
    """numpy's stable order, NaN last."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    turned = np.flip(x, axis)  # the last of equal ones comes first in what is turned twice
    return x.shape[axis] - 1 - np.flip(np.argsort(turned, axis, kind="stable"), axis)


def _sorted(x, axis: int, descending: bool):  # type: ignore[no-untyped-def]
    order = _order(x, axis, descending)
    return np.take_along_axis(x, order, axis), order


def _sort(x: Node, axis: int, descending: bool) -> tuple[Node, ...]:
    """A row of some runs by merging them, a longer one digit by digit; 64-bit elements by halves."""
    shape, rank = x.type.shape, x.type.ndim
    if axis != rank - 1:
        to_end = (*(i for i in range(rank) if i != axis), axis)
        moved = sort(permute(x, axes=to_end), axis=rank - 1, descending=descending)
        return tuple(permute(item(moved, index=i), axes=inverse(to_end)) for i in (0, 1))
    if not x.type.numel:
        return x, full(shape, 0, int64, x.type.device)
    rows = reshape(x, shape=(prod(shape[:-1]), shape[-1]))
    if x.type.dtype.itemsize == 8:
        order = _wide_order(rows, descending)
        found = (gather(rows, order, axis=1), order)
    elif shape[-1] <= RUN * MOST_RUNS:
        merged = merge_runs(sort_runs(rows, descending=descending, run=RUN), run=RUN, dtype=x.type.dtype,
                            descending=descending)
        found = (item(merged, index=0), item(merged, index=1))
    else:
        found = _by_digits(rows, descending)
    return tuple(reshape(y, shape=shape) for y in found)


def _by_digits(rows: Node, descending: bool, bits: int = 0) -> tuple[Node, Node]:
    """Stable sorts by one digit after another, the lowest first (Hollerith 1889), of the lowest `bits` of the keys.

    The scan over the counts of (row, digit, block) says where the elements of a block with a digit go: after those with
    smaller digits, and after those of earlier blocks with the same one. Few counts are added up by whoever wants them.
    Words are made of the elements by the first steps, and elements of the words by the last one.
    """
    dtype, found = rows.type.dtype, rows
    few = most(rows.type.shape[0] * _blocks(rows.type)) <= FEW_BLOCKS
    last = 32 + (bits or 8 * dtype.itemsize) - 1
    for shift in range(32, last + 1, DIGIT):
        counts = digit_counts(found, shift=shift, descending=descending)
        table = counts if few else cumsum(reshape(counts, shape=(counts.type.numel,)), axis=0)
        if shift + DIGIT > last:
            pair = digit_elements(found, table, shift=shift, dtype=dtype, descending=descending)
            return item(pair, index=0), item(pair, index=1)
        found = digit_scatter(found, table, shift=shift, descending=descending)
    raise AssertionError("keys have no digits")


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


def sorted_numbers(numbers: Node, below: int) -> tuple[Node, Node]:
    """A row of int32 from 0 up to, and without, `below` in order, and where each was: as `sort`, but only the digits
    that such numbers have are looked at."""
    count, = numbers.type.shape
    if count <= RUN * MOST_RUNS:
        found = sort(numbers, axis=0)
        return item(found, index=0), item(found, index=1)
    bits = builtins.max(most(below) - 1, 1).bit_length()
    values, order = _by_digits(reshape(numbers, shape=(1, count)), False, bits)
    return reshape(values, shape=(count,)), reshape(order, shape=(count,))


def grouped_words(numbers: Node, below: int, low: int) -> Node:
    """Words (1, count) of a row of int32 from 0 up to, and without, `below`, in the order of what is above their `low`
    lowest bits; those that are equal there stay in their order."""
    found = reshape(numbers, shape=(1, numbers.type.numel))
    few = most(_blocks(found.type)) <= FEW_BLOCKS
    for shift in range(32 + low, 32 + builtins.max(most(below) - 1, 1).bit_length(), DIGIT):
        counts = digit_counts(found, shift=shift)
        table = counts if few else cumsum(reshape(counts, shape=(counts.type.numel,)), axis=0)
        found = digit_scatter(found, table, shift=shift)
    return found


def _wide_order(rows: Node, descending: bool) -> Node:
    """64-bit keys in two stable sorts: by the lower half, then by the upper."""
    keys = ordered(rows)
    keys = bitwise_not(keys) if descending else keys
    low = cast(bitwise_xor(keys, literal(1 << 31)), dtype=int32)  # unsigned order as signed order
    first = item(sort(low, axis=1), index=1)
    high = cast(right_shift(keys, literal(32)), dtype=int32)
    second = item(sort(gather(high, first, axis=1), axis=1), index=1)
    return gather(first, second, axis=1)


def _sorting(values: Values) -> Samples:
    special = Array((float("nan"), 1.0, float("-inf"), 0.0, -0.0, float("inf"), 1.0, float("nan")))
    return cases(*(case(x, axis=a, descending=d) for d in (False, True) for x, a in (
        (values.of(7), 0), (values.of(3, 40), 1), (values.of(4, 3), 0), (values.of(2, 5, 3), 1), (values.of(1), 0),
        (values.of(2, 0), 1), (values.of(0, 3), 1), (special, 0))), kinds=ANY)


sort: Op = Op("sort", "sort", _pair, attrs=("axis", "descending"), defaults={"descending": False}, vjp=_sort_vjp,
              opaque=Opaque("sort", elementwise=1),
              decompose=_sort, differentiable=True,
              doc="The elements in order along the axis, and where each was (int64). Equal ones keep their order, NaN "
                  "is the largest.", samples=_sorting(reals()), reference=_sorted)


def _unsort_type(x: TensorType, index: TensorType, axis: int) -> TensorType:
    gather_type(x, index, axis)
    if index.shape != x.shape:
        raise RuntimeError(f"an index of shape {index.shape} is no permutation of {x.shape}")
    return x


def _unsorted(x, index, axis: int):  # type: ignore[no-untyped-def]
    result = x.copy()
    np.put_along_axis(result, index, x, axis)
    return result


unsort: Op = Op("unsort", "sort", _unsort_type, attrs=("axis",), opaque=Opaque("sort", elementwise=2),
                doc="result[.., index[i], ..] = x[.., i, ..]: the inverse of a gather by an index that is a "
                    "permutation along the axis.",
                vjp=lambda g, x, index, y, axis: (gather(g, index, axis=axis), None),
                samples=cases(*(case(reals().of(*shape), permutations(axis).of(*shape), axis=axis)
                                for shape, axis in (((7,), 0), ((3, 4), 1), ((3, 4), 0), ((0,), 0))), kinds=ANY),
                reference=_unsorted)


def _top_type(x: TensorType, k: int, axis: int, largest: bool) -> tuple[TensorType, TensorType]:
    _checked(x, axis)
    if not 0 <= k <= x.shape[axis]:
        raise RuntimeError(f"selected index k out of range: k is {k}, dimension {axis} has {x.shape[axis]} elements")
    few = x.with_shape((*x.shape[:axis], k, *x.shape[axis + 1:]))
    return few, few.with_dtype(int64)


def _top_vjp(g: tuple[Node | None, ...], x: Node, y: Node, k: int, axis: int, largest: bool) -> Node | None:
    return None if g[0] is None else scatter(zeros_like(x), item(y, index=1), g[0], axis=axis)


def _top(x: Node, k: int, axis: int, largest: bool) -> tuple[Node, ...]:
    """Searches by groups of neighbours: the k largest are in the k groups with the largest maxima (the earlier of
    equal ones).

    So a row is read once for its groups' maxima; the rest happens among these and in k groups.
    """
    rank, length = x.type.ndim, x.type.shape[axis]
    group = group_size(length, k)
    if not group or not k:
        everything = sort(x, axis=axis, descending=largest)
        return tuple(take_range(item(everything, index=i), axis, 0, k) for i in (0, 1))
    if axis != rank - 1:
        to_end = (*(i for i in range(rank) if i != axis), axis)
        moved = topk(permute(x, axes=to_end), k=k, axis=rank - 1, largest=largest)
        return tuple(permute(item(moved, index=i), axes=inverse(to_end)) for i in (0, 1))
    shape, device, integer = x.type.shape, x.type.device, int32 if length < 2**31 else int64
    rows, groups = prod(shape[:-1]), -(-length // group)
    rest = (0, groups * group - length)
    padded = pad(reshape(x, shape=(rows, length)), low=(0, 0), high=rest, value=_last(x, largest))
    keys = reshape(ordered(padded), shape=(rows, groups, group))
    best = (max if largest else min)(keys, axes=(2,))
    chosen = item(topk(best, k=k, axis=1, largest=largest), index=1)
    chosen = item(sort(cast(chosen, dtype=integer), axis=1), index=0)  # in order, so that equal elements stay in theirs
    shape_of_few = (rows, k, group)
    first = expand(reshape(chosen * group, shape=(rows, k, 1)), shape=shape_of_few)
    places = reshape(first + iota(shape=shape_of_few, axis=2, dtype=integer, device=device), shape=(rows, k * group))
    found = topk(gather(padded, places, axis=1), k=k, axis=1, largest=largest)
    indices = cast(gather(places, item(found, index=1), axis=1), dtype=int64)
    return tuple(reshape(y, shape=(*shape[:-1], k)) for y in (item(found, index=0), indices))


def group_size(length: int, k: int) -> int:
    """How many neighbours make a group: a power of two near √(length / k), which leaves the least to do; 0 for none."""
    wanted = sqrt(length / k) if k else 0
    group = 1
    while 2 * group * 3 <= 4 * wanted:
        group *= 2
    return group if group > 1 and k * group * 2 <= length else 0


def _last(x: Node, largest: bool) -> bool | int | float:
    """A value that no element comes after."""
    dtype = x.type.dtype
    if dtype.kind == "float":
        return float("-inf") if largest else float("nan")
    if dtype is bool_:
        return not largest
    return int((dtype.min if largest else dtype.max) or 0)


def _first_sorted(x, k: int, axis: int, largest: bool):  # type: ignore[no-untyped-def]
    order = np.take(_order(x, axis, largest), range(k), axis)
    return np.take_along_axis(x, order, axis), order


topk: Op = Op("topk", "sort", _top_type, attrs=("k", "axis", "largest"), defaults={"largest": True}, vjp=_top_vjp,
              opaque=Opaque("sort", elementwise=1),
              decompose=_top, differentiable=True,
              doc="The k largest (or smallest) elements along the axis, in order, and where they are (int64). Which of "
                  "equal elements come first is left to the backend.",
              samples=cases(*(case(shuffled(n).of(*shape), k=k, axis=axis, largest=largest)
                              for largest in (True, False) for n, shape, axis, k in (
                  (7, (7,), 0, 3), (90, (3, 30), 1, 5), (120, (120,), 0, 4), (12, (4, 3), 0, 2), (24, (2, 4, 3), 1, 4),
                  (5, (5,), 0, 0))), kinds=NUMERIC),
              reference=_first_sorted)


# Steps for a backend that sorts a block at a time

def _words_type(x: TensorType, descending: bool, run: int) -> TensorType:
    if x.ndim != 2 or x.dtype.itemsize == 8:
        raise RuntimeError(f"words are made of rows of at most 32 bits, not of {x}")
    return x.with_dtype(int64)


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


def _runs_of(words: Node, run: int) -> Node:
    """Runs sorted by `sort` itself: what the steps mean, for a backend that has no kernel for them."""
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

__all__ = ["digit_counts", "digit_elements", "digit_scatter", "grouped_words", "in_one_tile", "merge_runs", "ordered",
           "sort", "sort_runs", "sorted_numbers", "tile_limit", "topk", "turn_of", "unsort"]
