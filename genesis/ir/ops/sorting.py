"""Sorting along an axis, and the first elements of that order. Equal elements keep their order; NaN is the largest;
0.0 and -0.0 are equal.

`sort` and `topk` are what programs say. What one program of a backend does not sort at once is taken apart into the
steps of `sort_steps.py`.
"""

from __future__ import annotations

import builtins
from math import prod, sqrt
from typing import Final

from genesis.ir.node import Node, Op, literal
from genesis.ir.opaque import Opaque
from genesis.ir.ops.control import item
from genesis.ir.ops.indexing import gather, gather_type, scatter
from genesis.ir.ops.leaves import full, iota, zeros_like
from genesis.ir.ops.movement import expand, inverse, pad, permute, reshape, take_range
from genesis.ir.ops.pointwise import bitwise_not, bitwise_xor, cast, right_shift
from genesis.ir.ops.reduction import max, min
from genesis.ir.ops.samples import ANY, NUMERIC, Array, Samples, Values, case, cases, np, permutations, reals, shuffled
from genesis.ir.ops.sort_steps import by_digits, by_runs, is_few_runs, ordered
from genesis.ir.sym_int import most
from genesis.ir.types import TensorType, bool_, int32, int64

TILE_OF_32_BITS: Final = 8192
"""The longest row that one program sorts in words of 32 bits, half of them the key: dtypes of 8 and 16 bits."""

TILE_OF_64_BITS: Final = 4096
"""The longest row that one program sorts in words of 64 bits: dtypes of 32 bits."""

SHORT_COLUMN: Final = 256
"""The longest axis that is sorted where it lies although it is not the last; longer ones are moved there first."""


def _tile_limit(x: TensorType) -> int:
    """The longest row of this dtype that one program sorts; 0 for 64-bit dtypes."""
    return {1: TILE_OF_32_BITS, 2: TILE_OF_32_BITS, 4: TILE_OF_64_BITS}.get(x.dtype.itemsize, 0)


def in_one_tile(x: TensorType, axis: int) -> bool:
    """Can one program sort a row (of several side by side, if the axis is not the last)?"""
    inner = prod(x.shape[axis + 1:])
    limit = _tile_limit(x) if inner == 1 else builtins.min(_tile_limit(x), SHORT_COLUMN)
    return bool(most(x.shape[axis]) <= limit)  # and so can it the longer ones that the same program is for


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
        order = _order_of_64_bits(rows, descending)
        found = (gather(rows, order, axis=1), order)
    else:
        found = (by_runs if is_few_runs(shape[-1], rows.type.shape[0]) else by_digits)(rows, descending)
    return tuple(reshape(y, shape=shape) for y in found)


def sorted_numbers(numbers: Node, below: int) -> tuple[Node, Node]:
    """A row of int32 from 0 up to, and without, `below` in order, and where each was: as `sort`, but only the digits
    that such numbers have are looked at."""
    count, = numbers.type.shape
    if is_few_runs(count, 1):
        found = sort(numbers, axis=0)
        return item(found, index=0), item(found, index=1)
    bits = builtins.max(most(below) - 1, 1).bit_length()
    values, order = by_digits(reshape(numbers, shape=(1, count)), False, bits)
    return reshape(values, shape=(count,)), reshape(order, shape=(count,))


def _order_of_64_bits(rows: Node, descending: bool) -> Node:
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

__all__ = ["in_one_tile", "sort", "sorted_numbers", "topk", "unsort"]
