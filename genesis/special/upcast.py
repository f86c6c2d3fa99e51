"""Elementwise functions made of others: computed in float64, rounded to the operands' dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import not_a_tensor
from genesis.ir.types import float64
from genesis.ops.common import result_type, to_dtype
from genesis.ops.creation import full

Operand = Tensor | bool | int | float


def in_float64(formula: Callable[..., Tensor], *values: Operand) -> Tensor:
    """formula(*values in float64), in the values' common floating-point dtype; integers count as the default one."""
    dtype = result_type(*values)
    if dtype.kind != "float":
        dtype = default_dtype("float")
    device = next((x.device for x in values if isinstance(x, Tensor)), None)
    if device is None:
        raise not_a_tensor(values[0])
    upcast: list[Any] = [to_dtype(x, float64) if isinstance(x, Tensor) else
                       full((), float(x), dtype=float64, device=device) for x in values]
    return to_dtype(formula(*upcast), dtype)
