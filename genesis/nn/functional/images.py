"""Images: windows as columns and back, other sizes, channels as pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from genesis.frontend.recording import record
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import fold as fold_ir
from genesis.ir.ops import resample as resample_ir
from genesis.ir.sym_int import SymInt
from genesis.nn.functional.antialias import antialiased
from genesis.nn.functional.arguments import Ints, batched, each
from genesis.nn.functional.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from genesis.ops.shape import apart

__all__ = ["channel_shuffle", "fold", "interpolate", "pixel_shuffle", "pixel_unshuffle", "unfold", "upsample",
           "upsample_bilinear", "upsample_nearest"]


def unfold(input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> Tensor:
    """All windows of an image as columns (im2col).

    Args:
        input: (batch, channels, height, width) or without the batch, floating point.
        kernel_size, dilation, padding, stride: of the windows, as of `conv2d`.

    Returns:
        (batch, channels · taps, windows), a channel's taps side by side.

    Raises:
        RuntimeError: shapes do not fit.

    >>> import genesis
    >>> unfold(genesis.arange(9.0).reshape(1, 1, 3, 3), 2)[0, :, 0].tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    x, alone = batched("unfold", input, 2)
    how = _windows("unfold", kernel_size, dilation, padding, stride)
    y: Tensor = record(fold_ir.im2col, (x,), how)
    return y.squeeze(0) if alone else y


def fold(input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0,
         stride: Ints = 1) -> Tensor:
    """Columns added up to an image (col2im): what the gradient of `unfold` does.

    Args:
        input: (batch, channels · taps, windows) or without the batch, floating point.
        output_size: height and width of the image.
        kernel_size, dilation, padding, stride: of the windows, as of `unfold`.

    Returns:
        (batch, channels, height, width).

    Raises:
        RuntimeError: shapes do not fit.
    """
    unfit = input.spec.ndim not in (2, 3)
    if unfit:
        raise failure("fold", "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero "
                      f"dimensions for input, but got: {list(input.spec.shape)}", [("input", input)])
    x = input if input.spec.ndim == 3 else input.unsqueeze(0)
    sizes = each("fold", "output_size", output_size, 2)
    how = _windows("fold", kernel_size, dilation, padding, stride)
    y: Tensor = record(fold_ir.col2im, (x,), (sizes, *how))
    return y if input.spec.ndim == 3 else y.squeeze(0)


def _windows(op: str, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> tuple[tuple[int, ...], ...]:
    how = tuple(each(op, name, value, 2) for name, value in (
        ("kernel_size", kernel_size), ("stride", stride), ("padding", padding), ("dilation", dilation)))
    for name, values, least in zip(("kernel_size", "stride", "padding", "dilation"), how, (1, 1, 0, 1), strict=True):
        if min(values) < least:
            raise failure(op, f"{name} should be greater than {'' if least else 'or equal to '}zero, but got {values}")
    return how


_MODES = {"nearest": "nearest", "nearest-exact": "nearest-exact", "linear": "linear", "bilinear": "linear",
          "trilinear": "linear", "bicubic": "cubic"}
_DIMENSIONS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
"""Modes for one number of spatial dimensions; the others take 1 to 3."""


def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
                antialias: bool = False) -> Tensor:
    """The input at other sizes.

    Args:
        input: (batch, channels, *sizes), 1 to 3 of them.
        size: the new sizes, one for all or one each.
        scale_factor: or how many times larger, one for all or one each.
        mode: "nearest", "nearest-exact", "linear" (1 dimension), "bilinear" (2), "trilinear" (3),
            "bicubic" (2) or "area" (the mean of evenly covering windows).
        align_corners: for the linear modes and bicubic: whether the centres of the corner elements
            stay where they are, instead of the corners.
        recompute_scale_factor: take the scale from the sizes, not the one that was given.
        antialias: average what is skipped by "bilinear" and "bicubic", as Pillow does.

    Raises:
        ValueError: both or none of size and scale_factor, or not as many as dimensions.
        NotImplementedError: a mode that is not for so many dimensions, or unknown.

    >>> import genesis
    >>> interpolate(genesis.tensor([[[1.0, 3.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 3.0, 3.0]]]
    """
    op, n = "interpolate", input.spec.ndim - 2
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise failure(op, "align_corners option can only be set with the interpolating modes: linear | bilinear | "
                      "bicubic | trilinear", error=ValueError)
    if n < 1 or n > 3:
        raise failure(op, f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {n + 2}D)", [("input", input)],
                      error=NotImplementedError)
    sizes, scales = _sizes(op, input, n, size, scale_factor, bool(recompute_scale_factor))
    if antialias:
        if mode not in ("bilinear", "bicubic") or n != 2:
            raise failure(op, "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor "
                          "as input", [("input", input)], error=ValueError)
        return antialiased(input, sizes, _MODES[mode], bool(align_corners), scales)
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[n - 1](input, sizes)
    if mode not in _MODES or _DIMENSIONS.get(mode, n) != n:
        raise failure(op, f"Got {n + 2}D input, but {mode} mode needs {_DIMENSIONS.get(mode, n) + 2}D input"
                      if mode in _MODES else f"mode {mode!r} is unknown", [("input", input)],
                      hint=f"one of {', '.join(_MODES)} and area", error=NotImplementedError)
    result: Tensor = record(resample_ir.resample, (input,), (sizes, _MODES[mode], bool(align_corners), scales))
    return result


def _sizes(op: str, input: Tensor, n: int, size: Any, scale_factor: Any,
           recompute: bool) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The sizes, and the scales that coordinates are computed with (0.0: that of the sizes)."""
    if (size is None) == (scale_factor is None):
        raise failure(op, "only one of size or scale_factor should be defined" if size is not None else
                      "either size or scale_factor should be defined", error=ValueError)
    given: Any = size if size is not None else scale_factor
    parts: Sequence[Any] = tuple(given) if isinstance(given, (tuple, list)) else (given,) * n
    if len(parts) != n:
        what = "output size" if size is not None else "scale_factor"
        raise failure(op, "Input and output must have the same number of spatial dimensions, but got input with "
                      f"spatial dimensions of {list(input.spec.shape[2:])} and {what} of {list(parts)}",
                      [("input", input)], error=ValueError)
    if size is not None:
        if recompute:
            raise failure(op, "recompute_scale_factor is not meaningful with an explicit size.", error=ValueError)
        return each(op, "size", list(parts), n), (0.0,) * n
    sizes = tuple(_scaled(m, float(s)) for m, s in zip(input.spec.shape[2:], parts, strict=True))
    return sizes, (0.0,) * n if recompute else tuple(float(s) for s in parts)


_MOST_EXACT: Final = 1 << 10
"""Parts of a fraction by which a size that may change is scaled in whole numbers: its product with one is exact in
float64, so that both ways have one result."""


def _scaled(size: int, factor: float) -> int:
    """The size times the factor, rounded down. A size that may change stays a formula if the factor is 2, 0.5, 1.25, …

    >>> _scaled(5, 1.5), _scaled(10, 0.7)
    (7, 7)
    """
    if isinstance(size, SymInt) and math.isfinite(factor):
        over, under = factor.as_integer_ratio()
        if 0 < over <= _MOST_EXACT and under <= _MOST_EXACT:
            return size * over // under
    return math.floor(float(size) * factor)


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
             align_corners: bool | None = None) -> Tensor:
    """`interpolate` by its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode="nearest"."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode="bilinear" and align_corners=True."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., channels · r², height, width) → (..., channels, height · r, width · r) (Shi et al. 2016).

    Raises:
        RuntimeError: fewer than three dimensions, or channels that r² does not divide.

    >>> import genesis
    >>> pixel_shuffle(genesis.arange(4.0).reshape(4, 1, 1), 2).tolist()
    [[[0.0, 1.0], [2.0, 3.0]]]
    """
    r = _factor("pixel_shuffle", input, upscale_factor)
    *batch, channels, height, width = input.spec.shape
    if channels % (r * r):
        raise failure("pixel_shuffle", "expects its input's 'channel' dimension to be divisible by the square of "
                      f"upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}", [("input", input)])
    parts = input.reshape(*batch, channels // (r * r), r, r, height, width)
    lead = tuple(range(len(batch) + 1))
    at = len(lead)
    mixed = parts.permute(*lead, at + 2, at, at + 3, at + 1)
    return apart(mixed.reshape(*batch, channels // (r * r), height * r, width * r), input)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., channels, height · r, width · r) → (..., channels · r², height, width): undoes `pixel_shuffle`.

    Raises:
        RuntimeError: fewer than three dimensions, or sizes that r does not divide.
    """
    r = _factor("pixel_unshuffle", input, downscale_factor)
    *batch, channels, height, width = input.spec.shape
    if height % r or width % r:
        raise failure("pixel_unshuffle", "expects height and width to be divisible by downscale_factor, but "
                      f"input.size(-2)={height} and input.size(-1)={width} are not both by {r}", [("input", input)])
    parts = input.reshape(*batch, channels, height // r, r, width // r, r)
    lead = tuple(range(len(batch) + 1))
    at = len(lead)
    mixed = parts.permute(*lead, at + 1, at + 3, at, at + 2)
    return apart(mixed.reshape(*batch, channels * r * r, height // r, width // r), input)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """(n, groups · k, ...) → channel i of every group side by side (Zhang et al. 2018).

    Raises:
        RuntimeError: fewer than three dimensions, or channels that the groups do not divide.
    """
    if input.spec.ndim < 3:
        raise failure("channel_shuffle", "expects input with > 2 dims, but got input with sizes "
                      f"{list(input.spec.shape)}", [("input", input)])
    n, channels, *sizes = input.spec.shape
    if groups <= 0 or channels % groups:
        raise failure("channel_shuffle", f"Number of channels must be divisible by groups. Got {channels} channels and "
                      f"{groups} groups.", [("input", input)])
    mixed = input.reshape(n, groups, channels // groups, *sizes).transpose(1, 2)
    return apart(mixed.reshape(input.spec.shape), input)


def _factor(op: str, input: Tensor, factor: int) -> int:
    if input.spec.ndim < 3:
        raise failure(op, f"expects input to have at least 3 dimensions, but got input with {input.spec.ndim} "
                      "dimension(s)", [("input", input)])
    if factor <= 0:
        raise failure(op, f"expects a positive factor, but got {factor}", [("input", input)])
    return factor
