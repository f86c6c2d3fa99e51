"""Pools as torch's kernels for two and three dimensions. One dimension is two with a height of 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.dtypes import CPU
from genesis.codegen.cpu.lowerings.table import Lowering
from genesis.ir.ops.windows import pooled_sizes

Ints = tuple[int, ...]
_aten = torch.ops.aten


def _two(x: Tensor) -> Tensor:
    """(n, channels, length) with a height of 1."""
    return x.unsqueeze(2) if x.ndim == 3 else x


def _from_two(x: Tensor, rank: int) -> Tensor:
    return x.squeeze(2) if rank == 3 else x


def _high(part: Ints, first: int) -> Ints:
    return (first, *part) if len(part) == 1 else part


def _windows(window: Ints, stride: Ints, padding: Ints) -> tuple[Ints, Ints, Ints]:
    return _high(window, 1), _high(stride, 1), _high(padding, 0)


def _ceil(x: Ints, sizes: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> bool:
    """Whether a window reaches past the end: torch's ceil_mode."""
    return tuple(sizes) != pooled_sizes(tuple(x), window, stride, padding, dilation, False)


def _shaped(like: Tensor, shape: Ints) -> Tensor:
    """A tensor that kernels read the shape and the order of, and nothing else."""
    if like.ndim == 4 and not like.is_contiguous() and like.is_contiguous(memory_format=torch.channels_last):
        return torch.empty((*like.shape[:2], *shape), dtype=like.dtype, device=CPU, memory_format=torch.channels_last)
    return like.new_empty(()).expand(_two(like).shape[:2] + _high(shape, 1))


def _max_pool(x: Tensor, sizes: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> tuple:
    ceil = _ceil(x.shape[2:], sizes, window, stride, padding, dilation)
    call = _aten.max_pool3d_with_indices if x.ndim == 5 else _aten.max_pool2d_with_indices
    found = call(_two(x), *_windows(window, stride, padding), _high(dilation, 1), ceil)
    return tuple([_from_two(y, x.ndim) for y in found])


def _max_pool_backward(g: Tensor, index: Tensor, shape: Ints, window: Ints, stride: Ints, padding: Ints,
                       dilation: Ints) -> Tensor:
    call = _aten.max_pool3d_with_indices_backward if g.ndim == 5 else _aten.max_pool2d_with_indices_backward
    ceil = _ceil(shape, g.shape[2:], window, stride, padding, dilation)
    return _from_two(call(_two(g), _shaped(g, shape), *_windows(window, stride, padding), _high(dilation, 1), ceil,
                          _two(index)), g.ndim)


def _adaptive_max_pool(x: Tensor, sizes: Ints) -> tuple:
    call = _aten.adaptive_max_pool3d if x.ndim == 5 else _aten.adaptive_max_pool2d
    return tuple([_from_two(y, x.ndim) for y in call(_two(x), _high(sizes, 1))])


def _adaptive_max_pool_backward(g: Tensor, index: Tensor, shape: Ints) -> Tensor:
    call = _aten.adaptive_max_pool3d_backward if g.ndim == 5 else _aten.adaptive_max_pool2d_backward
    return _from_two(call(_two(g), _shaped(g, shape), _two(index)), g.ndim)


def _avg_pool(x: Tensor, sizes: Ints, window: Ints, stride: Ints, padding: Ints, include_pad: bool,
              divisor: int) -> Tensor:
    ceil = _ceil(x.shape[2:], sizes, window, stride, padding, (1,) * len(window))
    call = _aten.avg_pool3d if x.ndim == 5 else _aten.avg_pool2d
    return _from_two(call(_two(x), *_windows(window, stride, padding), ceil, include_pad, divisor or None), x.ndim)


def _avg_pool_backward(g: Tensor, shape: Ints, window: Ints, stride: Ints, padding: Ints, include_pad: bool,
                       divisor: int) -> Tensor:
    ceil = _ceil(shape, g.shape[2:], window, stride, padding, (1,) * len(window))
    call = _aten.avg_pool3d_backward if g.ndim == 5 else _aten.avg_pool2d_backward
    return _from_two(call(_two(g), _shaped(g, shape), *_windows(window, stride, padding), ceil, include_pad,
                          divisor or None), g.ndim)


def _adaptive_avg_pool(x: Tensor, sizes: Ints) -> Tensor:
    call = _aten._adaptive_avg_pool3d if x.ndim == 5 else _aten._adaptive_avg_pool2d
    return _from_two(call(_two(x), _high(sizes, 1)), x.ndim)


def _adaptive_avg_pool_backward(g: Tensor, shape: Ints) -> Tensor:
    call = _aten._adaptive_avg_pool3d_backward if g.ndim == 5 else _aten._adaptive_avg_pool2d_backward
    return _from_two(call(_two(g), _shaped(g, shape)), g.ndim)


def _floating(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch has kernels for one to three dimensions, floating point, of something."""
    sizes = attributes.get("sizes") or attributes["shape"]
    return types[0].dtype.kind == "float" and len(sizes) <= 3 and types[0].numel > 0


def _torch_windows(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch wants paddings of at most half a window, and as many windows as its two formulas give."""
    window, stride, padding = (attributes[name] for name in ("window", "stride", "padding"))
    dilation = attributes.get("dilation", (1,) * len(window))
    shape, sizes = (types[0].shape[2:], attributes["sizes"]) if "sizes" in attributes else (
        attributes["shape"], types[0].shape[2:])
    return _floating(types, attributes) and all(2 * p <= k for p, k in zip(padding, window, strict=True)) and (
        sizes in [pooled_sizes(shape, window, stride, padding, dilation, ceil) for ceil in (False, True)])


def _mean_windows(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """Whether torch has it: in three dimensions not for float16 and bfloat16."""
    return _torch_windows(types, attributes) and (types[0].ndim < 5 or types[0].dtype.itemsize >= 4)


def _mean_adaptive(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """In three dimensions torch adds float16 and bfloat16 up as they are."""
    return _floating(types, attributes) and (types[0].ndim < 5 or types[0].dtype.itemsize >= 4)


POOLING: dict[str, Lowering] = {
    "max_pool": Lowering(_max_pool, "fresh", _torch_windows),
    "max_pool_backward": Lowering(_max_pool_backward, "fresh", _torch_windows),
    "adaptive_max_pool": Lowering(_adaptive_max_pool, "fresh", _floating),
    "adaptive_max_pool_backward": Lowering(_adaptive_max_pool_backward, "fresh", _floating),
    "avg_pool": Lowering(_avg_pool, "fresh", _mean_windows),
    "avg_pool_backward": Lowering(_avg_pool_backward, "fresh", _mean_windows),
    "adaptive_avg_pool": Lowering(_adaptive_avg_pool, "fresh", _mean_adaptive),
    "adaptive_avg_pool_backward": Lowering(_adaptive_avg_pool_backward, "fresh", _mean_adaptive),
}
