"""Windows by torch's top-level names, which are periodic unless they are told not to be."""

from __future__ import annotations

from genesis.frontend.tensor import Tensor
from genesis.ir.types import DType
from genesis.ops.creation import DeviceLike
from genesis.signal import windows


def hann_window(window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: DeviceLike = None,
                requires_grad: bool = False) -> Tensor:
    """`signal.windows.hann`.

    >>> import genesis
    >>> genesis.hann_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return windows.hann(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
                   dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """alpha - beta cos(2π n / length)."""
    return windows.general_cosine(window_length, a=[alpha, beta], sym=not periodic, dtype=dtype, device=device,
                                  requires_grad=requires_grad)


def blackman_window(window_length: int, periodic: bool = True, *, dtype: DType | None = None,
                    device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """`signal.windows.blackman`."""
    return windows.blackman(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


def bartlett_window(window_length: int, periodic: bool = True, *, dtype: DType | None = None,
                    device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """`signal.windows.bartlett`."""
    return windows.bartlett(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DType | None = None,
                  device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """`signal.windows.kaiser`."""
    return windows.kaiser(window_length, beta=beta, sym=not periodic, dtype=dtype, device=device,
                          requires_grad=requires_grad)
