"""CPU: the order in which elements lie in memory, as torch's calls make them."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from genesis.ir.node import Node, Op
from genesis.ir.ops import avg_pool, channel_norm, control, convolution, max_pool, movement, resample
from genesis.ir.ops.convolution_last import last_axes
from genesis.ir.types import row_major

FIRST: Final = movement.inverse(last_axes(4))
"""The permutation (n, height, width, channels) → (n, channels, height, width)."""

CONVOLUTIONS: Final = (convolution.convolution, convolution.convolution_input)
"""Their results lie as their image or their weight, channels last if one of them does."""

FOLLOWERS: Final[frozenset[Op]] = frozenset({
    channel_norm.batch_norm, channel_norm.batch_norm_eval, channel_norm.batch_norm_backward, max_pool.max_pool,
    max_pool.max_pool_backward, avg_pool.avg_pool, avg_pool.avg_pool_backward, avg_pool.adaptive_avg_pool,
    avg_pool.adaptive_avg_pool_backward, resample.resample, resample.resample_backward})
"""Ops whose calls make images in the order of their first operand."""


def in_order(x: Node) -> bool:
    """Do elements come in row-major order in memory, with or without gaps? torch makes results in their order."""
    strides = strides_of(x)
    return strides is not None and all(a >= b for a, b in pairwise(
        [stride for stride, size in zip(strides, x.shape, strict=True) if size > 1 and stride]))


def strides_of(x: Node) -> tuple[int, ...] | None:
    """Steps between neighbours in memory, in elements, along each dimension; None if a reshape hides them."""
    if x.op is movement.permute:
        inner = strides_of(x.inputs[0])
        return None if inner is None else tuple([inner[axis] for axis in x["axes"]])
    if x.op is movement.slice:
        inner = strides_of(x.inputs[0])
        return None if inner is None else tuple([a * step for a, step in zip(inner, x["steps"], strict=True)])
    if x.op is movement.expand:
        inner = strides_of(x.inputs[0])
        before, new = x.inputs[0].shape, x.type.ndim - x.inputs[0].type.ndim  # dimensions in front
        return None if inner is None else (*[0] * new, *[
            stride if size == old else 0 for stride, size, old in zip(inner, x.shape[new:], before, strict=True)])
    if x.op is movement.reshape and strides_of(x.inputs[0]) != row_major(x.inputs[0].shape):
        return None
    if lies_last(x):
        _, channels, height, width = x.shape
        return (height * width * channels, 1, width * channels, channels)
    return row_major(x.shape)  # memory of its own, or a reshape of such


def lies_last(x: Node) -> bool:
    """Is it an image that lies in memory with its channels last?"""
    if type(x.type) is tuple or x.type.ndim != 4:
        return False
    if x.op is movement.permute:
        return x["axes"] == FIRST and strides_of(x.inputs[0]) == row_major(x.inputs[0].shape)
    maker = x.inputs[0] if x.op is control.item else x
    if maker.op in CONVOLUTIONS:
        return lies_last(maker.inputs[0]) or lies_last(maker.inputs[1])
    return maker.op in FOLLOWERS and lies_last(maker.inputs[0])
