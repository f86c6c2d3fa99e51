"""Convolution in any number of dimensions, and its two gradients.

The three are one trilinear form, Σ x[n, c, i·stride + k·dilation - padding] · w[o, c, k] · g[n, o, i] over all
indices, differentiated by g (the convolution), by x (its transpose) and by w. So each one's vjp is the other
two, to any order (Dumoulin and Visin, A guide to convolution arithmetic, 2016).
"""

from __future__ import annotations

import itertools
from math import prod
from typing import TYPE_CHECKING, Any

from genesis.ir.node import Node, Op
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.leaves import full
from genesis.ir.ops.movement import assign, expand, flip, pad, permute, reshape
from genesis.ir.ops.movement import slice as slice_
from genesis.ir.ops.pointwise import common
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import sum
from genesis.ir.ops.samples import NUMERIC, Samples, case, cases, np, reals
from genesis.ir.ops.windows import patches
from genesis.ir.sym_int import one_factor
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypedDict, Unpack

    from numpy import ndarray

    from genesis.ir.ops.windows import Index

    class Placed(TypedDict):
        """Where windows lie."""

        stride: Ints
        padding: Ints
        dilation: Ints
        groups: int

Ints = tuple[int, ...]


def spread_window(size: int, dilation: int) -> int:
    """The number of elements that a window of `size` taps reaches over.

    >>> spread_window(3, 2)
    5
    """
    return (size - 1) * dilation + 1


def result_sizes(sizes: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    """Spatial sizes of a convolution's result.

    >>> result_sizes((8, 8), (3, 3), (2, 1), (1, 1), (1, 1))
    (4, 8)
    """
    return tuple(one_factor((n + 2 * p - spread_window(k, d)) // s + 1)
                 for n, k, s, p, d in zip(sizes, window, stride, padding, dilation, strict=True))


def _check(x: Ints, weight: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Ints:
    """The shape of the result for operands of these shapes, or RuntimeError."""
    n = len(x) - 2
    if n < 1 or len(weight) != n + 2 or not len(stride) == len(padding) == len(dilation) == n:
        raise RuntimeError(f"input {x}, weight {weight}, stride {stride}, padding {padding} and dilation {dilation} "
                           "do not have the same number of spatial dimensions")
    if min(stride) < 1 or min(dilation) < 1 or min(padding) < 0 or groups < 1:
        raise RuntimeError(f"stride {stride}, dilation {dilation} and groups {groups} must be positive, "
                           f"padding {padding} not negative")
    if weight[0] % groups or weight[1] * groups != x[1]:
        raise RuntimeError(f"Given groups={groups}, weight of size {weight}, expected input {x} to have "
                           f"{weight[1] * groups} channels, but got {x[1]} channels instead")
    sizes = result_sizes(x[2:], weight[2:], stride, padding, dilation)
    if any(k < 1 for k in weight[2:]) or any(size < 1 for size in sizes):
        padded = tuple(n + 2 * p for n, p in zip(x[2:], padding, strict=True))
        raise RuntimeError(f"Kernel size {weight[2:]} with dilation {dilation} can't be greater than the padded input "
                           f"size {padded}")
    return (x[0], weight[0], *sizes)


def _typed(first: TensorType, second: TensorType, shape: Ints) -> TensorType:
    for other in (second,):
        if other.dtype is not first.dtype:
            raise RuntimeError(f"Input type ({first.dtype!r}) and weight type ({other.dtype!r}) should be the same")
        if other.device is not first.device:
            raise RuntimeError(f"operands are on two devices, {first.device} and {other.device}")
    return common((first,), NUMERIC).with_shape(shape)


def _convolution_type(x: TensorType, weight: TensorType, *bias: TensorType, stride: Ints, padding: Ints,
                      dilation: Ints, groups: int) -> TensorType:
    shape = _check(x.shape, weight.shape, stride, padding, dilation, groups)
    _check_bias(x, weight, bias, shape[1])
    return _typed(x, weight, shape)


def _check_bias(x: TensorType, weight: TensorType, bias: tuple[TensorType, ...], channels: int) -> None:
    if bias and bias[0].shape != (channels,):
        raise RuntimeError(f"Given weight of size {weight.shape}, expected bias to be 1-dimensional with {channels} "
                           f"elements, but got bias of size {bias[0].shape} instead")
    if bias and bias[0].dtype is not x.dtype:
        raise RuntimeError(f"Input type ({x.dtype!r}) and bias type ({bias[0].dtype!r}) should be the same")


def _input_type(g: TensorType, weight: TensorType, *bias: TensorType, sizes: Ints, stride: Ints, padding: Ints,
                dilation: Ints, groups: int) -> TensorType:
    if weight.ndim < 3:
        raise RuntimeError(f"weight of shape {weight.shape} has no spatial dimension")
    shape = (g.shape[0], weight.shape[1] * groups, *sizes)
    _check_bias(g, weight, bias, shape[1])
    if _check(shape, weight.shape, stride, padding, dilation, groups) != g.shape:
        raise RuntimeError(f"{g.shape} is not the shape of a convolution of {shape} with weight {weight.shape}")
    return _typed(g, weight, shape)


def _weight_type(g: TensorType, x: TensorType, window: Ints, stride: Ints, padding: Ints, dilation: Ints,
                 groups: int) -> TensorType:
    if g.ndim != x.ndim or x.ndim < 3 or x.shape[1] % groups:
        raise RuntimeError(f"gradient {g.shape} and input {x.shape} do not fit {groups} groups")
    shape = (g.shape[1], x.shape[1] // groups, *window)
    if _check(x.shape, shape, stride, padding, dilation, groups) != g.shape:
        raise RuntimeError(f"{g.shape} is not the shape of a convolution of {x.shape} with a weight of {shape}")
    return _typed(g, x, shape)


def _convolution_vjp(g: Node, x: Node, weight: Node, *bias_and_y: Node, **how: Unpack[Placed]) -> tuple[Node, ...]:
    found = (convolution_input(g, weight, sizes=x.type.shape[2:], **how),
             convolution_weight(g, x, window=weight.type.shape[2:], **how))
    return found if len(bias_and_y) == 1 else (*found, _to_bias(g))


def _input_vjp(h: Node, g: Node, weight: Node, *bias_and_x: Node, sizes: Ints,
               **how: Unpack[Placed]) -> tuple[Node, ...]:
    found = (convolution(h, weight, **how), convolution_weight(g, h, window=weight.type.shape[2:], **how))
    return found if len(bias_and_x) == 1 else (*found, _to_bias(h))


def _to_bias(g: Node) -> Node:
    return downcast(sum(upcast(g), axes=(0, *range(2, g.type.ndim))), g)


def _with_bias(y: Node, bias: tuple[Node, ...]) -> Node:
    """y (n, channels, ...) plus a number for each channel."""
    return y + reshape(bias[0], shape=(bias[0].type.numel, *[1] * (y.type.ndim - 2))) if bias else y


# Decompositions: products of all windows, side by side, with the weight

def _grouped_patches(x: Node, window: Ints, out: Ints, how: Placed) -> Node:
    """The windows of x as (n, groups, channels of a group · taps, places)."""
    n, groups = x.type.shape[0], how["groups"]
    found = patches(x, window, out, how["stride"], how["padding"], how["dilation"])
    n_spatial = len(window)
    axes = (0, 1, *range(2 + n_spatial, 2 + 2 * n_spatial), *range(2, 2 + n_spatial))
    return reshape(permute(found, axes=axes),
                   shape=(n, groups, x.type.shape[1] // groups * prod(window), prod(out)))


def _convolution(x: Node, weight: Node, *bias: Node, **how: Unpack[Placed]) -> Node:
    n, groups, out = x.type.shape[0], how["groups"], weight.type.shape[0]
    sizes = result_sizes(x.type.shape[2:], weight.type.shape[2:], how["stride"], how["padding"], how["dilation"])
    seen = _grouped_patches(x, weight.type.shape[2:], sizes, how)
    rows = reshape(weight, shape=(1, groups, out // groups, seen.type.shape[2]))
    if out == groups:  # a product with one row is a sum: no matrix product is worth its while
        column = reshape(upcast(rows), shape=(1, groups, seen.type.shape[2], 1))
        y = downcast(sum(upcast(seen) * expand(column, shape=seen.type.shape), axes=(2,)), x)
    else:
        y = matmul(expand(rows, shape=(n, *rows.type.shape[1:])), seen)
    return _with_bias(reshape(y, shape=(n, out, *sizes)), bias)


def _turned(weight: Node, groups: int) -> Node:
    """The weight that leads back: taps in reverse, input and output channels of each group exchanged."""
    out, channels, *window = weight.type.shape
    split = reshape(flip(weight, axes=tuple(range(2, weight.type.ndim))),
                    shape=(groups, out // groups, channels, *window))
    turned = permute(split, axes=(0, 2, 1, *range(3, split.type.ndim)))
    return reshape(turned, shape=(groups * channels, out // groups, *window))


def _convolution_input(g: Node, weight: Node, *bias: Node, sizes: Ints, stride: Ints, padding: Ints, dilation: Ints,
                       groups: int) -> Node:
    """A convolution of g, with `stride - 1` zeros between its elements and as many around that all taps fit."""
    ones, lead = (1,) * len(sizes), g.type.shape[:2]
    if stride != ones:
        apart = tuple((n - 1) * s + 1 for n, s in zip(g.type.shape[2:], stride, strict=True))
        zeros = full((*lead, *apart), 0, g.type.dtype, g.type.device)
        g = assign(zeros, g, starts=(0,) * g.type.ndim, stops=zeros.type.shape, steps=(1, 1, *stride))
    low = tuple(d * (k - 1) - p for k, d, p in zip(weight.type.shape[2:], dilation, padding, strict=True))
    high = tuple(n + d * (k - 1) - m - a for n, m, k, d, a in zip(
        sizes, g.type.shape[2:], weight.type.shape[2:], dilation, low, strict=True))
    g = pad(g, low=(0, 0, *(max(a, 0) for a in low)), high=(0, 0, *(max(b, 0) for b in high)), value=0)
    if any(a < 0 for a in low + high):  # more padding than a window reaches: the border of g counts for nothing
        starts = (0, 0, *(max(-a, 0) for a in low))
        stops = (*lead, *(n - max(-b, 0) for n, b in zip(g.type.shape[2:], high, strict=True)))
        g = slice_(g, starts=starts, stops=stops, steps=(1,) * g.type.ndim)
    return convolution(g, _turned(weight, groups), *bias, stride=ones, padding=(0,) * len(sizes), dilation=dilation,
                       groups=groups)


def _convolution_weight(g: Node, x: Node, window: Ints, **how: Unpack[Placed]) -> Node:
    n, out, *sizes = g.type.shape
    groups = how["groups"]
    seen = _grouped_patches(x, window, tuple(sizes), how)
    rows = reshape(g, shape=(n, groups, out // groups, prod(sizes)))
    if out == groups:
        products = upcast(seen) * expand(upcast(rows), shape=seen.type.shape)
        return reshape(downcast(sum(products, axes=(0, 3)), g), shape=(out, x.type.shape[1] // groups, *window))
    # one product over all images and places: (groups, out, n · places) · (groups, n · places, channels · taps)
    rows = reshape(permute(rows, axes=(1, 2, 0, 3)), shape=(groups, out // groups, n * prod(sizes)))
    columns = reshape(permute(seen, axes=(1, 2, 0, 3)), shape=(groups, seen.type.shape[2], n * prod(sizes)))
    return reshape(matmul(rows, swap_last(columns)), shape=(out, x.type.shape[1] // groups, *window))


# Samples: (input, weight, stride, padding, dilation, groups)
_CASES: tuple[tuple[Any, ...], ...] = (
    ((2, 3, 7), (4, 3, 3), (1,), (1,), (1,), 1),
    ((1, 2, 9), (2, 1, 3), (2,), (2,), (2,), 2),
    ((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), (0, 0), (1, 1), 1),
    ((1, 4, 7, 8), (6, 2, 3, 3), (2, 3), (1, 2), (1, 1), 2),
    ((2, 4, 5, 5), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    ((1, 3, 8, 9), (2, 3, 2, 3), (3, 2), (2, 3), (2, 3), 1),
    ((2, 20, 4, 4), (17, 20, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((1, 3, 5, 5), (2, 3, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((1, 2, 4, 3, 5), (3, 2, 2, 3, 2), (2, 1, 1), (1, 1, 0), (1, 1, 2), 1),
    ((0, 2, 5), (3, 2, 3), (1,), (0,), (1,), 1),
)


def _attributes(stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Placed:
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def _forward_samples() -> Samples:
    found = [case(reals().of(*x), reals().of(*w), **_attributes(*how)) for x, w, *how in _CASES]
    x, w, *how = _CASES[3]
    found.append(case(reals().of(*x), reals().of(*w), reals().of(w[0]), **_attributes(*how)))
    return cases(*found, kinds=NUMERIC, scale=4)


def _input_samples() -> Samples:
    return cases(*(case(reals().of(x[0], w[0], *result_sizes(x[2:], w[2:], *how[:3])), reals().of(*w),
                        *([reals().of(x[1])] if x[0] == 1 else []), sizes=x[2:], **_attributes(*how))
                   for x, w, *how in _CASES), kinds=NUMERIC, scale=4)


def _weight_samples() -> Samples:
    return cases(*(case(reals().of(x[0], w[0], *result_sizes(x[2:], w[2:], *how[:3])), reals().of(*x), window=w[2:],
                        **_attributes(*how)) for x, w, *how in _CASES), kinds=NUMERIC, scale=4)


def _taps(x: Ints, window: Ints, out: Ints, stride: Ints, padding: Ints,
          dilation: Ints) -> Iterator[tuple[Index, Index]]:
    """(the index of the tap, that of what it sees of the padded input) for each tap of the window."""
    for tap in itertools.product(*map(range, window)):
        yield (..., *tap), (..., *(slice(k * d, k * d + (n - 1) * s + 1, s)
                                   for k, d, n, s in zip(tap, dilation, out, stride, strict=True)))


def _padded(x: ndarray, padding: Ints) -> ndarray:
    return np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])


def _grouped(x: ndarray, axis: int, groups: int) -> ndarray:
    """The axis as (groups, size / groups)."""
    return x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1:])


def _value(x: ndarray, w: ndarray, *bias: ndarray, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> ndarray:
    out = result_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    padded, weights = _grouped(_padded(x, padding), 1, groups), _grouped(w, 0, groups)
    y = np.zeros((x.shape[0], groups, w.shape[0] // groups, *out), x.dtype)
    for tap, seen in _taps(x.shape, w.shape[2:], out, stride, padding, dilation):
        y += np.einsum("ngc...,goc->ngo...", padded[seen], weights[tap])
    y = y.reshape(x.shape[0], w.shape[0], *out)
    return y + bias[0].reshape(-1, *[1] * len(out)) if bias else y


def _input_value(g: ndarray, w: ndarray, *bias: ndarray, sizes: Ints, stride: Ints, padding: Ints, dilation: Ints,
                 groups: int) -> ndarray:
    gradients, weights = _grouped(g, 1, groups), _grouped(w, 0, groups)
    x = np.zeros((g.shape[0], groups, w.shape[1], *(n + 2 * p for n, p in zip(sizes, padding, strict=True))), g.dtype)
    for tap, seen in _taps(x.shape, w.shape[2:], g.shape[2:], stride, padding, dilation):
        x[seen] += np.einsum("ngo...,goc->ngc...", gradients, weights[tap])
    inside: Index = (..., *(slice(p, p + n) for p, n in zip(padding, sizes, strict=True)))
    y = x[inside].reshape(g.shape[0], w.shape[1] * groups, *sizes)
    return y + bias[0].reshape(-1, *[1] * len(sizes)) if bias else y


def _weight_value(g: ndarray, x: ndarray, window: Ints, stride: Ints, padding: Ints, dilation: Ints,
                  groups: int) -> ndarray:
    gradients, padded = _grouped(g, 1, groups), _grouped(_padded(x, padding), 1, groups)
    w = np.zeros((groups, g.shape[1] // groups, x.shape[1] // groups, *window), g.dtype)
    flat = gradients.reshape(*gradients.shape[:3], prod(g.shape[2:]))
    for tap, seen in _taps(x.shape, window, g.shape[2:], stride, padding, dilation):
        part = padded[seen]
        w[tap] = np.einsum("ngop,ngcp->goc", flat, part.reshape(*part.shape[:3], flat.shape[-1]))
    return w.reshape(g.shape[1], x.shape[1] // groups, *window)


_HOW = ("stride", "padding", "dilation", "groups")

convolution = Op("convolution", "contract", _convolution_type, attrs=_HOW, vjp=_convolution_vjp, ulp=8, autocast="low",
                 decompose=_convolution,
                 doc="y[n, o, i] = Σ x[n, c, i·stride + k·dilation - padding] · weight[o, c, k] (+ bias[o]): a group "
                     "of output channels sees its group of input channels, and 0 past the borders.",
                 samples=_forward_samples(), reference=_value)
convolution_input: Op = Op("convolution_input", "contract", _input_type, attrs=("sizes", *_HOW), ulp=8,
                           decompose=_convolution_input,
                           vjp=_input_vjp,
                           doc="Gradient of convolution by its input of these spatial sizes: a transposed convolution "
                               "(+ bias).",
                           samples=_input_samples(), reference=_input_value)
convolution_weight: Op = Op("convolution_weight", "contract", _weight_type, attrs=("window", *_HOW), ulp=8,
                            decompose=_convolution_weight,
                            vjp=lambda v, g, x, w, window, **how: (
                                convolution(x, v, **how), convolution_input(g, v, sizes=x.type.shape[2:], **how)),
                            doc="Gradient of convolution by its weight of this window.",
                            samples=_weight_samples(), reference=_weight_value)
