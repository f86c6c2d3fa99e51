"""Resampling as torch's kernels, one for each mode and number of dimensions. Results lie in their operand's order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering

Ints = tuple[int, ...]
Scales = tuple[float, ...]

_NAMES = {**{("nearest", n): f"upsample_nearest{n}d" for n in (1, 2, 3)},
          **{("nearest-exact", n): f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)},
          ("linear", 1): "upsample_linear1d", ("linear", 2): "upsample_bilinear2d",
          ("linear", 3): "upsample_trilinear3d", ("cubic", 2): "upsample_bicubic2d"}
"""(mode, spatial dimensions) → torch's kernel."""


def _options(mode: str, align_corners: bool, scales: Scales) -> tuple[Any, ...]:
    factors = [scale or None for scale in scales]
    return tuple(factors) if mode.startswith("nearest") else (align_corners, *factors)


def _resample(x: Tensor, sizes: Ints, mode: str, align_corners: bool, scales: Scales) -> Tensor:
    call = getattr(torch.ops.aten, _NAMES[mode, len(sizes)])
    return call(x, sizes, *_options(mode, align_corners, scales))


def _resample_backward(g: Tensor, shape: Ints, mode: str, align_corners: bool, scales: Scales) -> Tensor:
    call = getattr(torch.ops.aten, _NAMES[mode, len(shape)] + "_backward")
    found: Tensor = call(g, g.shape[2:], (*g.shape[:2], *shape), *_options(mode, align_corners, scales))
    if mode == "cubic" and g.is_contiguous(memory_format=torch.channels_last):  # torch puts its channels first
        return found.contiguous(memory_format=torch.channels_last)
    return found


def _known(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """Floating point and uint8, of something, in a number of dimensions that the mode is there for."""
    sizes = attributes.get("sizes") or attributes["shape"]
    return (attributes["mode"], len(sizes)) in _NAMES and types[0].numel > 0 and types[0].dtype.name in (
        "uint8", "float16", "bfloat16", "float32", "float64")


def _at_least_float32(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch adds float16 and bfloat16 gradients up as they are."""
    return _known(types, attributes) and types[0].dtype.itemsize >= 4


RESAMPLE: dict[str, Lowering] = {
    "resample": Lowering(_resample, "fresh", _known),
    "resample_backward": Lowering(_resample_backward, "fresh", _at_least_float32),
}
