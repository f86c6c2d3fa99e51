"""Where values belong in sorted rows, and where the elements are that are not 0."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final, Literal

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.indexing import gather, take
from genesis.ir.ops.leaves import const, full, iota, zeros_like
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import (
    bitwise_and,
    bitwise_not,
    cast,
    floor_divide,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    ne,
    remainder,
    right_shift,
    where_,
)
from genesis.ir.ops.reduction import argmax, argmin
from genesis.ir.ops.samples import ANY, NUMERIC, Array, Values, ascending, case, cases, chosen, np, reals
from genesis.ir.ops.scan import cumsum
from genesis.ir.sym_int import SymInt
from genesis.ir.types import DType, TensorType, bool_, int32, int64, tensor_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy import ndarray

    from genesis.ir.ops.samples import Samples


def _places_type(rows: TensorType, values: TensorType, right: bool, dtype: DType) -> TensorType:
    if rows.ndim != 1 and rows.shape[:-1] != values.shape[:-1]:
        raise RuntimeError("the sorted sequence must have one dimension, or the values' dimensions but for the last: "
                           f"{rows.shape} and {values.shape}")
    if rows.dtype is not values.dtype:
        raise RuntimeError(f"dtypes {rows.dtype!r} and {values.dtype!r} differ")
    return values.with_dtype(dtype)


def _places(rows: ndarray, values: ndarray, right: bool, dtype: DType) -> ndarray:
    side: Literal["right", "left"] = "right" if right else "left"
    if rows.ndim == 1:
        return np.searchsorted(rows, values, side)
    flat = [np.searchsorted(row, value, side) for row, value in zip(
        rows.reshape(-1, rows.shape[-1]), values.reshape(-1, values.shape[-1]), strict=True)]
    return np.array(flat, "int64").reshape(values.shape)


def _by_halves(rows: Node, values: Node, right: bool, dtype: DType) -> Node:
    """The part that may hold the place is halved until it is one element; all values at once.

    For a symbolic size the halves are not known: then the place is found bit by bit, the highest first.
    """
    count: int = rows.type.shape[-1]
    floating = rows.type.dtype.kind == "float"
    integer = int32 if count < 2**30 else int64
    place = full(values.type.shape, 0, integer, values.type.device)
    if not count:
        return full(values.type.shape, 0, dtype, values.type.device)

    def before(at: Node) -> Node:
        """Does the element there come before the value? As in torch, everything comes before a value that is NaN."""
        element = take(rows, at, axis=0) if rows.type.ndim == 1 else gather(rows, at, axis=rows.type.ndim - 1)
        if floating:
            return bitwise_not((gt if right else ge)(element, values))
        return (le if right else lt)(element, values)

    if not isinstance(count, SymInt):
        while count > 1:
            half = count // 2
            place = where_(before(place + (half - 1)), place + half, place)
            count -= half
        place = where_(before(place), place + 1, place)
        return place if dtype is integer else cast(place, dtype=dtype)
    bound = literal(count)  # a symbolic size is a number of the plan
    for bit in reversed(range(_bits(count))):
        further = place + (1 << bit)
        fits = bitwise_and(le(further, bound), before(minimum(further, bound) - 1))
        place = where_(fits, further, place)
    return place if dtype is integer else cast(place, dtype=dtype)


def _bits(count: SymInt) -> int:
    """Bits of a place among `count` elements, and up to five more, so that many sizes have one program."""
    bits = 5
    while count >= 1 << bits:
        bits += 6
    return bits


def _search_samples() -> Samples:
    nan = float("nan")
    shapes = (((9,), (4,)), ((9,), (2, 3)), ((2, 7), (2, 5)), ((1,), (3,)), ((0,), (3,)), ((8,), (0,)), ((16,), ()))
    return cases(*(case(ascending(-4, 4).of(*s), Values(-5, 5).of(*v), right=r)
                   for s, v in shapes for r in (False, True)),
                 *(case(Array((0.0, 1.0, 1.0, 2.0)), Array((nan, 1.0, 0.5, 2.0, float("inf"))), right=r)
                   for r in (False, True)), kinds=NUMERIC)


searchsorted: Op = Op("searchsorted", "index", _places_type, attrs=("right", "dtype"),
                      defaults={"right": False, "dtype": int64}, differentiable=False, decompose=_by_halves,
                      doc="How many elements of a sorted row are smaller than a value (with `right`: not larger): "
                          "where it belongs. One row for all values, or one for each line of them.",
                      samples=_search_samples(), reference=_places)


def _nonzero_type(x: TensorType, count: int) -> TensorType:
    if not 0 <= count <= x.numel:
        raise RuntimeError(f"{count} of the {x.numel} elements of {x.shape} cannot be nonzero")
    return tensor_type((count,), int64, x.device)


def _nonzero(x: Node, count: int) -> Node:
    """The k-th is the first element up to which k + 1 are not 0."""
    integer = int32 if x.type.numel < 2**31 else int64
    flat = reshape(x, shape=(x.type.numel,))
    flags = flat if x.type.dtype is bool_ else ne(flat, literal(0))
    seen = cumsum(cast(flags, dtype=integer), axis=0)
    wanted = iota(shape=(count,), axis=0, dtype=integer, device=x.type.device) + 1
    return searchsorted(seen, wanted)


nonzero: Op = Op("nonzero", "index", _nonzero_type, attrs=("count",), differentiable=False, decompose=_nonzero,
                 doc="Positions, in row-major order, of the `count` elements that are not 0: so many there must be.",
                 samples=cases(case(Array((0.0, 2.0, float("nan"), 0.0, -1.0, -0.0)), count=3),
                               case(Values(1, 3).of(2, 3), count=6), case(reals().of(0, 3), count=0),
                               case(Values(0, 0).of(4), count=0), kinds=NUMERIC),
                 reference=lambda x, count: np.flatnonzero(x)[:count])

def _compress_type(x: TensorType, mask: TensorType, count: int) -> TensorType:
    if mask.dtype is not bool_ or mask.shape != x.shape[:1]:
        raise RuntimeError(f"a mask of the {x.shape[:1]} rows is wanted, not {mask}")
    _nonzero_type(mask, count)
    return x.with_shape((count, *x.shape[1:]))


def _compress_vjp(g: Node, x: Node, mask: Node, y: Node, count: int) -> tuple[Node, None]:
    """A row that was kept has the gradient at its rank among them."""
    if not count:
        return zeros_like(x), None
    rank = cumsum(cast(mask, dtype=int32 if count < 2**31 else int64), axis=0) - 1
    found = take(g, maximum(rank, literal(0)), axis=0)
    kept = reshape(mask, shape=(*mask.type.shape, *(1,) * (x.type.ndim - 1)))
    return where_(expand(kept, shape=x.type.shape), found, 0.0), None


compress: Op = Op("compress", "index", _compress_type, attrs=("count",), vjp=_compress_vjp,
                  decompose=lambda x, mask, count: take(x, nonzero(mask, count=count), axis=0),
                  doc="The `count` rows of x where the mask is true: so many there must be.",
                  samples=cases(*(case(reals().of(*s), chosen(n).of(s[0]), count=n)
                                  for s, n in (((5,), 2), ((6, 3), 4), ((3, 2), 0), ((4,), 4))), kinds=ANY),
                  reference=lambda x, mask, count: x[mask])


def coordinate(flat: Node, shape: tuple[int, ...], d: int) -> Node:
    """The coordinate d of flat positions in a shape. Integer division takes ten times as long as a shift."""
    below, size = prod(shape[d + 1:]), shape[d]
    if below > 1:
        whole = below & (below - 1)
        flat = floor_divide(flat, literal(below)) if whole else right_shift(flat, literal(below.bit_length() - 1))
    if not d:
        return flat
    return remainder(flat, literal(size)) if size & (size - 1) else bitwise_and(flat, literal(size - 1))


def flat_positions(indices: Sequence[Node], shape: tuple[int, ...]) -> Node | None:
    """The `nonzero` whose coordinates in this shape, all of them and in order, these are; None if they are not, or may
    be outside."""
    found = indices[0]
    while found.op in (right_shift, floor_divide):
        found = found.inputs[0]
    if found.op is not nonzero or not all(index is coordinate(found, shape, d) for d, index in enumerate(indices)):
        return None
    looked_at, count = found.inputs[0].type, prod(shape)
    known = looked_at.shape == shape or (
        looked_at.numel.__class__ is int and count.__class__ is int and looked_at.numel <= count)
    return found if known else None


def positions_below(index: Node) -> int | None:
    """A number that these positions are below, none of them negative, as is known without a look at them; None if
    nothing is known.

    They are a range, where rows have their largest or smallest element, where elements are that are not 0, a
    coordinate of that, or a part of such ones.
    """
    while index.op.name in ("reshape", "permute", "expand", "slice"):
        index = index.inputs[0]
    if index.op is iota:
        return index.type.shape[index["axis"]]
    if index.op in (argmax, argmin):
        return index.inputs[0].type.shape[index["axis"]]
    if index.op is nonzero:
        return index.inputs[0].type.numel
    if index.op not in _OF_COORDINATES or index.inputs[1].op is not const:
        return None
    below, by = positions_below(index.inputs[0]), index.inputs[1]["value"]
    literals, found = _OF_COORDINATES[index.op]
    return found(below, by) if below.__class__ is int and by in literals else None


_OF_COORDINATES: Final[dict[Op, tuple[range, Callable[[int, int], int]]]] = {
    remainder: (range(1, 1 << 63), lambda below, by: by),
    bitwise_and: (range(1 << 63), lambda below, by: by + 1),
    floor_divide: (range(1, 1 << 63), lambda below, by: (below - 1) // by + 1),
    right_shift: (range(32), lambda below, by: (below - 1 >> by) + 1)}
"""Ops of `coordinate` → (literals by which positions stay such ones, what the result is below for positions below a
number). Of others a result is negative, or what a device makes of it: an index of 32 bits is shifted by up to 31."""


__all__ = ["compress", "coordinate", "flat_positions", "nonzero", "positions_below", "searchsorted"]
