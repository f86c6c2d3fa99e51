"""Resampling that averages what it skips: the kernels are as wide as the step from one place to the next.

As in Pillow: place o of a smaller image lies at s·(o + 1/2), where s ≥ 1 is the step; element j counts with
k((j + 1/2 - place) / s), over the sum of these weights.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ops.creation import tensor

CUBIC = -0.5
"""Slope at distance 1 (Keys 1981), as Pillow and torch have it here."""


def antialiased(input: Tensor, sizes: tuple[int, ...], mode: str, align_corners: bool,
                scales: tuple[float, ...]) -> Tensor:
    """The input at other sizes, axis by axis a product with the matrix of weights.

    Args:
        input: (batch, channels, height, width), floating point.
        sizes: the result's height and width.
        mode: "linear" or "cubic".
        scales: the factors that the caller gave, 0.0 to take those of the sizes.
    """
    result = input
    for axis, (size, scale) in enumerate(zip(sizes, scales, strict=True), 2):
        matrix = _weights(input.spec.shape[axis], size, mode, align_corners, scale)
        weights = tensor(matrix, dtype=input.spec.dtype, device=input.spec.device)
        result = (result.movedim(axis, -1) @ weights.mT).movedim(-1, axis)
    return result


@lru_cache(maxsize=64)
def _weights(count: int, places: int, mode: str, align_corners: bool, scale: float) -> Any:
    """(places, elements), float64."""
    import numpy as np
    step = 1 / scale if scale > 0 else count / places
    if align_corners:
        step = (count - 1) / (places - 1) if places > 1 else 0.0
    width = max(step, 1.0)
    reach = (1.0 if mode == "linear" else 2.0) * width
    centre = step * (np.arange(places) + 0.5)
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + reach + 0.5).astype(np.int64), count)
    element = np.arange(count)
    distance = np.abs(element + 0.5 - centre[:, None]) / width
    kernel = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance)
    kernel = np.where((element >= first[:, None]) & (element < last[:, None]), kernel, 0)
    return kernel / kernel.sum(1, keepdims=True)


def _cubic(x: Any) -> Any:
    import numpy as np
    near = ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1
    far = ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC
    return np.where(x < 1, near, np.where(x < 2, far, 0))
