"""Mixed precision on GPUs by its older path: the names of `genesis.amp` without their device.

In: the block that a context is around. Out: what `genesis.amp` makes of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from genesis import amp
from genesis.amp.grad_scaler import GradScaler as _GradScaler
from genesis.ir.suggest import suggesting
from genesis.ir.types import DType, float16

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")


class autocast(amp.autocast):
    """`genesis.autocast("cuda")`, float16 unless another dtype is given.

    >>> with autocast():
    ...     amp.is_autocast_enabled("cuda")
    True
    """

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True):
        super().__init__("cuda", dtype, enabled)


class GradScaler(_GradScaler):
    """`genesis.amp.GradScaler("cuda")`."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True):
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: DType | None = None) -> Any:
    """`genesis.amp.custom_fwd(device_type="cuda")`."""
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


__getattr__ = suggesting(__name__)
