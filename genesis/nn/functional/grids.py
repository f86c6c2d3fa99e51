"""Spatial transformers (Jaderberg et al. 2015): where to look in an image, and what is there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from genesis.frontend.recording import owned, require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import float32, int64
from genesis.ops.common import to_dtype
from genesis.ops.comparison import where
from genesis.ops.exponential import square
from genesis.ops.parts import stack
from genesis.ops.ranges import linspace

__all__ = ["affine_grid", "grid_sample"]

CUBIC = -0.75
"""Slope of the cubic at distance 1, as of `interpolate`."""


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of places in the input, one for each place of the result, for an affine map of each image.

    Args:
        theta: (batch, 2, 3), or (batch, 3, 4) for volumes.
        size: the result's, (batch, channels, height, width) or with a depth.
        align_corners: -1 and 1 are the centres of the corner elements, not the corners.

    Returns:
        (batch, height, width, 2): x and y from -1 to 1, or (batch, depth, height, width, 3).

    Raises:
        RuntimeError, ValueError: shapes do not fit.

    >>> import genesis
    >>> affine_grid(genesis.eye(2, 3)[None], (1, 1, 1, 2))[0, 0].tolist()
    [[-0.5, 0.0], [0.5, 0.0]]
    """
    op, n = "affine_grid", len(size) - 2
    if theta.spec.dtype.kind != "float":
        raise failure(op, f"Expected theta to have floating point type, but got {theta.spec.dtype!r}",
                      [("theta", theta)], error=ValueError)
    if n not in (2, 3):
        raise failure(op, f"only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size "
                      f"{list(size)}.", [("theta", theta)], error=NotImplementedError)
    if theta.spec.ndim != 3 or theta.spec.shape[1:] != (n, n + 1):
        raise failure(op, f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {list(size)}. Got "
                      f"{list(theta.spec.shape)}.", [("theta", theta)], error=ValueError)
    if min(size) < 1:
        raise failure(op, f"Expected non-zero, positive output size. Got {list(size)}", [("theta", theta)],
                      error=ValueError)
    places = list(size[2:])
    axes = []
    for number, count in enumerate(places):
        line = linspace(-1, 1, count, dtype=theta.spec.dtype, device=theta.spec.device)
        line = line * 0 if count == 1 else line if align_corners else line * (count - 1) / count
        axes.append(line.reshape([-1 if i == number else 1 for i in range(n)]).expand(places))
    points = stack([*reversed(axes), axes[0] * 0 + 1], -1).reshape(1, -1, n + 1).expand(size[0], -1, n + 1)
    return owned((points @ theta.mT).reshape(size[0], *places, n))


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool | None = None) -> Tensor:
    """The input at the places that the grid names.

    Args:
        input: (batch, channels, height, width), or with a depth.
        grid: (batch, *places, 2), or 3: x, y (and z), -1 and 1 at the ends of the input.
        mode: "bilinear" (in three dimensions trilinear), "nearest" or, in two, "bicubic".
        padding_mode: what is beyond the ends: "zeros", "border" (the nearest element) or "reflection".
        align_corners: -1 and 1 are the centres of the corner elements, not the corners.

    Returns:
        (batch, channels, *places).

    Raises:
        RuntimeError: shapes or dtypes do not fit.
        ValueError: an unknown mode.

    >>> import genesis
    >>> grid_sample(genesis.tensor([[[[0.0, 4.0]]]]), genesis.zeros(1, 1, 1, 2)).item()
    2.0
    """
    require_tensors(input, grid)
    op, n = "grid_sample", input.spec.ndim - 2
    named = [("input", input), ("grid", grid)]
    if mode not in ("bilinear", "nearest", "bicubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise failure(op, f"expected mode to be 'bilinear', 'nearest' or 'bicubic' and padding_mode to be 'zeros', "
                      f"'border', or 'reflection', but got: '{mode}' and '{padding_mode}'", named, error=ValueError)
    if input.spec.dtype is not grid.spec.dtype or input.spec.device is not grid.spec.device:
        raise failure(op, "expected input and grid to have same dtype and device", named)
    if n not in (2, 3) or grid.spec.ndim != n + 2:
        raise failure(op, "expected 4D or 5D input and grid with same number of dimensions", named)
    if input.spec.shape[0] != grid.spec.shape[0]:
        raise failure(op, "expected grid and input to have same batch size", named)
    if grid.spec.shape[-1] != n:
        raise failure(op, f"expected grid to have size {n} in last dimension", named)
    if min(input.spec.shape[2:]) < 1:
        raise failure(op, "expected input to have non-empty spatial dimensions", named)
    if mode == "bicubic" and n != 2:
        raise failure(op, "bicubic interpolation only supports 4D input", named)
    dtype = input.spec.dtype
    computed_in = float32 if dtype.itemsize < 4 else dtype
    input, grid = to_dtype(input, computed_in), to_dtype(grid, computed_in)
    axes = [_Axis(size, padding_mode, bool(align_corners)) for size in input.spec.shape[2:]]
    taps = [getattr(axis, mode)(grid[..., n - 1 - d]) for d, axis in enumerate(axes)]
    flat = input.reshape(*input.spec.shape[:2], -1)
    result: Any = None
    for chosen in itertools.product(*taps):
        index, weight = chosen[0]
        for (at, share), axis in zip(chosen[1:], axes[1:], strict=True):
            index, weight = index * axis.size + at, weight * share
        places = index.reshape(index.spec.shape[0], 1, -1).expand(-1, input.spec.shape[1], -1)
        part = flat.gather(2, places).reshape(*input.spec.shape[:2], *grid.spec.shape[1:-1]) * weight.unsqueeze(1)
        result = part if result is None else result + part
    return to_dtype(result, dtype)


class _Axis:
    """One axis of the input: which elements a place takes, with which weights."""

    def __init__(self, size: int, padding: str, align: bool):
        self.size, self.padding, self.align = size, padding, align

    def element(self, place: Tensor) -> Tensor:
        """Coordinates in elements, given coordinates from [-1, 1]."""
        return (place + 1) * ((self.size - 1) / 2) if self.align else ((place + 1) * self.size - 1) / 2

    def inside(self, at: Tensor) -> Tensor:
        """The coordinate with the ends as the padding says."""
        if self.padding == "reflection":
            low, span = (0.0, self.size - 1.0) if self.align else (-0.5, float(self.size))
            if span == 0:
                return at * 0
            distance = (at - low).abs()
            turns = (distance / span).floor()
            rest = distance - turns * span
            at = where(turns.remainder(2) == 0, rest, span - rest) + low
        return at if self.padding == "zeros" else at.clamp(0, self.size - 1)

    def tap(self, at: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """(element, weight): no weight beyond the ends."""
        within = (at >= 0) & (at <= self.size - 1)
        return at.detach().clamp(0, self.size - 1).to(int64), where(within, weight, weight.new_zeros(()))

    def nearest(self, place: Tensor) -> list[tuple[Tensor, Tensor]]:
        at = self.inside(self.element(place)).round()
        return [self.tap(at, at.detach() * 0 + 1)]

    def bilinear(self, place: Tensor) -> list[tuple[Tensor, Tensor]]:
        at = self.inside(self.element(place))
        low = at.floor()
        share = at - low
        return [self.tap(low, 1 - share), self.tap(low + 1, share)]

    def bicubic(self, place: Tensor) -> list[tuple[Tensor, Tensor]]:
        at = self.element(place)
        low = at.floor()
        share = at - low
        weights = (_far(share + 1), _near(share), _near(1 - share), _far(2 - share))
        return [self.tap(self.inside(low + step), weight) for step, weight in zip((-1, 0, 1, 2), weights, strict=True)]


def _near(x: Any) -> Any:
    return ((CUBIC + 2) * x - (CUBIC + 3)) * square(x) + 1


def _far(x: Any) -> Any:
    return ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC


