"""Resampling of (n, channels, *sizes) to other sizes: nearest, linear and cubic, as torch defines the coordinates.

Place o of an axis of `out` takes a few neighbouring elements (taps) with weights that add up to 1. That is linear in x;
the gradient takes, for each axis, a product with the matrix of these weights.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.leaves import full, iota
from genesis.ir.ops.movement import expand, inverse, permute, reshape
from genesis.ir.ops.pointwise import abs, cast, common, eq, floor, maximum, minimum, round, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import sum
from genesis.ir.ops.samples import FLOAT, NUMERIC, Samples, case, cases, np, reals
from genesis.ir.ops.windows import Ints, Reads, gathered, last_axes
from genesis.ir.types import Device, DType, TensorType, float32, int64

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    from numpy import ndarray

    from genesis.ir.node import Attr

    class How(TypedDict):
        """How positions are found."""

        mode: str
        align_corners: bool
        scales: tuple[float, ...]

    class Resized(How):
        """How to resample, and the sizes of the result."""

        sizes: Ints

CUBIC: Final = -0.75
"""Slope of the cubic at distance 1 (Keys 1981 has -0.5)."""

MODES: Final = ("nearest", "nearest-exact", "linear", "cubic")


@dataclass(frozen=True)
class Taps:
    """One axis: from `size` elements to `out`.

    Attributes:
        scale: the factor that the caller gave, 0.0 to take that of the sizes.
    """

    size: int
    out: int
    mode: str
    align_corners: bool
    scale: float

    @property
    def ratio(self) -> float:
        """Elements from one place to the next."""
        if self.align_corners and self.mode in ("linear", "cubic"):
            return (self.size - 1) / (self.out - 1) if self.out > 1 else 0.0
        return 1.0 / self.scale if self.scale > 0 else self.size / self.out

    def weights(self, dtype: DType, device: Device) -> tuple[Reads, Node | None]:
        """The elements that each place takes, (out, taps), and with which weights (None: one, with 1)."""
        place = cast(iota(shape=(self.out,), axis=0, dtype=int64, device=device), dtype=dtype)
        if self.mode.startswith("nearest"):
            place = cast(place, dtype=float32)  # as torch computes it for every dtype
            at = (place + 0.5 if self.mode == "nearest-exact" else place) * self.ratio
            return Reads(reshape(self._inside(cast(floor(at), dtype=int64)), shape=(self.out, 1)), None), None
        at = place * self.ratio if self.align_corners else (place + 0.5) * self.ratio - 0.5
        return self._linear(at) if self.mode == "linear" else self._cubic(at)

    def _inside(self, index: Node) -> Node:
        return minimum(maximum(index, literal(0)), literal(self.size - 1))

    def _linear(self, at: Node) -> tuple[Reads, Node]:
        at = maximum(at, literal(0.0))
        low = self._inside(cast(floor(at), dtype=int64))
        share = minimum(maximum(at - cast(low, dtype=at.dtype), literal(0.0)), literal(1.0))
        tap = _row(self.out, 2, int64, at.type.device)
        index = self._inside(_spread(low, 2) + tap)
        second = _spread(share, 2)
        return Reads(index, None), where_(eq(tap, literal(0)), 1 - second, second)

    def _cubic(self, at: Node) -> tuple[Reads, Node]:
        low = floor(at)
        share = _spread(at - low, 4)
        tap = _row(self.out, 4, int64, at.type.device)
        index = self._inside(_spread(cast(low, dtype=int64), 4) + tap - 1)
        x = abs(share + 1 - cast(tap, dtype=at.dtype))  # the tap's distance, below 2
        near = ((x * (CUBIC + 2) - (CUBIC + 3)) * x) * x + 1
        far = ((x * CUBIC - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC
        inner = eq(where_(eq(tap, literal(1)), 1, where_(eq(tap, literal(2)), 1, tap * 0)), literal(1))
        return Reads(index, None), where_(inner, near, far)

    def matrix(self, dtype: DType, device: Device) -> Node:
        """The weights of all elements in all places, (out, size)."""
        reads, weight = self.weights(dtype, device)
        taps = reads.index.type.shape[1]
        shape = (self.out, self.size, taps)
        element = iota(shape=shape, axis=1, dtype=int64, device=device)
        taken = expand(reshape(reads.index, shape=(self.out, 1, taps)), shape=shape)
        part = full(shape, 1.0, dtype, device) if weight is None else expand(
            reshape(weight, shape=(self.out, 1, taps)), shape=shape)
        return sum(where_(eq(element, taken), part, 0.0), axes=(2,))


def _row(out: int, taps: int, dtype: DType, device: Device) -> Node:
    return iota(shape=(out, taps), axis=1, dtype=dtype, device=device)


def _spread(x: Node, taps: int) -> Node:
    return expand(reshape(x, shape=(x.type.numel, 1)), shape=(x.type.numel, taps))


def taps_of(shape: Ints, sizes: Ints, mode: str, align_corners: bool, scales: tuple[float, ...]) -> list[Taps]:
    """Each spatial axis: x has the sizes `shape`, the result `sizes`."""
    return [Taps(n, o, mode, align_corners, s) for n, o, s in zip(shape, sizes, scales, strict=True)]


def _type(x: TensorType, sizes: Ints, mode: str, align_corners: bool, scales: tuple[float, ...]) -> TensorType:
    if x.ndim != len(sizes) + 2 or len(scales) != len(sizes):
        raise RuntimeError(f"x of shape {x.shape} has {x.ndim - 2} spatial dimensions, the result {len(sizes)}")
    if mode not in MODES:
        raise RuntimeError(f"mode {mode!r} is none of {MODES}")
    if any(size < 1 for size in (*x.shape[2:], *sizes)):
        raise RuntimeError("Input and output sizes should be greater than 0, but got input "
                           f"{x.shape[2:]} output {sizes}")
    return common((x,), NUMERIC).with_shape((*x.shape[:2], *sizes))


def _resample(x: Node, **how: Unpack[Resized]) -> Node:
    axes, device = taps_of(x.type.shape[2:], **how), x.type.device
    floating = x.dtype.kind == "float"
    w = upcast(x) if floating or how["mode"].startswith("nearest") else cast(x, dtype=float32)
    n, found = len(axes), [axis.weights(w.dtype if floating else float32, device) for axis in axes]
    seen, _ = gathered(w, [reads for reads, _ in found])
    for axis, (_, weight) in enumerate(found):
        if weight is not None:
            shape = [1] * (2 * n)
            shape[axis], shape[n + axis] = weight.type.shape
            seen = seen * reshape(weight, shape=tuple(shape))
    y = sum(seen, axes=last_axes(seen, n)) if found[0][1] is not None else reshape(seen, shape=(
        *x.type.shape[:2], *how["sizes"]))
    return downcast(y, x) if floating or y.dtype is x.dtype else cast(round(y), dtype=x.dtype)


def _backward(g: Node, shape: Ints, **how: Unpack[How]) -> Node:
    """Axis by axis: the places' gradients times the matrix of weights."""
    axes = taps_of(shape, g.type.shape[2:], **how)
    found = upcast(g)
    for number, axis in enumerate(axes, 2):
        rank = found.type.ndim
        order = (*(i for i in range(rank) if i != number), number)
        moved = permute(found, axes=order)
        rows = reshape(moved, shape=(prod(moved.type.shape[:-1]), axis.out))
        rows = matmul(rows, axis.matrix(found.dtype, g.type.device))
        found = permute(reshape(rows, shape=(*moved.type.shape[:-1], axis.size)), axes=inverse(order))
    return downcast(found, g)


def _back_type(g: TensorType, shape: Ints, **how: Unpack[How]) -> TensorType:
    return common((g,), FLOAT).with_shape((*g.shape[:2], *shape))


# The reference: a matrix for each axis

def _matrix(axis: Taps) -> ndarray:
    found = np.zeros((axis.out, axis.size))
    for o in range(axis.out):
        if axis.mode.startswith("nearest"):
            at = float(np.float32(o + (0.5 if axis.mode == "nearest-exact" else 0)) * np.float32(axis.ratio))
            found[o, min(int(at), axis.size - 1)] = 1
            continue
        at = o * axis.ratio if axis.align_corners else (o + 0.5) * axis.ratio - 0.5
        at = max(at, 0.0) if axis.mode == "linear" else at
        low = int(np.floor(at))
        first, weight = (0, _linear_weight) if axis.mode == "linear" else (-1, _cubic_weight)
        for tap in range(first, 2 - first):
            found[o, min(max(low + tap, 0), axis.size - 1)] += weight(builtins.abs(at - low - tap))
    return found


def _linear_weight(x: float) -> float:
    return max(1 - x, 0.0)


def _cubic_weight(x: float) -> float:
    if x <= 1:
        return ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1
    return ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC


def _value(x: ndarray, **how: Unpack[Resized]) -> ndarray:
    for number, axis in enumerate(taps_of(x.shape[2:], **how), 2):
        x = np.moveaxis(np.tensordot(x, _matrix(axis), (number, 1)), -1, number)
    return x


def _back_value(g: ndarray, shape: Ints, **how: Unpack[How]) -> ndarray:
    for number, axis in enumerate(taps_of(shape, g.shape[2:], **how), 2):
        g = np.moveaxis(np.tensordot(g, _matrix(axis), (number, 0)), -1, number)
    return g


_HOW = ("mode", "align_corners", "scales")
_CASES: tuple[tuple[Ints, Ints, tuple[float, ...]], ...] = (
    ((2, 3, 5), (8,), (0.0,)), ((1, 2, 7), (4,), (0.0,)), ((1, 2, 5), (1,), (0.0,)), ((1, 2, 4), (9,), (2.3,)),
    ((1, 2, 4, 5), (7, 3), (0.0, 0.0)), ((1, 1, 3, 4), (6, 9), (2.0, 2.3)), ((1, 2, 2, 3, 4), (3, 2, 6), (0.0,) * 3))


def _samples(back: bool) -> Samples:
    found = []
    for x, sizes, scales in _CASES:
        for mode, align in (("nearest", False), ("nearest-exact", False), ("linear", False), ("linear", True),
                            ("cubic", False), ("cubic", True)):
            if mode == "cubic" and len(sizes) == 3:
                continue
            how: dict[str, Attr] = {"mode": mode, "align_corners": align, "scales": scales}
            found.append(case(reals().of(*x[:2], *sizes), shape=x[2:], **how) if back
                         else case(reals().of(*x), sizes=sizes, **how))
    return cases(*found, scale=2)


resample = Op("resample", "composite", _type, attrs=("sizes", *_HOW), decompose=_resample, ulp=16,
              vjp=lambda g, x, y, sizes, **how: resample_backward(g, shape=x.type.shape[2:], **how),
              doc="x (n, channels, *sizes) at other sizes. Place o lies at element o·r (align_corners), floor(o·r) "
                  "(nearest) or (o + 1/2)·r - 1/2, where r is 1 / scale, or the ratio of the sizes if the scale is 0.",
              samples=_samples(back=False), reference=_value)
resample_backward: Op = Op("resample_backward", "composite", _back_type, attrs=("shape", *_HOW), decompose=_backward,
                           ulp=16, vjp=lambda h, g, y, shape, **how: resample(h, sizes=g.type.shape[2:], **how),
                           doc="Gradient of resample by x, whose spatial sizes are `shape`.",
                           samples=_samples(back=True), reference=_back_value)
