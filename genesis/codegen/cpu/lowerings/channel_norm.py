"""Batch norm and group norm as torch's kernels."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering, builtin

_batch_norm_grad = builtin(torch.ops.aten.native_batch_norm_backward.default)
_group_norm_grad = builtin(torch.ops.aten.native_group_norm_backward.default)


def _one_dtype(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """float32 or float64, the same for all: in lower precision torch rounds the statistics."""
    return types[0].numel > 0 and types[0].dtype.itemsize >= 4 and all(t.dtype is types[0].dtype for t in types)


def _batch_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float) -> tuple:
    """The variance comes as a running one with momentum 1, which is unbiased: Σ / (count - 1)."""
    count = x.numel() // x.shape[1]
    middle, variance = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
    y, _, _ = torch.native_batch_norm(x, weight, bias, middle, variance, True, 1.0, eps)
    return y, middle, variance.mul_((count - 1) / count) if count > 1 else variance.zero_()


def _usual(x: Tensor) -> Tensor:
    """The image with torch's own strides for its order, along dimensions of size 1, too. Views have others there, by
    which torch's backward takes one operand for channels last and reads the other so: its gradients are wrong."""
    if 1 not in x.shape:
        return x
    if x.ndim == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last):
        _, channels, height, width = x.shape
        return x.as_strided(x.shape, (height * width * channels, 1, width * channels, channels))
    return x.contiguous()


def _batch_norm_backward(g: Tensor, x: Tensor, middle: Tensor, variance: Tensor, weight: Tensor | None = None, *,
                         eps: float) -> tuple:
    affine = weight is not None
    weight = weight.contiguous() if weight is not None else None  # the kernel of rows reads its strides as 1
    found = _batch_norm_grad(_usual(g), _usual(x), weight, None, None, middle.contiguous(),
                             (variance + eps).rsqrt_(), True, eps, [True, affine, affine])
    return found if affine else found[:1]


def _batch_norm_eval(x: Tensor, middle: Tensor, variance: Tensor, weight: Tensor | None = None,
                     bias: Tensor | None = None, *, eps: float) -> Tensor:
    return torch.native_batch_norm(x, weight, bias, middle, variance, False, 0.0, eps)[0]


def _group_norm_saving(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, groups: int,
                       eps: float) -> tuple:
    n, channels, *sizes = x.shape
    weight, bias = (p if p is None else p.contiguous() for p in (weight, bias))  # the kernel reads neither's strides
    return torch.native_group_norm(x.contiguous(), weight, bias, n, channels, prod(sizes), groups, eps)


def _group_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, groups: int,
                eps: float) -> Tensor:
    return _group_norm_saving(x, weight, bias, groups=groups, eps=eps)[0]


def _group_norm_from_saved(g: Tensor, middle: Tensor, inverse: Tensor, x: Tensor, weight: Tensor | None = None, *,
                           groups: int, eps: float) -> tuple:
    n, channels, *sizes = x.shape
    affine = weight is not None
    weight = weight.contiguous() if weight is not None else None
    found = _group_norm_grad(g.contiguous(), x.contiguous(), middle, inverse, weight, n, channels,
                             prod(sizes), groups, [True, affine, affine])
    return found if affine else found[:1]


def _group_norm_backward(g: Tensor, x: Tensor, weight: Tensor | None = None, *, groups: int, eps: float) -> tuple:
    """Mean and 1 / std are computed again: the forward was in another program."""
    x = x.contiguous()
    _, middle, inverse = _group_norm_saving(x, groups=groups, eps=eps)
    return _group_norm_from_saved(g, middle, inverse, x, weight, groups=groups, eps=eps)


CHANNEL_NORM: dict[str, Lowering] = {
    "batch_norm": Lowering(_batch_norm, "fresh", _one_dtype),
    "batch_norm_backward": Lowering(_batch_norm_backward, "fresh", _one_dtype),
    "batch_norm_eval": Lowering(_batch_norm_eval, "fresh", _one_dtype),
    "group_norm": Lowering(_group_norm, "fresh", _one_dtype),
    "group_norm_backward": Lowering(_group_norm_backward, "fresh", _one_dtype),
    "group_norm_saving": Lowering(_group_norm_saving, "fresh", _one_dtype),
    "group_norm_from_saved": Lowering(_group_norm_from_saved, "fresh", _one_dtype),
}
