"""`custom_fwd` and `custom_bwd`: what a `Function` of the user's does under autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from genesis.amp.autocast import autocast, is_autocast_enabled
from genesis.frontend.autocast_policy import state
from genesis.frontend.recording import TensorBase
from genesis.ir.types import DType, bfloat16, float64


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None) -> Any:
    """A decorator of `Function.forward`, under `@staticmethod`: it notes what autocast was, for `custom_bwd`.

    Args:
        device_type: the device type whose autocast counts.
        cast_inputs: floating-point arguments are cast to it, and autocast is off inside, where it was on outside.

    >>> import genesis
    >>> class Product(genesis.autograd.Function):
    ...     @staticmethod
    ...     @genesis.amp.custom_fwd(device_type="cpu", cast_inputs=genesis.float32)
    ...     def forward(ctx, a, b):
    ...         ctx.save_for_backward(a, b)
    ...         return a @ b
    ...
    ...     @staticmethod
    ...     @genesis.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         a, b = ctx.saved_tensors
    ...         return g @ b.mT, a.mT @ g
    >>> with genesis.autocast("cpu"):
    ...     Product.apply(genesis.ones(2, 2), genesis.ones(2, 2)).dtype
    genesis.float32
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def noting(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        used = is_autocast_enabled(device_type)
        ctx._dtype = (state.dtypes or {}).get(device_type, bfloat16)
        ctx._fwd_used_autocast = used and cast_inputs is None
        if not used or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))
    return noting


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """A decorator of `Function.backward`: it runs under the autocast that its forward ran under."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def inside(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, ctx._dtype, ctx._fwd_used_autocast):
            return bwd(ctx, *args, **kwargs)
    return inside


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
    """The value with its floating-point tensors on that device type in this dtype; float64 stays, as in torch."""
    if isinstance(value, TensorBase):
        spec: Any = value.spec
        fits = spec.dtype.is_floating_point and spec.dtype is not float64 and spec.device.type == device_type
        return value.to(dtype) if fits else value  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        return {name: _cast(x, device_type, dtype) for name, x in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cast(x, device_type, dtype) for x in value)
    return value
