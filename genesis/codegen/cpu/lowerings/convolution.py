"""Convolution and its gradients, windows as columns: torch's kernels, which have no `out=` that avoids a copy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering, builtin

Ints = tuple[int, ...]
_convolution_grad = builtin(torch.ops.aten.convolution_backward.default)


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: Ints, padding: Ints, dilation: Ints,
                 groups: int) -> Tensor:
    found = torch.convolution(x, weight, bias, stride, padding, dilation, False, (0,) * len(stride), groups)
    if x.shape[1]:
        return found
    # Of images without channels torch makes images without channels; sums of nothing are 0.
    sums = found.new_zeros(x.shape[0], weight.shape[0], *found.shape[2:])
    return sums if bias is None else sums + bias.reshape(-1, *(1,) * len(stride))


def _convolution_input(g: Tensor, weight: Tensor, bias: Tensor | None = None, *, sizes: Ints, stride: Ints,
                       padding: Ints, dilation: Ints, groups: int) -> Tensor:
    if bias is None and all(k == 1 for k in weight.shape[2:]) and all(s == 1 for s in stride):
        if groups == 1 and not any(padding) and g.dtype.itemsize >= 4 and g.numel():
            return _of_each_place(g, weight)
        # A product of matrices: 7.6 ms where the transposed convolution takes 17.4 (256 from 64 channels, 4 × 56 × 56).
        x = g.new_empty(()).expand(g.shape[0], weight.shape[1] * groups, *sizes)  # read for its shape alone
        return _convolution_grad(g, x, weight, None, stride, padding, dilation, False, (0,) * len(stride),
                                          groups, [True, False, False])[0]
    extra = tuple([n - ((o - 1) * s - 2 * p + d * (k - 1) + 1) for n, o, s, p, d, k in zip(
        sizes, g.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True)])
    return torch.convolution(g, weight, bias, stride, padding, dilation, True, extra, groups)


def _of_each_place(g: Tensor, weight: Tensor) -> Tensor:
    """The gradient by the image of a convolution with windows of one place, as a product of matrices, in the order of
    whichever of the two has its channels last. torch's call for it copies an image as large as the result first: 1.3 ms
    for 0.5 (96 from 32 channels, 8 × 32 × 32), 17 for 3 (256 from 64, 4 × 56 × 56)."""
    n, channels, *sizes = g.shape
    matrix, made = weight.flatten(1), weight.shape[1]
    if g.ndim == 4 and (_is_last(g) or _is_last(weight)):
        return torch.mm(g.permute(0, 2, 3, 1).reshape(-1, channels), matrix).view(n, *sizes, made).permute(0, 3, 1, 2)
    return torch.matmul(matrix.t(), g.flatten(2)).view(n, made, *sizes)


def _is_last(x: Tensor) -> bool:
    """Whether channels are last by the strides, as torch tells it: also where there is one place, or one channel."""
    return x.stride(1) == 1 and x.stride(3) == x.shape[1] and x.is_contiguous(memory_format=torch.channels_last)


def _convolution_weight(g: Tensor, x: Tensor, window: Ints, stride: Ints, padding: Ints, dilation: Ints,
                        groups: int) -> Tensor:
    weight = g.new_empty(()).expand(g.shape[1], x.shape[1] // groups, *window)  # read for its shape alone
    return _convolution_grad(g, x, weight, None, stride, padding, dilation, False, (0,) * len(stride), groups,
                                      [False, True, False])[1]


def _floating(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    return types[0].dtype.kind == "float"


def _im2col(x: Tensor, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
    return torch._C._nn.im2col(x, window, dilation, padding, stride)


def _col2im(columns: Tensor, sizes: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
    return torch._C._nn.col2im(columns, sizes, window, dilation, padding, stride)


def _two(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """Two spatial dimensions of something, floating point or bool."""
    return len(attributes["window"]) == 2 and types[0].numel > 0 and types[0].dtype.kind != "int"


def _two_at_least_float32(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch adds float16 and bfloat16 up as they are."""
    return _two(types, attributes) and types[0].dtype.itemsize >= 4


CONVOLUTION: dict[str, Lowering] = {
    "convolution": Lowering(_convolution, "fresh", _floating),
    "convolution_input": Lowering(_convolution_input, "fresh", _floating),
    "convolution_weight": Lowering(_convolution_weight, "fresh", _floating),
    "im2col": Lowering(_im2col, "fresh", _two),
    "col2im": Lowering(_col2im, "fresh", _two_at_least_float32),
}
