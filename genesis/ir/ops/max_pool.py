"""Maxima over windows of (n, channels, *sizes), in any number of dimensions.

The second result is where each maximum lies, as a flat position among the spatial elements; the gradient goes there.
The decomposition of a gradient asks for each element which windows see it: sums in a fixed order, no scatter.
"""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.ops.control import item
from genesis.ir.ops.indexing import gather
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import cast, eq, mul, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import argmax, max, sum
from genesis.ir.ops.samples import NUMERIC, case, cases, np, reals
from genesis.ir.ops.windows import (
    ADAPTIVE,
    STRIDED,
    Axes,
    Ints,
    adaptive_axes,
    each_window,
    gathered,
    last_axes,
    pooled_type,
    strided_axes,
)
from genesis.ir.types import TensorType, int32, int64

if TYPE_CHECKING:
    from numpy import ndarray


def _type(x: TensorType, **how: Ints) -> tuple[TensorType, TensorType]:
    found = pooled_type(x, **how)
    return found, found.with_dtype(int64)


def _maxima(x: Node, axes: Axes) -> tuple[Node, Node]:
    """The largest element of each window (the first of equal ones, NaN if there is one), and its position."""
    n = len(axes)
    lowest = -inf if x.dtype.kind == "float" else x.dtype.min
    seen, _ = gathered(x, [axis.reads(x.type.device) for axis in axes], lowest)
    lead, window = seen.type.shape[:2 + n], prod(seen.type.shape[2 + n:])
    rows = reshape(seen, shape=(*lead, window))
    best = argmax(rows, axis=2 + n, keepdims=True)
    positions = reshape(_positions(axes, x), shape=(1, 1, *lead[2:], window))
    chosen = gather(expand(positions, shape=rows.type.shape), best, axis=2 + n)
    return max(rows, axes=(2 + n,)), reshape(chosen, shape=lead)


def _positions(axes: Axes, x: Node) -> Node:
    """The flat position of what each tap of each window sees: (*places, *taps). Padding is the largest of a window only
    where all of it is as small, and the first tap is chosen: it stands for the first element that the window sees."""
    n, sizes = len(axes), x.type.shape[2:]
    parts = []
    for axis, index in enumerate(one.seen(x.type.device) for one in axes):
        shape = [1] * (2 * n)
        shape[axis], shape[n + axis] = index.type.shape
        parts.append(reshape(index, shape=tuple(shape)) * prod(sizes[axis + 1:]))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _back(g: Node, index: Node, axes: Axes) -> Node:
    """Each element's gradient: those of the windows that it is the largest of."""
    n, sizes = len(axes), tuple(axis.size for axis in axes)
    reads = [axis.read_by(g.type.device) for axis in axes]
    found, valid = gathered(upcast(g), reads)
    place = iota(shape=(prod(sizes),), axis=0, dtype=int64 if prod(sizes) > int32.max else int32, device=g.type.device)
    chosen, _ = gathered(cast(index, dtype=place.dtype), reads)
    place = reshape(place, shape=(1, 1, *sizes, *[1] * n))
    mine = eq(chosen, expand(place, shape=chosen.type.shape))
    mine = mine if valid is None else mul(mine, valid)
    return downcast(sum(where_(mine, found, 0), axes=last_axes(found, n)), g)


def _back_type(g: TensorType, index: TensorType, shape: Ints, **how: Ints) -> TensorType:
    if index.shape != g.shape or index.dtype is not int64:
        raise RuntimeError(f"the maxima's positions must be int64 of shape {g.shape}, not {index}")
    return g.with_shape((*g.shape[:2], *shape))


def at_positions(x: Node, index: Node) -> Node:
    """x's elements at flat positions among its spatial ones."""
    n, channels = index.type.shape[:2]
    flat = reshape(x, shape=(n, channels, prod(x.type.shape[2:])))
    found = gather(flat, reshape(index, shape=(n, channels, prod(index.type.shape[2:]))), axis=2)
    return reshape(found, shape=index.type.shape)


def _vjp(g: tuple, x: Node, y: Node, sizes: Ints, **how: Ints) -> Node | None:
    return None if g[0] is None else max_pool_backward(g[0], item(y, index=1), shape=x.type.shape[2:], **how)


def _adaptive_vjp(g: tuple, x: Node, y: Node, sizes: Ints) -> Node | None:
    return None if g[0] is None else adaptive_max_pool_backward(g[0], item(y, index=1), shape=x.type.shape[2:])


def _value(x: ndarray, axes: Axes) -> tuple[ndarray, ndarray]:
    return (each_window(x, axes, lambda v, at: v[np.argmax(v)]).astype(x.dtype),
            each_window(x, axes, lambda v, at: at[np.argmax(v)]).astype("int64"))


_HOW = ("window", "stride", "padding", "dilation")

max_pool = Op("max_pool", "composite", _type, attrs=("sizes", *_HOW), vjp=_vjp,
              decompose=lambda x, **how: _maxima(x, strided_axes(x.type.shape[2:], **how)),
              doc="(largest element of each window, its position): window i sees x[i·stride + k·dilation - padding]; "
                  "`sizes` says how many windows there are along each axis.",
              samples=cases(*(case(reals(-99, 99).of(*x), **dict(zip(("sizes", *_HOW), how, strict=True)))
                              for x, *how in STRIDED), kinds=NUMERIC),
              reference=lambda x, **how: _value(x, strided_axes(x.shape[2:], **how)))
max_pool_backward: Op = Op(
    "max_pool_backward", "composite", _back_type, attrs=("shape", *_HOW),
    decompose=lambda g, index, shape, **how: _back(g, index, strided_axes(shape, g.type.shape[2:], **how)),
    vjp=lambda h, g, index, y, **how: (at_positions(h, index), None),
    doc="Gradient of max_pool by x, whose spatial sizes are `shape`, from the positions of the maxima.")

adaptive_max_pool = Op("adaptive_max_pool", "composite", _type, attrs=("sizes",), vjp=_adaptive_vjp,
                       decompose=lambda x, sizes: _maxima(x, adaptive_axes(x.type.shape[2:], sizes)),
                       doc="max_pool over windows that cover each axis evenly: window i of m over n elements sees "
                           "⌊i·n/m⌋ up to ⌈(i+1)·n/m⌉.",
                       samples=cases(*(case(reals(-99, 99).of(*x), sizes=sizes) for x, sizes in ADAPTIVE),
                                     kinds=NUMERIC),
                       reference=lambda x, sizes: _value(x, adaptive_axes(x.shape[2:], sizes)))
adaptive_max_pool_backward: Op = Op(
    "adaptive_max_pool_backward", "composite", _back_type, attrs=("shape",),
    decompose=lambda g, index, shape: _back(g, index, adaptive_axes(shape, g.type.shape[2:])),
    vjp=lambda h, g, index, y, shape: (at_positions(h, index), None),
    doc="Gradient of adaptive_max_pool by x, whose spatial sizes are `shape`, from the positions of the maxima.")
