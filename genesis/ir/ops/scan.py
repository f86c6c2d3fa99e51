"""Scans: running sums, products and extremes along one axis. Low-precision ones run in float32.

`reverse` runs from the end. A derivative of a scan is a scan the other way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.opaque import Opaque
from genesis.ir.ops.control import item
from genesis.ir.ops.indexing import scatter_add
from genesis.ir.ops.leaves import zeros_like
from genesis.ir.ops.movement import pad, take_range
from genesis.ir.ops.pointwise import abs, common, exp, gt, log, lt, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.samples import (
    ANY,
    FLOAT,
    NUMERIC,
    Array,
    Samples,
    Values,
    case,
    cases,
    forward_only,
    np,
    reals,
    shuffled,
)
from genesis.ir.types import TensorType, float32, int64

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.ops.entry import Attributes

_SCAN: Attributes = {"attrs": ("axis", "reverse"), "defaults": {"reverse": False}}
_CHUNKED: Attributes = {"attrs": ("axis", "reverse", "chunk"), "defaults": {"reverse": False, "chunk": 0}}


def chunks_of(x: TensorType, axis: int, chunk: int) -> TensorType:
    """One number for each chunk of x along the axis, in at least float32."""
    found = x.with_shape((*x.shape[:axis], -(-x.shape[axis] // chunk) if chunk else 1, *x.shape[axis + 1:]))
    return found.with_dtype(float32) if x.dtype.kind == "float" and x.dtype.itemsize < 4 else found


def _chunked_type(x: TensorType, *ends: TensorType, axis: int, reverse: bool, chunk: int) -> TensorType:
    common((x,), NUMERIC)
    for found in ends:
        if found is not chunks_of(x, axis, chunk):
            raise RuntimeError(f"the chunks' ends are {found}, but must be {chunks_of(x, axis, chunk)}")
    return x


def shifted(x: Node, axis: int, by: int, value: float) -> Node:
    """x moved one place along the axis, towards the end for by = 1; `value` where nothing comes from."""
    size, rank = x.type.shape[axis], x.type.ndim
    if not size:
        return x
    here, none = tuple(int(i == axis) for i in range(rank)), (0,) * rank
    if by > 0:
        return pad(take_range(x, axis, 0, size - 1), low=here, high=none, value=value)
    return pad(take_range(x, axis, 1, size), low=none, high=here, value=value)


def _turned(function: Callable[[ndarray, int], ndarray], x: ndarray, axis: int, reverse: bool) -> ndarray:
    """A numpy scan, from the end if asked."""
    return np.flip(function(np.flip(x, axis), axis), axis) if reverse else function(x, axis)


def _in_chunks(function: Callable[[ndarray, int], ndarray], combine: Callable[[ndarray, ndarray], ndarray],
               ) -> Callable[..., ndarray]:
    """A numpy scan chunk by chunk, each combined with the end of the one before."""
    def run(x: ndarray, *ends: ndarray, axis: int, reverse: bool, chunk: int) -> ndarray:
        if not ends:
            return _turned(function, x, axis, reverse)
        parts = []
        for place, start in enumerate(range(0, x.shape[axis], chunk)):
            places = range(start, np.minimum(start + chunk, x.shape[axis]))
            part = _turned(function, np.take(x, places, axis), axis, reverse)
            before = place + (1 if reverse else -1)
            first = 0 <= before < ends[0].shape[axis]
            parts.append(combine(part, np.take(ends[0], [before], axis)) if first else part)
        return np.concatenate(parts, axis)
    return run


def _scanned(values: Values, chunked: bool = False) -> Samples:
    shapes = (((5,), 0), ((3, 4), 0), ((2, 3, 4), 2), ((0, 2), 0), ((2, 70), 1))
    found = [case(values.of(*s), axis=a, reverse=r) for s, a in shapes for r in (False, True)]
    if chunked:
        found += [forward_only(case(Values(1, 3, d).of(2, 7), Values(1, 3, e).of(2, 3), axis=1, reverse=r, chunk=3))
                  for d, e in ((float32, float32), (int64, int64)) for r in (False, True)]
    return cases(*found, kinds=NUMERIC, scale=2)


def _cumsum_vjp(g: Node, x: Node, *ends_and_y: Node, axis: int, reverse: bool, chunk: int) -> Node:
    assert len(ends_and_y) == 1, "scans are split after they are differentiated"
    return cumsum(g, axis=axis, reverse=not reverse)


cumsum: Op = Op("cumsum", "scan", _chunked_type, **_CHUNKED, vjp=_cumsum_vjp, autocast="float32",
                opaque=Opaque("scan", elementwise=1),
                doc="Sums of x[0..i] along the axis. With a second operand each chunk of `chunk` elements is scanned "
                    "for itself, beginning with the sum at the end of the chunk before, which that operand has.",
                samples=_scanned(reals(), chunked=True), ulp=2,
                reference=_in_chunks(lambda x, axis: np.cumsum(x, axis), lambda x, end: x + end))


def _cumprod_vjp(g: Node, x: Node, *ends_and_y: Node, axis: int, reverse: bool, chunk: int) -> Node:
    """Σ over j ≥ i of g_j · Π of x_k for k ≤ j, k ≠ i, without a division, so exact where x is 0.

    The product splits at i: e_i = Π of x_k for k < i, and s_i = g_i + x_{i+1} · s_{i+1}.
    """
    y, = ends_and_y
    step = -1 if reverse else 1
    later = recurrence(shifted(x, axis, -step, 0), g, axis=axis, reverse=not reverse)
    return shifted(y, axis, step, 1) * later


cumprod: Op = Op("cumprod", "scan", _chunked_type, **_CHUNKED, vjp=_cumprod_vjp, autocast="float32",
                 opaque=Opaque("scan", elementwise=1),
                 doc="Products of x[0..i] along the axis. A second operand is taken as in cumsum.", ulp=4,
                 samples=_scanned(reals(0.5, 2), chunked=True),
                 reference=_in_chunks(lambda x, axis: np.cumprod(x, axis), lambda x, end: x * end))


def _recurrence_type(a: TensorType, b: TensorType, axis: int, reverse: bool) -> TensorType:
    return common((a, b), FLOAT)


def _recurrence_vjp(g: Node, a: Node, b: Node, y: Node, axis: int, reverse: bool) -> tuple[Node, Node]:
    step = -1 if reverse else 1
    later = recurrence(shifted(a, axis, -step, 0), g, axis=axis, reverse=not reverse)
    return later * shifted(y, axis, step, 0), later


def _recurred(a: ndarray, b: ndarray, axis: int, reverse: bool) -> ndarray:
    a, b = (np.moveaxis(np.flip(v, axis) if reverse else v, axis, 0) for v in (a, b))
    y = b.copy()
    for i in range(1, len(y)):
        y[i] = np.where(a[i] == 0, b[i], a[i] * y[i - 1] + b[i])
    y = np.moveaxis(y, 0, axis)
    return np.flip(y, axis) if reverse else y


recurrence: Op = Op("recurrence", "scan", _recurrence_type, **_SCAN, vjp=_recurrence_vjp, ulp=8,
                    opaque=Opaque("scan", elementwise=2),
                    doc="y[i] = a[i]·y[i-1] + b[i] along the axis, y[0] = b[0]; where a is 0, y starts anew, whatever "
                        "came before.",
                    samples=cases(*(case(reals(-1, 1).of(*s), reals().of(*s), axis=a, reverse=r) for s, a in (
                        ((5,), 0), ((3, 4), 0), ((2, 3, 4), 1), ((0, 2), 0), ((2, 70), 1)) for r in (False, True)),
                        case(Array((1.0, 0.0, 1.0)), Array((float("inf"), 1.0, 2.0)), axis=0), scale=4),
                    reference=_recurred)


# Extremes and where they are

def _extremes_type(x: TensorType, axis: int) -> tuple[TensorType, TensorType]:
    common((x,), ANY)
    return x, x.with_dtype(int64)


def _extremes_vjp(g: tuple[Node | None, ...], x: Node, y: Node, axis: int) -> Node | None:
    return None if g[0] is None else scatter_add(zeros_like(x), item(y, index=1), g[0], axis=axis)


def _extremes(better: Callable[[ndarray, ndarray], ndarray]) -> Callable[..., tuple[ndarray, ndarray]]:
    """The last of equal ones counts, and the last NaN, as in torch."""
    def run(x: ndarray, axis: int) -> tuple[ndarray, ndarray]:
        lines = np.moveaxis(x, axis, 0)
        values, indices = lines.copy(), np.zeros(lines.shape, "int64")
        for i in range(1, len(lines)):
            taken = better(lines[i], values[i - 1]) | (lines[i] != lines[i])
            values[i] = np.where(taken, lines[i], values[i - 1])
            indices[i] = np.where(taken, i, indices[i - 1])
        return np.moveaxis(values, 0, axis), np.moveaxis(indices, 0, axis)
    return run


def _extreme_samples() -> Samples:
    nan, inf = float("nan"), float("inf")
    return cases(*(case(shuffled(n).of(*s), axis=a) for n, s, a in (
        (5, (5,), 0), (12, (3, 4), 0), (24, (2, 3, 4), 1), (1, (0, 2), 0), (100, (2, 50), 1))),
        forward_only(case(reals().of(3, 40), axis=1)),
        case(Array((1.0, 3.0, 3.0, nan, inf, nan, 2.0)), axis=0), case(Array((-inf, inf, 0.0, -0.0, 0.0)), axis=0),
        kinds=ANY)


cummax: Op = Op("cummax", "scan", _extremes_type, attrs=("axis",), vjp=_extremes_vjp, differentiable=True,
                opaque=Opaque("scan", elementwise=1),
                doc="The largest of x[0..i] along the axis and where it is (int64): the last of equal ones; NaN if "
                    "there is one.", samples=_extreme_samples(), reference=_extremes(lambda a, b: a >= b))
cummin: Op = Op("cummin", "scan", _extremes_type, attrs=("axis",), vjp=_extremes_vjp, differentiable=True,
                opaque=Opaque("scan", elementwise=1),
                doc="The smallest of x[0..i] along the axis and where it is (int64): the last of equal ones; NaN if "
                    "there is one.", samples=_extreme_samples(), reference=_extremes(lambda a, b: a <= b))


# Logarithms of sums

def _logcumsumexp_type(x: TensorType, *ends: TensorType, axis: int, reverse: bool, chunk: int) -> TensorType:
    common((x,), FLOAT)
    return _chunked_type(x, *ends, axis=axis, reverse=reverse, chunk=chunk)


def _logcumsumexp_vjp(g: Node, x: Node, *ends_and_y: Node, axis: int, reverse: bool, chunk: int) -> Node:
    y, = ends_and_y
    return logcumsumexp_backward(g, x, y, axis=axis, reverse=not reverse)


def _logcumsumexp_backward(g: Node, x: Node, y: Node, *ends: Node, axis: int, reverse: bool, chunk: int) -> Node:
    """In logarithms, so that no term overflows: for g > 0 and g < 0 apart."""
    assert not ends, "scans are split for backends that have a kernel for them"
    g_, x_, y_ = upcast(g), upcast(x), upcast(y)
    size = log(abs(g_))
    least = literal(float(g_.type.dtype.min or 0))
    parts = [exp(logcumsumexp(where_(sign(g_, literal(0.0)), size, least) - y_, axis=axis, reverse=reverse) + x_)
             for sign in (gt, lt)]
    return downcast(parts[0] - parts[1], x)


def _log_sums(x: ndarray, axis: int) -> ndarray:
    lines = np.moveaxis(x, axis, 0).copy()
    for i in range(1, len(lines)):
        lines[i] = np.logaddexp(lines[i - 1], lines[i])
    return np.moveaxis(lines, 0, axis)


def _log_sum_samples() -> Samples:
    found = [case(values.of(*s), axis=a, reverse=r) for values in (reals(), reals(-200, 200))
             for s, a in (((5,), 0), ((3, 4), 0), ((2, 3, 4), 2), ((0, 2), 0), ((2, 70), 1)) for r in (False, True)]
    found += [case(Array(row), axis=0) for row in ((-float("inf"), -float("inf"), 1.0, 2.0),
                                                   (1.0, float("inf"), 2.0), (1.0, float("nan"), 2.0))]
    some = Values(1, 3, float32)
    found += [forward_only(case(some.of(2, 7), some.of(2, 3), axis=1, reverse=r, chunk=3)) for r in (False, True)]
    return cases(*found, scale=4)


logcumsumexp: Op = Op("logcumsumexp", "scan", _logcumsumexp_type, **_CHUNKED, vjp=_logcumsumexp_vjp, ulp=4,
                      opaque=Opaque("scan", elementwise=1),
                      doc="log Σ exp(x[0..i]) along the axis. A second operand is taken as in cumsum.",
                      samples=_log_sum_samples(), reference=_in_chunks(_log_sums, np.logaddexp))


def _backward_type(g: TensorType, x: TensorType, y: TensorType, *ends: TensorType, axis: int, reverse: bool,
                   chunk: int) -> TensorType:
    common((g, x, y), FLOAT)
    return _chunked_type(g, *ends, axis=axis, reverse=reverse, chunk=chunk)


def _decayed(g: ndarray, x: ndarray, y: ndarray, axis: int, reverse: bool, chunk: int) -> ndarray:
    g, x, y = (np.moveaxis(np.flip(v, axis) if reverse else v, axis, 0) for v in (g, x, y))
    found = np.stack([np.sum(g[:i + 1] * np.exp(x[i] - y[:i + 1]), 0) for i in range(len(g))]) if len(g) else g
    found = np.moveaxis(found, 0, axis)
    return np.flip(found, axis) if reverse else found


logcumsumexp_backward: Op = Op(
    "logcumsumexp_backward", "scan", _backward_type, **_CHUNKED, decompose=_logcumsumexp_backward, ulp=16,
    opaque=Opaque("scan", elementwise=3),
    doc="Gradient of logcumsumexp by x: Σ over j ≤ i along the axis of g[j]·exp(x[i] - y[j]), where y is the result; "
        "`reverse` is not that of the scan that it is the gradient of. With a fourth operand each chunk begins with "
        "that sum of the chunk before, of which it has Σ of g[j]·exp(y[i] - y[j]) up to the end.",
    samples=cases(*(case(reals(-1, 1).of(*s), reals(-1, 1).of(*s), reals(1, 2).of(*s), axis=a, reverse=r)
                    for s, a in (((5,), 0), ((3, 4), 0), ((2, 3, 4), 1), ((0, 2), 0), ((2, 20), 1))
                    for r in (False, True)), scale=4),
    reference=_decayed)

__all__ = ["chunks_of", "cummax", "cummin", "cumprod", "cumsum", "logcumsumexp", "logcumsumexp_backward",
           "recurrence", "shifted"]
