"""`autocast`: the context in which matrix products run in a low precision."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from genesis.frontend.autocast_policy import low_precision, policies, state
from genesis.frontend.switching import Switch
from genesis.ir.errors import failure
from genesis.ir.types import DType, as_dtype, bfloat16, device_types, float16

Function = TypeVar("Function", bound=Callable[..., Any])


class autocast(Switch):
    """A context: inside, on one device type, matrix products run in `dtype`, sums and losses in float32.

    Parameters keep their dtype and so do their gradients: the casts are recorded as part of the
    program. A context and a decorator; contexts nest, and `enabled=False` makes a hole in one.
    Each op's entry says which of the two it is (`Op.autocast`).

    Args:
        device_type: "cuda", "cpu" or another registered one.
        dtype: bfloat16, if None is given, or float16.
        enabled: False turns autocast off inside.
        cache_enabled: accepted for torch's sake: equal casts are one.

    >>> import genesis
    >>> a = genesis.ones(2, 3)
    >>> with genesis.autocast("cpu"):
    ...     y = genesis.nn.functional.linear(a, genesis.ones(4, 3))
    >>> y.dtype, a.dtype
    (genesis.bfloat16, genesis.float32)
    """

    def __init__(self, device_type: str = "cuda", dtype: DType | None = None, enabled: bool = True,
                 cache_enabled: bool | None = None):
        dtype = bfloat16 if dtype is None else dtype
        if device_type not in device_types():
            raise failure("autocast", f"device type {device_type!r} is unknown",
                          hint=" or ".join(f"autocast({name!r})" for name in sorted(device_types(), reverse=True)))
        dtype = as_dtype(dtype)
        if dtype not in (bfloat16, float16):
            raise failure("autocast", f"{dtype!r} is not a low precision",
                          hint="dtype=genesis.bfloat16, or float16 with a scaled loss")
        super().__init__()
        self.device_type, self.dtype, self.enabled = device_type, dtype, enabled

    def _mode(self) -> bytearray:
        return state.policy

    def _inside(self, policy: bytearray) -> tuple[int, ...]:
        inside = dict(policies[policy[0]] or {})
        if self.enabled:
            inside[self.device_type] = self.dtype
        else:
            inside.pop(self.device_type, None)
        wanted = inside or None
        if wanted not in policies:
            policies.append(wanted)
        return (policies.index(wanted),)

    def __call__(self, function: Function) -> Function:
        """The function with autocast for the duration of each call."""
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device_type, self.dtype, self.enabled):
                return function(*args, **kwargs)
        return inside  # type: ignore[return-value]


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """True inside an `autocast` for this device type.

    >>> with autocast("cpu"):
    ...     is_autocast_enabled("cpu"), is_autocast_enabled("cuda")
    (True, False)
    """
    return state.dtypes is not None and device_type in state.dtypes


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype of matrix products inside `autocast` for this device type; outside, the one that it would have.

    >>> with autocast("cpu", dtype=float16):
    ...     get_autocast_dtype("cpu"), get_autocast_dtype("cuda")
    (genesis.float16, genesis.bfloat16)
    """
    if device_type not in device_types():
        raise failure("get_autocast_dtype", f"device type {device_type!r} is unknown",
                      hint=" or ".join(sorted(map(repr, device_types()), reverse=True)))
    return (state.dtypes or {}).get(device_type, bfloat16)


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype` of "cuda".

    >>> get_autocast_gpu_dtype()
    genesis.bfloat16
    """
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype` of "cpu".

    >>> get_autocast_cpu_dtype()
    genesis.bfloat16
    """
    return get_autocast_dtype("cpu")


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled` of "cpu".

    >>> is_autocast_cpu_enabled()
    False
    """
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """True: equal casts of a program are one.

    >>> is_autocast_cache_enabled()
    True
    """
    return True


def clear_autocast_cache() -> None:
    """Nothing: casts are part of the program, and none is kept beside it. Trainers call it between steps."""


def is_autocast_available(device_type: str) -> bool:
    """True for the device types that `autocast` takes.

    >>> is_autocast_available("cuda"), is_autocast_available("xpu")
    (True, False)
    """
    return device_type in device_types()


def enable_autocast(device_type: str = "cuda", dtype: DType = bfloat16) -> autocast:
    """`autocast` by the name that says what it does; the arguments are the same.

    >>> with enable_autocast("cpu"):
    ...     is_autocast_enabled("cpu")
    True
    """
    return autocast(device_type, dtype)


__all__ = ["autocast", "clear_autocast_cache", "enable_autocast", "get_autocast_cpu_dtype", "get_autocast_dtype",
           "get_autocast_gpu_dtype", "is_autocast_available", "is_autocast_cache_enabled", "is_autocast_cpu_enabled",
           "is_autocast_enabled", "low_precision"]
