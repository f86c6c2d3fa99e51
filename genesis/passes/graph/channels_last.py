"""Convolutions in the layout that a backend has kernels for: channels last, between permutations.

    before: %2: bf16[8,64,56,56] = convolution(%0, %1, …)
    after:  %2: bf16[8,56,56,64] = permute(%0)   %3: bf16[64,3,3,64] = permute(%1)
            %4: bf16[8,56,56,64] = convolution_last(%2, %3, …)
            %5: bf16[8,64,56,56] = permute(%4)

The permutations belong to the kernels around: whoever computes %0 writes it as it is wanted here.
"""

from __future__ import annotations

from math import prod
from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops import convolution
from genesis.ir.ops.convolution_last import (
    channels_first,
    channels_last,
    convolution_input_last,
    convolution_last,
    convolution_weight_last,
)
from genesis.ir.ops.precision import downcast
from genesis.ir.ops.reduction import sum
from genesis.ir.sym_int import hint
from genesis.ir.types import TensorType
from genesis.passes.gpu import Gpu

DOTS: Final = ("float16", "bfloat16", "float32")
"""Dtypes that the kernels multiply."""

FEW_CHANNELS: Final = 16
"""Channels per group below which a kernel takes several taps at a time: a dot instruction takes 16 terms."""

EACH: Final = 2
"""Programs per multiprocessor that share the gradient by a weight."""

SHARE: Final = 512
"""Minimum places that a program sums over."""


def convolution_refusal(x: TensorType, y: TensorType, groups: int) -> str | None:
    """Why no kernel takes a convolution of x (channels first) with the result y; None if one does."""
    if x.dtype.name not in DOTS:
        return f"{x.dtype.name} convolutions are matrix products of windows side by side in memory"
    if groups == y.shape[1]:
        return "each output channel is a sum of its own: a loop computes it"
    if not x.numel or not y.numel:
        return "there is nothing to convolve"
    return None


def refuse_convolution(node: Node) -> str | None:
    """What keeps `convolution` or `convolution_input` from this form, None for nothing."""
    first = node.inputs[0].type
    x, y = (first, node.type) if node.op is convolution.convolution else (node.type, first)
    return convolution_refusal(x, y, node["groups"])


def refuse_convolution_weight(node: Node) -> str | None:
    """What keeps `convolution_weight` from this form, None for nothing."""
    g, x = node.inputs
    return convolution_refusal(x.type, g.type, node["groups"])


def last(node: Node) -> tuple[Node, ...]:
    """`convolution` and `convolution_input` over channels-last operands."""
    op = convolution_last if node.op is convolution.convolution else convolution_input_last
    first, weight, *bias = node.inputs
    return (channels_first(op(channels_last(first), channels_last(weight), *bias, **node.attributes)),)


def weight_last(node: Node, gpu: Gpu) -> tuple[Node, ...]:
    """`convolution_weight` in parts, and their sum."""
    g, x = node.inputs
    out, channels = g.type.shape[1], x.type.shape[1] // node["groups"]
    taps = prod(node["window"])
    columns = -(-channels // 128) * taps if channels >= FEW_CHANNELS else -(-channels * taps // 128)
    tiles = -(-out // node["groups"] // 128) * columns * node["groups"]
    places = hint(g.type.shape[0] * prod(g.type.shape[2:]))
    splits = max(1, min(EACH * gpu.multiprocessors // tiles, places // SHARE))
    parts = convolution_weight_last(channels_last(g), channels_last(x), splits=splits, **node.attributes)
    return (channels_first(downcast(sum(parts, axes=(0,)), g)),)
