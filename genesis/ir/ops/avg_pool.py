"""Means over windows of (n, channels, *sizes), in any number of dimensions.

The decomposition of a gradient asks for each element which windows see it: sums in a fixed order, no scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, broadcast, literal
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import cast, floor_divide, lt, maximum, minimum, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import sum
from genesis.ir.ops.samples import FLOAT, NUMERIC, Kinds, Samples, case, cases, np, reals
from genesis.ir.ops.windows import (
    ADAPTIVE,
    STRIDED,
    Adaptive,
    Axes,
    Ints,
    Strided,
    adaptive_axes,
    each_window,
    gathered,
    last_axes,
    pooled_type,
    strided_axes,
)
from genesis.ir.types import Device, TensorType, int64

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.node import Attr


def _counts(axes: Sequence[Strided], include_pad: bool, device: Device) -> Node | int:
    """How many elements each window counts: (1, 1, *places), or one number for all."""
    ends = [(a.out - 1) * a.stride + a.window for a in axes]
    if all((include_pad or not a.padding) and end <= a.size + 2 * a.padding for a, end in zip(axes, ends, strict=True)):
        return prod(a.window for a in axes)
    lengths = []
    for a in axes:
        start = iota(shape=(a.out,), axis=0, dtype=int64, device=device) * a.stride - a.padding
        end = minimum(start + a.window, literal(a.size + a.padding))
        if not include_pad:
            start, end = maximum(start, literal(0)), minimum(end, literal(a.size))
        lengths.append(end - start)
    return _volume(lengths)


def _adaptive_counts(axes: Sequence[Adaptive], device: Device) -> Node | int:
    if all(a.out and a.size % a.out == 0 for a in axes):
        return prod(a.window for a in axes)
    lengths = []
    for a in axes:
        first = iota(shape=(a.out,), axis=0, dtype=int64, device=device) * a.size
        lengths.append(floor_divide(first + (a.size + a.out - 1), literal(max(a.out, 1)))
                       - floor_divide(first, literal(max(a.out, 1))))
    return _volume(lengths)


def _volume(lengths: Sequence[Node]) -> Node:
    """The products of one length of each axis: (1, 1, *places)."""
    total: Node | None = None
    for axis, length in enumerate(lengths):
        shape = (1, 1, *(length.type.numel if i == axis else 1 for i in range(len(lengths))))
        part = reshape(length, shape=shape)
        total = part if total is None else total * part
    assert total is not None
    return total


def _divided(total: Node, counts: Node | int) -> Node:
    """Sums over counts; integers towards zero, as torch has it."""
    if total.dtype.kind == "float":
        return total / (float(counts) if isinstance(counts, int) else cast(counts, dtype=total.dtype))
    below, by = broadcast(total, literal(counts) if isinstance(counts, int) else cast(counts, dtype=total.dtype))
    return where_(lt(below, literal(0)), -floor_divide(-below, by), floor_divide(below, by))


def _mean(x: Node, axes: Axes, counts: Node | int) -> Node:
    seen, valid = gathered(upcast(x), [axis.reads(x.type.device) for axis in axes])
    total = sum(seen if valid is None else where_(valid, seen, 0), axes=last_axes(seen, len(axes)))
    return downcast(_divided(total, counts), x)


def _back(g: Node, axes: Axes, counts: Node | int) -> Node:
    """Each element's gradient: the shares of the windows that see it. One number of elements divides their sum."""
    alike = isinstance(counts, int)
    shares = upcast(g) if alike else _divided(upcast(g), counts)
    share, valid = gathered(shares, [axis.read_by(g.type.device) for axis in axes])
    total = sum(share if valid is None else where_(valid, share, 0), axes=last_axes(share, len(axes)))
    return downcast(_divided(total, counts) if alike else total, g)


def _avg_pool(x: Node, include_pad: bool, divisor: int, **how: Ints) -> Node:
    axes = strided_axes(x.type.shape[2:], **how)
    return _mean(x, axes, divisor or _counts(axes, include_pad, x.type.device))


def _avg_pool_backward(g: Node, shape: Ints, include_pad: bool, divisor: int, **how: Ints) -> Node:
    axes = strided_axes(shape, g.type.shape[2:], **how)
    return _back(g, axes, divisor or _counts(axes, include_pad, g.type.device))


def _adaptive(x: Node, sizes: Ints) -> Node:
    axes = adaptive_axes(x.type.shape[2:], sizes)
    return _mean(x, axes, _adaptive_counts(axes, x.type.device))


def _adaptive_backward(g: Node, shape: Ints) -> Node:
    axes = adaptive_axes(shape, g.type.shape[2:])
    return _back(g, axes, _adaptive_counts(axes, g.type.device))


def _back_type(g: TensorType, shape: Ints, **how: Ints) -> TensorType:
    return g.with_shape((*g.shape[:2], *shape))


def _value(x: ndarray, include_pad: bool, divisor: int, **how: Ints) -> ndarray:
    axes = strided_axes(x.shape[2:], **how)
    counts = np.ones((), "int64")
    for a in axes:
        start = np.arange(a.out) * a.stride - a.padding
        end = np.minimum(start + a.window, a.size + a.padding)
        if not include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, a.size)
        counts = counts[..., None] * (end - start)
    y = each_window(x, axes, lambda v, at: v.sum()).astype(float) / (divisor or counts)
    return np.trunc(y) if x.dtype.kind == "i" else y


def _adaptive_value(x: ndarray, sizes: Ints) -> ndarray:
    return each_window(x, adaptive_axes(x.shape[2:], sizes), lambda v, at: v.mean()).astype(float)


_HOW = ("window", "stride", "padding", "include_pad", "divisor")


def _samples(back: bool, kinds: Kinds) -> Samples:
    """Every way to count: with padding, without, by a given divisor."""
    found = []
    for x, sizes, window, stride, padding, dilation in STRIDED:
        for counted in ((True, 0), (False, 0), (True, 5)) if set(dilation) == {1} else ():
            how: dict[str, Attr] = dict(zip(_HOW, (window, stride, padding, *counted), strict=True))
            found.append(case(reals().of(*x[:2], *sizes), shape=x[2:], **how) if back
                         else case(reals(-9, 9).of(*x), sizes=sizes, **how))
    return cases(*found, kinds=kinds, scale=9)


avg_pool = Op("avg_pool", "composite", pooled_type, attrs=("sizes", *_HOW), decompose=_avg_pool, ulp=2,
              vjp=lambda g, x, y, sizes, **how: avg_pool_backward(g, shape=x.type.shape[2:], **how),
              doc="Mean of each window, which sees x[i·stride + k - padding]: the sum over the divisor unless that "
                  "is 0, else by how many elements it sees, those of the padding included if `include_pad`.",
              samples=_samples(back=False, kinds=NUMERIC), reference=_value)
avg_pool_backward: Op = Op("avg_pool_backward", "composite", _back_type, attrs=("shape", *_HOW), ulp=4,
                           decompose=_avg_pool_backward,
                           vjp=lambda h, g, y, shape, **how: avg_pool(h, sizes=g.type.shape[2:], **how),
                           doc="Gradient of avg_pool by x, whose spatial sizes are `shape`.",
                           samples=_samples(back=True, kinds=FLOAT))

adaptive_avg_pool = Op("adaptive_avg_pool", "composite", lambda x, sizes: pooled_type(x, sizes=sizes), attrs=("sizes",),
                       decompose=_adaptive, ulp=2,
                       vjp=lambda g, x, y, sizes: adaptive_avg_pool_backward(g, shape=x.type.shape[2:]),
                       doc="avg_pool over windows that cover each axis evenly: window i of m over n elements sees "
                           "⌊i·n/m⌋ up to ⌈(i+1)·n/m⌉.",
                       samples=cases(*(case(reals().of(*x), sizes=sizes) for x, sizes in ADAPTIVE), scale=2),
                       reference=_adaptive_value)
adaptive_avg_pool_backward: Op = Op(
    "adaptive_avg_pool_backward", "composite", _back_type, attrs=("shape",), ulp=4, decompose=_adaptive_backward,
    vjp=lambda h, g, y, shape: adaptive_avg_pool(h, sizes=g.type.shape[2:]),
    doc="Gradient of adaptive_avg_pool by x, whose spatial sizes are `shape`.",
    samples=cases(*(case(reals().of(*x[:2], *sizes), shape=x[2:]) for x, sizes in ADAPTIVE), scale=2))
