"""Norms of (n, channels, ...): over all of a channel (batch norm), or over groups of channels of one element."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.ops.control import item
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import common, rsqrt
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import mean, spread, sum
from genesis.ir.ops.samples import FLOAT, case, cases, np, positives, reals
from genesis.ir.types import TensorType, float32

if TYPE_CHECKING:
    from numpy import ndarray

Ints = tuple[int, ...]


def _statistic(x: TensorType) -> TensorType:
    """A number for each channel, in at least float32."""
    return (x if x.dtype.itemsize >= 4 else x.with_dtype(float32)).with_shape(x.shape[1:2])


def _check(x: TensorType, parameters: tuple[TensorType, ...], names: tuple[str, ...]) -> None:
    common((x,), FLOAT)
    if x.ndim < 2:
        raise RuntimeError(f"input of shape {x.shape} has no channels: (n, channels, ...) is wanted")
    for name, parameter in zip(names, parameters, strict=False):
        if parameter.shape != x.shape[1:2]:
            raise RuntimeError(f"{name} should contain {x.shape[1]} elements, one a channel, not {parameter.shape}")
        if parameter.device is not x.device:
            raise RuntimeError(f"operands are on two devices, {x.device} and {parameter.device}")


def _of_channel(value: Node, x: Node) -> Node:
    """A number for each channel in x's shape, in at least float32."""
    column = reshape(upcast(value), shape=(1, value.type.numel, *[1] * (x.type.ndim - 2)))
    return expand(column, shape=x.type.shape)


def _rest(x: Node) -> Ints:
    """All axes but the channels'."""
    return (0, *range(2, x.type.ndim))


def _scaled(normalized: Node, affine: tuple[Node, ...], like: Node) -> Node:
    """normalized · weight + bias, rounded."""
    y = normalized * _of_channel(affine[0], like) if affine else normalized
    return downcast(y + _of_channel(affine[1], like) if len(affine) == 2 else y, like)


# Batch norm

def _batch_type(x: TensorType, *affine: TensorType, eps: float) -> tuple[TensorType, ...]:
    _check(x, affine, ("weight", "bias"))
    return x, _statistic(x), _statistic(x)


def _batch_norm(x: Node, *affine: Node, eps: float) -> tuple[Node, Node, Node]:
    w, rest = upcast(x), _rest(x)
    middle = mean(w, axes=rest)
    centred = w - spread(middle, w, rest)
    variance = mean(centred * centred, axes=rest)
    return _scaled(centred * _of_channel(rsqrt(variance + eps), x), affine, x), middle, variance


def _batch_vjp(g: tuple, x: Node, *affine_and_y: Node, eps: float) -> tuple[Node | None, ...]:
    affine, y = affine_and_y[:-1], affine_and_y[-1]
    middle, variance = item(y, index=1), item(y, index=2)
    count = max(x.type.numel // max(x.type.shape[1], 1), 1)
    found: list[Node | None] = [None] * (1 + len(affine))
    if g[0] is not None:
        several = batch_norm_backward(g[0], x, middle, variance, *affine[:1], eps=eps)
        found = [item(several, index=i) for i in range(1 + len(affine))]
    for i, to_statistic in enumerate(g[1:]):
        if to_statistic is not None:
            part = _of_channel(to_statistic, x) * (1 / count)
            part = part if i == 0 else part * 2.0 * (upcast(x) - _of_channel(middle, x))
            found[0] = downcast(part, x) if found[0] is None else found[0] + downcast(part, x)
    return tuple(found)


def _batch_backward(g: Node, x: Node, middle: Node, variance: Node, *weight: Node, eps: float) -> tuple[Node, ...]:
    """dx = (h - mean(h) - x̂·mean(h·x̂)) / std with h = g·weight; dweight = Σ g·x̂; dbias = Σ g."""
    rest, wg = _rest(x), upcast(g)
    inverse = _of_channel(rsqrt(variance + eps), x)
    normalized = (upcast(x) - _of_channel(middle, x)) * inverse
    count = max(x.type.numel // max(x.type.shape[1], 1), 1)
    total, along = sum(wg, axes=rest), sum(wg * normalized, axes=rest)
    part = wg - _of_channel(total * (1 / count), x) - normalized * _of_channel(along * (1 / count), x)
    to_x = downcast(part * inverse * _of_channel(weight[0], x) if weight else part * inverse, x)
    return (to_x, downcast(along, weight[0]), downcast(total, weight[0])) if weight else (to_x,)


def _eval_type(x: TensorType, *parameters: TensorType, eps: float) -> TensorType:
    _check(x, parameters, ("running_mean", "running_var", "weight", "bias"))
    return x


def _batch_norm_eval(x: Node, middle: Node, variance: Node, *affine: Node, eps: float) -> Node:
    centred = upcast(x) - _of_channel(middle, x)
    return _scaled(centred * _of_channel(rsqrt(upcast(variance) + eps), x), affine, x)


# Group norm

def _group_type(x: TensorType, *affine: TensorType, groups: int, eps: float) -> TensorType:
    _check(x, affine, ("weight", "bias"))
    if groups < 1 or x.shape[1] % groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of "
                           f"shape {x.shape} and num_groups={groups}")
    return x


def _by_group(x: Node, groups: int) -> Node:
    images, channels, *rest = x.type.shape
    return reshape(x, shape=(images, groups, channels // groups * prod(rest)))


def group_statistics(x: Node, groups: int, eps: float) -> tuple[Node, Node]:
    """(mean, 1 / √(variance + eps)) of each group of channels of each element: (n, groups)."""
    rows = _by_group(upcast(x), groups)
    middle = mean(rows, axes=(2,))
    centred = rows - spread(middle, rows, (2,))
    return downcast(middle, x), downcast(rsqrt(mean(centred * centred, axes=(2,)) + eps), x)


def _normalized(x: Node, groups: int, eps: float) -> tuple[Node, Node]:
    """((x - mean) / std, 1 / std), both in x's shape and at least float32."""
    rows = _by_group(upcast(x), groups)
    centred = rows - spread(mean(rows, axes=(2,)), rows, (2,))
    inverse = spread(rsqrt(mean(centred * centred, axes=(2,)) + eps), rows, (2,))
    return reshape(centred * inverse, shape=x.type.shape), reshape(inverse, shape=x.type.shape)


def _group_norm(x: Node, *affine: Node, groups: int, eps: float) -> Node:
    return _scaled(_normalized(x, groups, eps)[0], affine, x)


def _group_vjp(g: Node, x: Node, *affine_and_y: Node, groups: int, eps: float) -> tuple[Node, ...]:
    affine = affine_and_y[:-1]
    found = group_norm_backward(g, x, *affine[:1], groups=groups, eps=eps)
    return tuple(item(found, index=i) for i in range(1 + len(affine)))


def _group_backward(g: Node, x: Node, *weight: Node, groups: int, eps: float) -> tuple[Node, ...]:
    """The gradients, as of batch norm, over groups."""
    normalized, inverse = _normalized(x, groups, eps)
    wg = upcast(g)
    h = wg * _of_channel(weight[0], x) if weight else wg
    rows, along = _by_group(h, groups), _by_group(h * normalized, groups)
    part = h - reshape(spread(mean(rows, axes=(2,)), rows, (2,)), shape=x.type.shape)
    part = part - normalized * reshape(spread(mean(along, axes=(2,)), rows, (2,)), shape=x.type.shape)
    to_x = downcast(part * inverse, x)
    if not weight:
        return (to_x,)
    rest = _rest(x)
    return to_x, downcast(sum(wg * normalized, axes=rest), weight[0]), downcast(sum(wg, axes=rest), weight[0])


# References and samples

def _column(value: ndarray, x: ndarray) -> ndarray:
    return value.reshape(-1, *[1] * (x.ndim - 2))


def _affine_value(y: ndarray, affine: tuple[ndarray, ...]) -> ndarray:
    y = y * _column(affine[0], y) if affine else y
    return y + _column(affine[1], y) if len(affine) == 2 else y


def _batch_value(x: ndarray, *affine: ndarray, eps: float) -> tuple[ndarray, ...]:
    axes = (0, *range(2, x.ndim))
    middle, variance = np.mean(x, axes), np.var(x, axes)
    return _affine_value((x - _column(middle, x)) / np.sqrt(_column(variance, x) + eps), affine), middle, variance


def _eval_value(x: ndarray, middle: ndarray, variance: ndarray, *affine: ndarray, eps: float) -> ndarray:
    return _affine_value((x - _column(middle, x)) / np.sqrt(_column(variance, x) + eps), affine)


def _group_value(x: ndarray, *affine: ndarray, groups: int, eps: float) -> ndarray:
    rows = x.reshape(x.shape[0], groups, prod(x.shape[1:]) // groups)
    y = (rows - np.mean(rows, -1, keepdims=True)) / np.sqrt(np.var(rows, -1, keepdims=True) + eps)
    return _affine_value(y.reshape(x.shape), affine)


_SHAPES: tuple[Ints, ...] = ((5, 3), (4, 2, 6), (2, 4, 3, 5))
_GROUPED: tuple[tuple[Ints, int], ...] = (((3, 8), 2), ((2, 6, 5), 3), ((2, 4, 3, 5), 1), ((2, 4, 3, 2), 4))

batch_norm = Op("batch_norm", "composite", _batch_type, attrs=("eps",), decompose=_batch_norm, vjp=_batch_vjp, ulp=8,
                doc="((x - mean) / √(variance + eps) · weight + bias, mean, variance), a mean and variance for each "
                    "channel over all else (Ioffe and Szegedy 2015).",
                samples=cases(*(case(reals().of(*s), *[reals().of(s[1])] * n, eps=0.1) for s in _SHAPES
                                for n in range(3)), scale=1), reference=_batch_value)
batch_norm_backward: Op = Op("batch_norm_backward", "composite",
                             lambda g, x, middle, variance, *weight, eps: (x, *weight, *weight), attrs=("eps",),
                             decompose=_batch_backward, ulp=16,
                             doc="Gradients of batch_norm's first result by x and, when weight is given, by weight and "
                                 "bias, from the mean and variance.",
                             samples=cases(*(case(reals().of(*s), reals().of(*s), reals(0, 0.5).of(s[1]),
                                                  positives(2).of(s[1]), *[reals().of(s[1])] * n, eps=0.1)
                                             for s in _SHAPES for n in range(2)), scale=4))
batch_norm_eval = Op("batch_norm_eval", "composite", _eval_type, attrs=("eps",), decompose=_batch_norm_eval, ulp=8,
                     doc="(x - mean) / √(variance + eps) · weight + bias with a given mean and variance a channel.",
                     samples=cases(*(case(reals().of(*s), reals().of(s[1]), positives(2).of(s[1]),
                                          *[reals().of(s[1])] * n, eps=0.1) for s in _SHAPES for n in range(3)),
                                   scale=4), reference=_eval_value)
group_norm = Op("group_norm", "composite", _group_type, attrs=("groups", "eps"), decompose=_group_norm, vjp=_group_vjp,
                autocast="float32",
                ulp=8, doc="(x - mean) / √(variance + eps) · weight + bias over each group of channels of each element "
                           "(Wu and He 2018).",
                samples=cases(*(case(reals().of(*s), *[reals().of(s[1])] * n, groups=k, eps=0.1) for s, k in _GROUPED
                                for n in range(3)), scale=1), reference=_group_value)
group_norm_backward: Op = Op("group_norm_backward", "composite", lambda g, x, *weight, **how: (x, *weight, *weight),
                             attrs=("groups", "eps"), decompose=_group_backward, ulp=16,
                             doc="Gradients of group_norm by x and, when weight is given, by weight and bias.",
                             samples=cases(*(case(reals().of(*s), reals().of(*s), *[reals().of(s[1])] * n, groups=k,
                                                  eps=0.1) for s, k in _GROUPED for n in range(2)), scale=4))
