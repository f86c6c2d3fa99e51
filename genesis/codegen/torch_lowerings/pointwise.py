"""Pointwise ops as torch calls with `out=`.

torch computes float16 and bfloat16 in float32 and rounds once, which is what the registry asks.
A number goes to torch as a number where torch takes one there, else as a 0-d tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, scalar_tensor

from genesis.codegen.torch_lowerings.table import Lowering
from genesis.ir.types import DType

Outs = tuple[Tensor, ...]
Operand = Any  # Tensor | bool | int | float


def _unary(call: Callable) -> Lowering:
    def run(outs: Outs, x: Tensor) -> None:
        call(x, out=outs[0])
    return Lowering(run, in_place=(0,))


def _binary(call: Callable) -> Lowering:
    """For calls that take a number on either side."""
    def run(outs: Outs, a: Operand, b: Operand) -> None:
        call(a, b, out=outs[0])
    return Lowering(run, in_place=(0, 1))


def _tensor_first(call: Callable) -> Lowering:
    """For calls that take a number only on the right."""
    def run(outs: Outs, a: Operand, b: Operand) -> None:
        call(a if isinstance(a, Tensor) else scalar_tensor(a, dtype=b.dtype), b, out=outs[0])
    return Lowering(run, in_place=(0, 1))


def _tensors(call: Callable) -> Lowering:
    """For calls that take no number."""
    def run(outs: Outs, a: Operand, b: Operand) -> None:
        if not isinstance(a, Tensor):
            a = scalar_tensor(a, dtype=b.dtype)
        elif not isinstance(b, Tensor):
            b = scalar_tensor(b, dtype=a.dtype)
        call(a, b, out=outs[0])
    return Lowering(run, in_place=(0, 1))


def _where(outs: Outs, condition: Operand, a: Operand, b: Operand) -> None:
    out = outs[0]
    if not isinstance(a, Tensor):
        a = scalar_tensor(a, dtype=out.dtype)
    if not isinstance(b, Tensor):
        b = scalar_tensor(b, dtype=out.dtype)
    if not isinstance(condition, Tensor):
        out.copy_(a if condition else b)
        return
    torch.where(condition, a, b, out=out)


def _cast(outs: Outs, x: Operand, dtype: DType) -> None:
    outs[0].copy_(x if isinstance(x, Tensor) else torch.tensor(x, dtype=_NUMBER_DTYPES[type(x)]))


_NUMBER_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


def _isnan(outs: Outs, x: Tensor) -> None:
    torch.ne(x, x, out=outs[0])


def _isinf(x: Tensor) -> Tensor:
    return torch.isinf(x)


def _relu(outs: Outs, x: Tensor) -> None:
    torch.clamp_min(x, 0, out=outs[0])


def _gelu(outs: Outs, x: Tensor, approximate: str) -> None:
    torch._C._nn.gelu(x, approximate=approximate, out=outs[0])


def _silu_backward(outs: Outs, g: Tensor, x: Tensor) -> None:
    torch.ops.aten.silu_backward.grad_input(g, x, grad_input=outs[0])


def _gelu_backward(outs: Outs, g: Tensor, x: Tensor, approximate: str) -> None:
    torch.ops.aten.gelu_backward.grad_input(g, x, approximate=approximate, grad_input=outs[0])


_BOTH_SIDES = ("add", "sub", "mul", "div", "pow")
_RIGHT_SIDE = ("remainder", "fmod", "floor_divide", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt", "le",
               "gt", "ge")
_UNARY = ("neg", "abs", "sign", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
          "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid",
          "erf", "erfc", "floor", "ceil", "round", "trunc", "bitwise_not")

POINTWISE: dict[str, Lowering] = {
    **{name: _binary(getattr(torch, name)) for name in _BOTH_SIDES},
    **{name: _tensor_first(getattr(torch, name)) for name in _RIGHT_SIDE},
    **{name: _unary(getattr(torch, name)) for name in _UNARY},
    "atan2": _tensors(torch.atan2),
    "maximum": _tensors(torch.maximum),
    "minimum": _tensors(torch.minimum),
    "left_shift": _tensor_first(torch.bitwise_left_shift),
    "right_shift": _tensor_first(torch.bitwise_right_shift),
    "where": Lowering(_where, in_place=(1, 2)),
    "cast": Lowering(_cast),
    "isnan": Lowering(_isnan),
    "isinf": Lowering(_isinf, "fresh"),
    "relu": Lowering(_relu, in_place=(0,)),
    "silu": _unary(torch._C._nn.silu),
    "gelu": Lowering(_gelu, in_place=(0,)),
    "silu_backward": Lowering(_silu_backward),
    "gelu_backward": Lowering(_gelu_backward),
}
