"""Windows: weights that fade a stretch of a signal in and out (Harris 1978).

Each takes the number M of points and is symmetric, or with sym=False periodic: the first M points of a symmetric one
with M + 1. They are computed in float64 and rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.public_functions import bind_own
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.suggest import suggesting
from genesis.ir.types import DType, float32, float64
from genesis.ops.creation import DeviceLike, finish
from genesis.ops.out import made_like
from genesis.ops.ranges import arange
from genesis.ops.special import i0

__path__: list[str] = []
"""No folder: an import of a module below comes to the finder that says what to use instead (`ir/absent.py`)."""


def _window(name: str, M: int, sym: bool, formula: Callable[[Tensor, int], Tensor], dtype: DType | None,
            device: DeviceLike, requires_grad: bool) -> Tensor:
    """formula(points from 0, number of steps from end to end); a single point is 1."""
    dtype, device = made_like(None, dtype, device)
    dtype = dtype or default_dtype("float")
    if M < 0:
        raise failure(name, f"requires non-negative window length, got M={M}", error=ValueError)
    if dtype not in (float32, float64):
        raise failure(name, f"expects float32 or float64 dtypes, got: {dtype!r}", error=ValueError)
    points = arange(M, dtype=float64, device=device)
    values = formula(points, M - 1 if sym else M) if M > 1 else points * 0 + 1
    return finish(values.to(dtype), requires_grad)


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, dtype: DType | None = None,
                   device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Σ (-1)^i a_i cos(2π i n / (M - 1)).

    >>> import genesis
    >>> genesis.signal.windows.general_cosine(3, a=[0.5, 0.5]).tolist()
    [0.0, 1.0, 0.0]
    """
    weights = list(a)
    if not weights:
        raise failure("general_cosine", "Coefficients cannot be empty", error=ValueError)

    def formula(n: Tensor, steps: int) -> Tensor:
        found = n * 0 + weights[0]
        for i, weight in enumerate(weights[1:], 1):
            found = found + (n * (2 * math.pi * i / steps)).cos() * (weight * (-1) ** i)
        return found
    return _window("general_cosine", M, sym, formula, dtype, device, requires_grad)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DType | None = None,
                    device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """alpha - (1 - alpha) cos(2π n / (M - 1))."""
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def hamming(M: int, *, sym: bool = True, dtype: DType | None = None, device: DeviceLike = None,
            requires_grad: bool = False) -> Tensor:
    """`general_hamming` with 0.54."""
    return general_hamming(M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def hann(M: int, *, sym: bool = True, dtype: DType | None = None, device: DeviceLike = None,
         requires_grad: bool = False) -> Tensor:
    """`general_hamming` with 0.5."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def blackman(M: int, *, sym: bool = True, dtype: DType | None = None, device: DeviceLike = None,
             requires_grad: bool = False) -> Tensor:
    """`general_cosine` of 0.42, 0.5 and 0.08."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def nuttall(M: int, *, sym: bool = True, dtype: DType | None = None, device: DeviceLike = None,
            requires_grad: bool = False) -> Tensor:
    """Nuttall's four terms."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, dtype=dtype, device=device,
                          requires_grad=requires_grad)


def bartlett(M: int, *, sym: bool = True, dtype: DType | None = None, device: DeviceLike = None,
             requires_grad: bool = False) -> Tensor:
    """A triangle from 0 to 1 and back.

    >>> import genesis
    >>> genesis.signal.windows.bartlett(5).tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return _window("bartlett", M, sym, lambda n, steps: 1 - (n * (2 / steps) - 1).abs(), dtype, device, requires_grad)


def cosine(M: int, *, sym: bool = True, dtype: DType | None = None, device: DeviceLike = None,
           requires_grad: bool = False) -> Tensor:
    """sin(π (n + 1/2) / M): half a period."""
    return _window("cosine", M, sym, lambda n, steps: ((n + 0.5) * (math.pi / (steps + 1))).sin(), dtype, device,
                   requires_grad)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: DType | None = None,
                device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """exp(-|n - center| / tau); the middle is the centre unless sym is False and another one given."""
    if tau <= 0:
        raise failure("exponential", f"Tau must be positive, got: {tau} instead.", error=ValueError)
    if sym and center is not None:
        raise failure("exponential", "Center must be None for symmetric windows", error=ValueError)
    return _window("exponential", M, sym,
                   lambda n, steps: ((n - (steps / 2 if center is None else center)).abs() / -tau).exp(), dtype, device,
                   requires_grad)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: DType | None = None, device: DeviceLike = None,
             requires_grad: bool = False) -> Tensor:
    """exp(-((n - middle) / std)² / 2)."""
    if std <= 0:
        raise failure("gaussian", f"Standard deviation must be positive, got: {std} instead.", error=ValueError)
    return _window("gaussian", M, sym, lambda n, steps: (((n - steps / 2) / std).square() * -0.5).exp(), dtype, device,
                   requires_grad)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: DType | None = None, device: DeviceLike = None,
           requires_grad: bool = False) -> Tensor:
    """i0(beta √(1 - x²)) / i0(beta), with x from -1 to 1."""
    if beta < 0:
        raise failure("kaiser", f"beta must be non-negative, got: {beta} instead.", error=ValueError)

    def formula(n: Tensor, steps: int) -> Tensor:
        x = n * (2 / steps) - 1
        return i0((1 - x * x).clamp(min=0).sqrt() * beta) / i0(n[:1] * 0 + beta)
    return _window("kaiser", M, sym, formula, dtype, device, requires_grad)

bind_own(globals(), __name__)
__getattr__ = suggesting(__name__)
