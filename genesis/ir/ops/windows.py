"""Windows along an axis as formulas: which elements each window sees, and which windows see each element.

A backend that computes indices inside its kernels reads windows where they lie; no patch is ever stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, broadcast, literal
from genesis.ir.ops.indexing import take
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import pad, permute, reshape
from genesis.ir.ops.pointwise import bitwise_and, common, eq, floor_divide, ge, le, lt, maximum, minimum, mul, remainder
from genesis.ir.ops.samples import NUMERIC, np
from genesis.ir.sym_int import one_factor
from genesis.ir.types import Device, TensorType, int64

if TYPE_CHECKING:
    from types import EllipsisType

    from numpy import ndarray

    Index = tuple[EllipsisType | slice | int, ...]
    """An index of an array: everything of the first dimensions, and these of the last."""

Ints = tuple[int, ...]


@dataclass(eq=False, repr=False)
class Reads:
    """What to read along an axis: `index` (places, terms), where not `valid` an element that does not count.

    Attributes:
        index: inside the padded axis everywhere.
        valid: truth values of the same shape, None where all are true.
        low, high: elements that count for nothing, before and after those of the axis.
    """

    index: Node
    valid: Node | None
    low: int = 0
    high: int = 0


def places(out: int, window: int, device: Device) -> tuple[Node, Node]:
    """The number of the window and that of the tap in it, both (out, window)."""
    i, k = (iota(shape=(out, window), axis=axis, dtype=int64, device=device) for axis in (0, 1))
    return i, k


def _clipped(x: Node, low: int, high: int) -> Node:
    return minimum(maximum(x, literal(low)), literal(high))


def _within(x: Node, low: int, high: int) -> Node:
    """low ≤ x < high."""
    return bitwise_and(ge(x, literal(low)), lt(x, literal(high)))


@dataclass(frozen=True)
class Strided:
    """Windows of `window` taps, `dilation` apart, one every `stride` elements of an axis padded in front.

    Tap k of window i sees element i·stride + k·dilation - padding of `size`.
    """

    size: int
    out: int
    window: int
    stride: int
    padding: int
    dilation: int = 1

    def reads(self, device: Device) -> Reads:
        """The elements of each window; those past a border are padding."""
        i, k = places(self.out, self.window, device)
        reach = (self.out - 1) * self.stride + (self.window - 1) * self.dilation + 1
        return Reads(i * self.stride + k * self.dilation, None, self.padding, max(reach - self.padding - self.size, 0))

    def seen(self, device: Device) -> Node:
        """Which element each tap of each window sees: (out, window). One past a border stands for the nearest one that
        the window sees."""
        i, k = places(self.out, self.window, device)
        start = i * self.stride - self.padding
        if self.dilation > 1:
            first = maximum(floor_divide(-start + (self.dilation - 1), literal(self.dilation)), literal(0))
            final = minimum(floor_divide(-start + (self.size - 1), literal(self.dilation)), literal(self.window - 1))
            k = maximum(minimum(k, final), first)
        return _clipped(start + k * self.dilation, 0, self.size - 1)

    def read_by(self, device: Device) -> Reads:
        """The windows that see each element: (size, as many as ever do); those that are none are padding."""
        longest = (self.window - 1) * self.dilation
        most = longest // self.stride + 1
        i, j = places(self.size, most, device)
        moved = i + self.padding
        low = max(most - 1 - self.padding // self.stride, 0)
        index = floor_divide(moved, literal(self.stride)) - j + low
        high = max((self.size - 1 + self.padding) // self.stride - (self.out - 1), 0)
        reach = remainder(moved, literal(self.stride)) + j * self.stride
        valid: Node | None = None
        if most * self.stride - 1 > longest:
            valid = le(reach, literal(longest))
        if self.dilation > 1:
            hits = eq(remainder(reach, literal(self.dilation)), literal(0))
            valid = hits if valid is None else bitwise_and(valid, hits)
        return Reads(index, valid, low, high)

    def taps_of(self, device: Device) -> Reads:
        """The (tap, window) pairs that see each element, as tap·out + window: (size, window)."""
        i, k = places(self.size, self.window, device)
        moved = i + self.padding - k * self.dilation
        window = floor_divide(moved, literal(self.stride))
        valid = _within(window, 0, self.out)
        if self.stride > 1:
            valid = bitwise_and(valid, eq(remainder(moved, literal(self.stride)), literal(0)))
        return Reads(k * self.out + _clipped(window, 0, self.out - 1), valid)


@dataclass(frozen=True)
class Adaptive:
    """`out` windows that cover an axis evenly: window i sees ⌊i·size/out⌋ up to ⌈(i+1)·size/out⌉.

    Which windows see an element is the same formula with the two sizes exchanged.
    """

    size: int
    out: int

    @property
    def window(self) -> int:
        """Elements of the longest window."""
        if not self.out:
            return 1
        if self.size % self.out == 0:
            return max(self.size // self.out, 1)
        period = self.out // math.gcd(self.size, self.out)  # the lengths repeat
        return max(-(-(i + 1) * self.size // self.out) - i * self.size // self.out for i in range(period))

    def reads(self, device: Device) -> Reads:
        """The elements of each window."""
        i, k = places(self.out, self.window, device)
        if self.size % self.out == 0:
            return Reads(i * self.window + k, None)
        start = floor_divide(i * self.size, literal(self.out))
        end = floor_divide((i + 1) * self.size + (self.out - 1), literal(self.out))
        return Reads(minimum(start + k, end - 1), lt(start + k, end))

    def seen(self, device: Device) -> Node:
        """Which element each tap of each window sees: (out, window)."""
        return self.reads(device).index

    def read_by(self, device: Device) -> Reads:
        """The windows that see each element."""
        return Adaptive(self.out, self.size).reads(device)


def gathered(x: Node, reads: Sequence[Reads], fill: float = 0) -> tuple[Node, Node | None]:
    """x (n, channels, *sizes) read along each spatial axis: (n, channels, *places, *terms), and what of it counts.

    Args:
        fill: what padding is.
    """
    valid: Node | None = None
    rank = len(reads)
    low, high = ((0, 0, *(getattr(read, side) for read in reads)) for side in ("low", "high"))
    if any(low) or any(high):
        x = pad(x, low=low, high=high, value=fill)
    for axis in reversed(range(rank)):  # the last axis first: those before it keep their places
        x = take(x, reads[axis].index, axis=axis + 2)
        mask = reads[axis].valid
        if mask is not None:
            shape = [1] * (2 * rank)
            shape[2 * axis:2 * axis + 2] = mask.type.shape
            along = reshape(mask, shape=tuple(shape))
            valid = along if valid is None else mul(*broadcast(valid, along))
    x = permute(x, axes=(0, 1, *range(2, x.type.ndim, 2), *range(3, x.type.ndim, 2)))
    if valid is None:
        return x, None
    valid = permute(valid, axes=(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)))
    return x, broadcast(valid, x)[0]


def patches(x: Node, window: Ints, out: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Node:
    """All windows of x (n, channels, *sizes), 0 past the borders: (n, channels, *out, *window)."""
    low, high = [0, 0], [0, 0]
    for size, k, o, s, p, d in zip(x.type.shape[2:], window, out, stride, padding, dilation, strict=True):
        low.append(p)
        high.append(max((o - 1) * s + (k - 1) * d + 1 - p - size, 0))
    if any(low) or any(high):
        x = pad(x, low=tuple(low), high=tuple(high), value=0)
    device = x.type.device
    axes = [Strided(n, o, k, s, 0, d) for n, k, o, s, d in zip(
        x.type.shape[2:], window, out, stride, dilation, strict=True)]
    return gathered(x, [axis.reads(device) for axis in axes])[0]


# Pools over (n, channels, *sizes)

Axes = Sequence[Strided] | Sequence[Adaptive]


def strided_axes(shape: Ints, sizes: Ints, window: Ints, stride: Ints, padding: Ints,
                 dilation: Ints | None = None) -> list[Strided]:
    """The windows along each spatial axis: x has the sizes `shape`, the result `sizes`."""
    return [Strided(*how) for how in zip(shape, sizes, window, stride, padding, dilation or (1,) * len(window),
                                         strict=True)]


def pooled_sizes(shape: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> Ints:
    """How many windows there are along each axis.

    With `ceil` a last one may reach past the end, as long as it starts in x or in the padding before it.

    >>> pooled_sizes((10,), (3,), (3,), (0,), (1,), False), pooled_sizes((10,), (3,), (3,), (0,), (1,), True)
    ((3,), (4,))
    """
    found = []
    for n, k, s, p, d in zip(shape, window, stride, padding, dilation, strict=True):
        free = n + 2 * p - d * (k - 1) - 1
        out = one_factor((free + s - 1 if ceil else free) // s + 1)
        found.append(out - 1 if ceil and (out - 1) * s >= n + p else out)
    return tuple(found)


def adaptive_axes(shape: Ints, sizes: Ints) -> list[Adaptive]:
    """The windows of an adaptive pool along each spatial axis."""
    return [Adaptive(n, o) for n, o in zip(shape, sizes, strict=True)]


def pooled_type(x: TensorType, sizes: Ints, window: Ints = (), stride: Ints = (), padding: Ints = (),
                dilation: Ints = (), **how: object) -> TensorType:
    """The type of a pool's result."""
    n = len(sizes)
    if x.ndim != n + 2 or any(len(part) not in (0, n) for part in (window, stride, padding, dilation)):
        raise RuntimeError(f"x of shape {x.shape} has {x.ndim - 2} spatial dimensions, the windows {n}")
    if any(size < 1 for size in x.shape[2:]) and all(sizes):
        raise RuntimeError(f"x of shape {x.shape} has no element to pool")
    return common((x,), NUMERIC).with_shape((*x.shape[:2], *sizes))


def last_axes(x: Node, count: int) -> Ints:
    """The last `count` dimensions."""
    return tuple(range(x.type.ndim - count, x.type.ndim))


def each_window(x: ndarray, axes: Axes, take: Callable[[ndarray, ndarray], ndarray]) -> ndarray:
    """What references compute with: take(values, flat positions) of what each window sees, both one-dimensional."""
    flat = np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:])
    found = np.empty((*x.shape[:2], *(a.out for a in axes)), object)
    for place in itertools.product(*(range(a.out) for a in axes)):
        where = np.ix_(*[_seen(axes[n], i) for n, i in enumerate(place)])
        for n, c in itertools.product(range(x.shape[0]), range(x.shape[1])):
            found[(n, c, *place)] = take(x[n, c][where].reshape(-1), flat[where].reshape(-1))
    return found


def _seen(axis: Strided | Adaptive, i: int) -> list[int]:
    if isinstance(axis, Adaptive):
        return list(range(i * axis.size // axis.out, -(-(i + 1) * axis.size // axis.out)))
    start = i * axis.stride - axis.padding
    return [j for j in range(start, start + axis.window * axis.dilation, axis.dilation) if 0 <= j < axis.size]


STRIDED: Final[tuple[tuple[Ints, Ints, Ints, Ints, Ints, Ints], ...]] = (
    # samples: (shape, sizes, window, stride, padding, dilation)
    ((2, 3, 8), (4,), (2,), (2,), (0,), (1,)),
    ((1, 2, 9), (5,), (3,), (2,), (1,), (1,)),
    ((1, 2, 10), (4,), (3,), (3,), (1,), (1,)),       # the last window reaches past the end (ceil mode)
    ((1, 2, 7, 8), (4, 3), (3, 2), (2, 3), (1, 0), (1, 1)),
    ((1, 2, 9, 9), (4, 3), (3, 3), (2, 2), (1, 0), (2, 2)),
    ((1, 1, 4, 5, 6), (2, 2, 3), (2, 3, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1)),
    ((0, 2, 4), (2,), (2,), (2,), (0,), (1,)),
)

ADAPTIVE: Final[tuple[tuple[Ints, Ints], ...]] = (
    # samples: (shape, sizes)
    ((2, 3, 8), (4,)), ((1, 2, 7), (3,)), ((1, 2, 3), (5,)), ((1, 2, 5, 6), (3, 4)), ((1, 1, 3, 4, 5), (2, 2, 2)),
    ((1, 2, 6, 4), (1, 1)), ((0, 2, 4), (3,)))
