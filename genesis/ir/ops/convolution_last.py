"""Convolution over tensors whose channels are their last dimension, in the weight too: (n, *sizes, channels).

There a window's channels lie side by side, as a matrix product's rows do. Recording never makes these ops; a
backend that has kernels for them asks for them with a pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.convolution import Ints, convolution, convolution_input, convolution_weight
from genesis.ir.ops.movement import inverse, pad, permute, reshape
from genesis.ir.ops.precision import upcast
from genesis.ir.ops.samples import Samples, case, cases, np
from genesis.ir.types import TensorType, float32

if TYPE_CHECKING:
    from typing import Unpack

    from numpy import ndarray

    from genesis.ir.ops.convolution import Placed


def last_axes(rank: int) -> Ints:
    """(n, channels, *sizes) → (n, *sizes, channels), as a permutation.

    >>> last_axes(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1)


def channels_last(x: Node) -> Node:
    """x (n, channels, *sizes) as (n, *sizes, channels)."""
    return permute(x, axes=last_axes(x.type.ndim))


def channels_first(x: Node) -> Node:
    """x (n, *sizes, channels) as (n, channels, *sizes)."""
    return permute(x, axes=inverse(last_axes(x.type.ndim)))


def _first_type(x: TensorType) -> TensorType:
    return x.with_shape((x.shape[0], x.shape[-1], *x.shape[1:-1]))


def _last_type(x: TensorType) -> TensorType:
    return x.with_shape((x.shape[0], *x.shape[2:], x.shape[1]))


def _typed(op: Op) -> Callable[..., TensorType]:
    """The rule of the op with channels first."""
    def infer(a: TensorType, b: TensorType, *bias: TensorType, **how: Unpack[Placed]) -> TensorType:
        found = op.infer(_first_type(a), _first_type(b), *bias, **how)
        assert isinstance(found, TensorType)
        return _last_type(found)
    return infer


def _by(op: Op) -> Callable[..., Node]:
    """The op with channels first, between permutations."""
    def decompose(a: Node, b: Node, *bias: Node, **how: Unpack[Placed]) -> Node:
        return channels_last(op(channels_first(a), channels_first(b), *bias, **how))
    return decompose


def _parts_type(g: TensorType, x: TensorType, window: Ints, splits: int, **how: Unpack[Placed]) -> TensorType:
    found = _typed(convolution_weight)(g, x, window=window, **how)
    return (found.with_dtype(float32) if found.dtype.itemsize < 4 else found).with_shape((splits, *found.shape))


def _parts(g: Node, x: Node, window: Ints, splits: int, **how: Unpack[Placed]) -> Node:
    """The whole gradient as the first part; the others are 0."""
    whole = _by(convolution_weight)(upcast(g), upcast(x), window=window, **how)
    one = reshape(whole, shape=(1, *whole.type.shape))
    none = (0,) * one.type.ndim
    return pad(one, low=none, high=(splits - 1, *none[1:]), value=0)


def _samples(op: Op, **more: int) -> Samples:
    """The other op's samples, with channels last."""
    found = []
    assert op.samples is not None
    for c in op.samples.cases:
        operands = [o.values.of(o.shape[0], *o.shape[2:], o.shape[1]) for o in c.operands[:2]]  # type: ignore[union-attr]
        found.append(case(*operands, *c.operands[2:], **c.attributes, **more))
    return cases(*found, scale=4)


def _value(op: Op) -> Callable[..., ndarray]:
    def reference(a: ndarray, b: ndarray, *bias: ndarray, **how: Unpack[Placed]) -> ndarray:
        assert op.reference is not None
        return np.moveaxis(op.reference(np.moveaxis(a, -1, 1), np.moveaxis(b, -1, 1), *bias, **how), 1, -1)
    return reference


_HOW = ("stride", "padding", "dilation", "groups")

convolution_last = Op("convolution_last", "composite", _typed(convolution), attrs=_HOW, decompose=_by(convolution),
                      opaque=Opaque("convolution"),
                      ulp=8, doc="convolution of x (n, *sizes, channels) with weight (out, *window, channels).",
                      samples=_samples(convolution), reference=_value(convolution))
convolution_input_last = Op("convolution_input_last", "composite", _typed(convolution_input), attrs=("sizes", *_HOW),
                            opaque=Opaque("convolution"),
                            decompose=_by(convolution_input), ulp=8,
                            doc="convolution_input of g (n, *sizes, out) with weight (out, *window, channels).",
                            samples=_samples(convolution_input), reference=_value(convolution_input))
convolution_weight_last = Op("convolution_weight_last", "composite", _parts_type, attrs=("window", "splits", *_HOW),
                             opaque=Opaque("convolution"),
                             decompose=_parts, ulp=8,
                             doc="Parts in at least float32 whose sum is convolution_weight of g (n, *sizes, out) and "
                                 "x (n, *sizes, channels): (splits, out, *window, channels).",
                             samples=_samples(convolution_weight, splits=1),
                             reference=lambda *x, splits, **how: _value(convolution_weight)(*x, **how)[None])
