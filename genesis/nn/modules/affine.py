"""The weight and bias that a norm's result is multiplied by and added to."""

from __future__ import annotations

from typing import Any

from genesis.ir.types import DType
from genesis.nn import init
from genesis.nn.modules.module import Module
from genesis.nn.parameter import Parameter
from genesis.ops.creation import ones, zeros


def register_affine(module: Module, shape: int | tuple[int, ...], weight: bool, bias: bool, device: Any,
                    dtype: DType | None) -> None:
    """Give a module a weight of ones and a bias of zeros; None for one that is not wanted."""
    for name, make, wanted in (("weight", ones, weight), ("bias", zeros, bias)):
        module.register_parameter(name, Parameter(make(shape, device=device, dtype=dtype)) if wanted else None)


def reset_affine(module: Any) -> None:
    """Weight 1 and bias 0 again, where the module has them."""
    if module.weight is not None:
        init.ones_(module.weight)
    if module.bias is not None:
        init.zeros_(module.bias)
