"""Windows side by side as columns (im2col), and columns added up to where their windows lie (col2im).

Both are linear, and each is the gradient of the other.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.ops.convolution import result_sizes
from genesis.ir.ops.movement import permute, reshape
from genesis.ir.ops.pointwise import common, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import sum
from genesis.ir.ops.samples import ANY, FLOAT, Samples, case, cases, np, reals
from genesis.ir.ops.windows import Ints, Strided, gathered, last_axes, patches
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.ops.windows import Index

_HOW = ("window", "stride", "padding", "dilation")


def _columns_type(x: TensorType, **how: Ints) -> TensorType:
    sizes = result_sizes(x.shape[2:], *(how[name] for name in _HOW))
    if any(size < 1 for size in sizes):
        raise RuntimeError(f"Given input with spatial size {x.shape[2:]}, kernel_size={how['window']}, "
                           f"dilation={how['dilation']}, padding={how['padding']}, stride={how['stride']}, calculated "
                           f"shape of the array of sliding blocks as {sizes}, but its components must be at least one")
    return common((x,)).with_shape((x.shape[0], x.shape[1] * prod(how["window"]), prod(sizes)))


def _folded_type(columns: TensorType, sizes: Ints, **how: Ints) -> TensorType:
    made = result_sizes(sizes, *(how[name] for name in _HOW))
    window = prod(how["window"])
    if columns.ndim != 3 or columns.shape[1] % window or columns.shape[2] != prod(made) or min(made, default=1) < 1:
        raise RuntimeError(f"columns {columns.shape} do not fit: {sizes} has {made} windows of {window} elements, "
                           f"expected size of input's dimension 1 to be a multiple of {window}, of 2 {prod(made)}")
    return common((columns,), FLOAT).with_shape((columns.shape[0], columns.shape[1] // window, *sizes))


def _im2col(x: Node, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Node:
    n = len(window)
    sizes = result_sizes(x.type.shape[2:], window, stride, padding, dilation)
    seen = patches(x, window, sizes, stride, padding, dilation)
    by_tap = permute(seen, axes=(0, 1, *range(2 + n, 2 + 2 * n), *range(2, 2 + n)))
    return reshape(by_tap, shape=(x.type.shape[0], x.type.shape[1] * prod(window), prod(sizes)))


def _col2im(columns: Node, sizes: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Node:
    """Each element asks its (tap, window) pairs: an axis of both, tap by tap, is read at once."""
    n, batch = len(window), columns.type.shape[0]
    made = result_sizes(sizes, window, stride, padding, dilation)
    channels = columns.type.shape[1] // prod(window)
    parts = reshape(upcast(columns), shape=(batch, channels, *window, *made))
    order = [axis for i in range(n) for axis in (2 + i, 2 + n + i)]
    pairs = reshape(permute(parts, axes=(0, 1, *order)),
                    shape=(batch, channels, *(k * o for k, o in zip(window, made, strict=True))))
    reads = [Strided(*how).taps_of(columns.type.device) for how in zip(
        sizes, made, window, stride, padding, dilation, strict=True)]
    found, valid = gathered(pairs, reads)
    return downcast(sum(found if valid is None else where_(valid, found, 0), axes=last_axes(found, n)), columns)


def _im2col_value(x: ndarray, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> ndarray:
    sizes = result_sizes(x.shape[2:], window, stride, padding, dilation)
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    columns = [padded[seen] for seen in _seen(window, sizes, stride, dilation)]
    return np.stack(columns, 2).reshape(x.shape[0], x.shape[1] * prod(window), prod(sizes))


def _col2im_value(columns: ndarray, sizes: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> ndarray:
    made = result_sizes(sizes, window, stride, padding, dilation)
    parts = columns.reshape(columns.shape[0], columns.shape[1] // prod(window), prod(window), *made)
    x = np.zeros((*parts.shape[:2], *(n + 2 * p for n, p in zip(sizes, padding, strict=True))))
    for tap, seen in enumerate(_seen(window, made, stride, dilation)):
        x[seen] += parts[:, :, tap]
    inside: Index = (..., *(slice(p, p + n) for n, p in zip(sizes, padding, strict=True)))
    return x[inside]


def _seen(window: Ints, sizes: Ints, stride: Ints, dilation: Ints) -> list[Index]:
    """The elements of the padded input that each tap sees, in all windows."""
    return [(..., *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip(
        tap, dilation, sizes, stride, strict=True))) for tap in np.ndindex(*window)]


_CASES: tuple[tuple[Ints, ...], ...] = (
    ((2, 3, 5, 6), (2, 3), (1, 1), (0, 0), (1, 1)), ((1, 2, 7, 8), (3, 2), (2, 3), (1, 1), (1, 1)),
    ((1, 2, 9, 8), (2, 3), (2, 1), (1, 2), (3, 2)), ((2, 2, 9), (3,), (2,), (1,), (1,)),
    ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1)))


def _samples(back: bool) -> Samples:
    found = []
    for x, *parts in _CASES:
        how = dict(zip(_HOW, parts, strict=True))
        columns = (x[0], x[1] * prod(parts[0]), prod(result_sizes(x[2:], *parts)))
        found.append(case(reals().of(*columns), sizes=x[2:], **how) if back else case(reals().of(*x), **how))
    return cases(*found, kinds=FLOAT if back else ANY, scale=4)


im2col = Op("im2col", "composite", _columns_type, attrs=_HOW, decompose=_im2col,
            vjp=lambda g, x, y, **how: col2im(g, sizes=x.type.shape[2:], **how),
            doc="The windows of x (n, channels, *sizes), 0 past the borders, as columns (n, channels · taps, windows).",
            samples=_samples(back=False), reference=_im2col_value)
col2im: Op = Op("col2im", "composite", _folded_type, attrs=("sizes", *_HOW), decompose=_col2im, ulp=4,
                vjp=lambda h, columns, y, sizes, **how: im2col(h, **how),
                doc="Columns (n, channels · taps, windows) added up to (n, channels, *sizes) where their windows lie.",
                samples=_samples(back=True), reference=_col2im_value)
