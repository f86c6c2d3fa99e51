"""Pointwise ops as torch calls with `out=`.

torch computes float16 and bfloat16 in float32 and rounds once, which is what the registry asks.
A number goes to torch as a number where torch takes one there, else as a 0-d tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, scalar_tensor

from genesis.codegen.cpu.lowerings.dtypes import CPU, number_tensor, torch_dtype
from genesis.codegen.cpu.lowerings.table import Lowering, Outs, Writes, builtin, smaller
from genesis.ir.types import DType, float64
from genesis.runtime.plan import Direct

Operand = Any  # Tensor | bool | int | float
Types = tuple[Any, ...]


def _unary(call: Callable) -> Lowering:
    def run(outs: Outs, x: Tensor) -> Any:
        return call(x, out=outs[0])

    def late(outs: Outs, x: Tensor) -> Writes:
        return [partial(call, x, out=outs[0])]
    return Lowering(run, in_place=(0,), allocates=True, late=late, direct=Direct(call))


def _binary(call: Callable, as_tensors: tuple[int, ...] = (0, 1)) -> Lowering:
    """The lowering to a call that takes a number on either side."""
    def run(outs: Outs, a: Operand, b: Operand) -> Any:
        return call(a, b, out=outs[0])

    def late(outs: Outs, a: Operand, b: Operand) -> Writes:
        return [partial(call, a, b, out=outs[0])]
    return Lowering(run, in_place=(0, 1), allocates=True, late=late, direct=Direct(call), as_tensors=as_tensors,
                    integers_as_tensors=as_tensors)


def _tensor_first(call: Callable) -> Lowering:
    """The lowering to a call that takes a number only on the right."""
    def run(outs: Outs, a: Operand, b: Operand) -> Any:
        return call(a if isinstance(a, Tensor) else number_tensor(a, b.dtype), b, out=outs[0])

    def late(outs: Outs, a: Operand, b: Operand) -> Writes:
        return [partial(call, a if isinstance(a, Tensor) else number_tensor(a, b.dtype), b, out=outs[0])]
    return Lowering(run, in_place=(0, 1), allocates=True, late=late if call in _NEVER_FAIL else None,
                    direct=Direct(call), direct_for=_first_is_tensor, as_tensors=(1,) if call in _COMPARISONS else (),
                    integers_as_tensors=(1,))


def _tensors(call: Callable) -> Lowering:
    """The lowering to a call that takes no number."""
    def run(outs: Outs, a: Operand, b: Operand) -> Any:
        if not isinstance(a, Tensor):
            a = scalar_tensor(a, dtype=b.dtype, device=CPU)
        elif not isinstance(b, Tensor):
            b = scalar_tensor(b, dtype=a.dtype, device=CPU)
        return call(a, b, out=outs[0])

    def late(outs: Outs, a: Operand, b: Operand) -> Writes:
        if not isinstance(a, Tensor):
            a = scalar_tensor(a, dtype=b.dtype, device=CPU)
        elif not isinstance(b, Tensor):
            b = scalar_tensor(b, dtype=a.dtype, device=CPU)
        return [partial(call, a, b, out=outs[0])]
    return Lowering(run, in_place=(0, 1), allocates=True, late=late, direct=Direct(call), direct_for=_are_tensors,
                    as_tensors=(0, 1), refuses_far=True)


def _first_is_tensor(types: Types, attributes: dict[str, Any]) -> bool:
    return not types[0].weak


def _are_tensors(types: Types, attributes: dict[str, Any]) -> bool:
    return not any(x.weak for x in types)


def _is_short_where(types: Types, attributes: dict[str, Any]) -> bool:
    return _are_tensors(types, attributes) and smaller(types[0].numel, _SELECT_FROM)


def _is_no_bool(types: Types, attributes: dict[str, Any]) -> bool:
    return not types[0].weak and types[0].dtype.kind != "bool"


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers of as many bytes."""

_SELECT_FROM = 1 << 13
"""Elements from which `_select` is faster: its five calls cost 5 µs."""


def _select(out: Tensor, condition: Tensor, a: Tensor, b: Tensor) -> None:
    """`where` without branches: b's bits, and where the condition holds those that differ in a.

    torch.where branches at each element: 3.6 ns where conditions are random, which this takes 0.3 for, and 0.6 where
    they repeat (half a million float32, one thread).
    """
    integers = _INTEGERS[out.element_size()]
    mask = condition.to(integers).neg_()
    last = b.view(integers)
    differing = torch.bitwise_xor(a.view(integers), last)
    differing = differing.bitwise_and_(mask) if differing.shape == out.shape else torch.bitwise_and(differing, mask)
    torch.bitwise_xor(last, differing, out=out.view(integers))


def _where(outs: Outs, condition: Operand, a: Operand, b: Operand) -> None:
    out = outs[0]
    if not isinstance(a, Tensor):
        a = number_tensor(a, out.dtype)
    if not isinstance(b, Tensor):
        b = number_tensor(b, out.dtype)
    if not isinstance(condition, Tensor):
        out.copy_(a if condition else b)
    elif out.numel() >= _SELECT_FROM:
        _select(out, condition, a, b)
    else:
        torch.where(condition, a, b, out=out)


def _where_late(outs: Outs, condition: Operand, a: Operand, b: Operand) -> Writes:
    out = outs[0]
    if not isinstance(condition, Tensor):
        a = a if condition else b
        return [partial(out.copy_, a if isinstance(a, Tensor) else number_tensor(a, out.dtype))]
    a, b = (x if isinstance(x, Tensor) else number_tensor(x, out.dtype) for x in (a, b))
    return [partial(torch.where, condition, a, b, out=out)]


def _cast(outs: Outs, x: Operand, dtype: DType) -> Any:
    x = _as_tensor(x)
    if outs[0] is None:
        return x.to(torch_dtype(dtype), copy=True, memory_format=torch.contiguous_format)
    return outs[0].copy_(x)


def _cast_late(outs: Outs, x: Operand, dtype: DType) -> Writes:
    return [partial(outs[0].copy_, _as_tensor(x))]


def _as_tensor(x: Operand) -> Tensor:
    return x if isinstance(x, Tensor) else torch.tensor(x, dtype=_NUMBER_DTYPES[type(x)], device=CPU)


_NUMBER_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


def _isnan(outs: Outs, x: Tensor) -> Any:
    return torch.ne(x, x, out=outs[0])


def _isinf(outs: Outs, x: Tensor) -> Any:
    return torch.eq(x.abs(), math.inf, out=outs[0])


def _bitcast(outs: Outs, x: Tensor, dtype: DType) -> None:
    outs[0].copy_(x.view(torch_dtype(dtype)))


def _addcmul(outs: Outs, x: Tensor, a: Tensor, b: Tensor, value: Any) -> Any:
    return torch.addcmul(x, a, b, value=value, out=outs[0])


def _addcmul_late(outs: Outs, x: Tensor, a: Tensor, b: Tensor, value: Any) -> Writes:
    return [partial(torch.addcmul, x, a, b, value=value, out=outs[0])]


def _addcdiv(outs: Outs, x: Tensor, a: Tensor, b: Tensor, value: Any) -> Any:
    return torch.addcdiv(x, a, b, value=value, out=outs[0])


def _addcdiv_late(outs: Outs, x: Tensor, a: Tensor, b: Tensor, value: Any) -> Writes:
    return [partial(torch.addcdiv, x, a, b, value=value, out=outs[0])]


def _lerp(outs: Outs, a: Tensor, b: Tensor, weight: Operand) -> Any:
    return torch.lerp(a, b, weight, out=outs[0])


def _lerp_late(outs: Outs, a: Tensor, b: Tensor, weight: Operand) -> Writes:
    return [partial(torch.lerp, a, b, weight, out=outs[0])]


def _add_scaled(outs: Outs, a: Tensor, b: Tensor, alpha: Any) -> Any:
    return torch.add(a, b, alpha=alpha, out=outs[0])


def _add_scaled_late(outs: Outs, a: Tensor, b: Tensor, alpha: Any) -> Writes:
    return [partial(torch.add, a, b, alpha=alpha, out=outs[0])]


def _clamp(outs: Outs, x: Tensor, low: Operand, high: Operand) -> Any:
    if isinstance(low, Tensor) is not isinstance(high, Tensor):
        low, high = (y if isinstance(y, Tensor) else scalar_tensor(y, dtype=x.dtype, device=CPU) for y in (low, high))
    return torch.clamp(x, low, high, out=outs[0])


def _clamp_late(outs: Outs, x: Tensor, low: Operand, high: Operand) -> Writes:
    if isinstance(low, Tensor) is not isinstance(high, Tensor):
        low, high = (y if isinstance(y, Tensor) else scalar_tensor(y, dtype=x.dtype, device=CPU) for y in (low, high))
    return [partial(torch.clamp, x, low, high, out=outs[0])]


def _bound(call: Callable, on_tensors: Callable) -> Lowering:
    """The lowering to clamp_min or clamp_max, which know no bool but as maximum and minimum."""
    def run(outs: Outs, x: Operand, bound: Operand) -> Any:
        if not isinstance(x, Tensor):
            x = scalar_tensor(x, dtype=bound.dtype, device=CPU)
        if x.dtype is not torch.bool:
            return call(x, bound, out=outs[0])
        bound = bound if isinstance(bound, Tensor) else scalar_tensor(bound, dtype=x.dtype, device=CPU)
        return on_tensors(x, bound, out=outs[0])

    def late(outs: Outs, x: Operand, bound: Operand) -> Writes:
        if not isinstance(x, Tensor):
            x = scalar_tensor(x, dtype=bound.dtype, device=CPU)
        if x.dtype is not torch.bool:
            return [partial(call, x, bound, out=outs[0])]
        bound = bound if isinstance(bound, Tensor) else scalar_tensor(bound, dtype=x.dtype, device=CPU)
        return [partial(on_tensors, x, bound, out=outs[0])]
    return Lowering(run, in_place=(0, 1), allocates=True, late=late, direct=Direct(call), direct_for=_is_no_bool)


def _nan_to_num(outs: Outs, x: Tensor, nan: float, high: float, low: float) -> Any:
    return torch.nan_to_num(x, nan, high, low, out=outs[0])


def _isclose(a: Tensor, b: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    return torch.isclose(a, b, rtol, atol, equal_nan)


def _logit(outs: Outs, x: Tensor, eps: float | None = None) -> Any:
    return torch.logit(x, eps, out=outs[0])


def _trunc_divide(outs: Outs, a: Operand, b: Operand) -> Any:
    if not isinstance(a, Tensor):
        a = scalar_tensor(a, dtype=b.dtype, device=CPU)
    return torch.div(a, b, rounding_mode="trunc", out=outs[0])


def _not_low(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch rounds a bfloat16 quotient before it cuts the fraction off."""
    return all(t.dtype.kind != "float" or t.dtype.itemsize >= 4 for t in types)


def _not_float64(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch's polygamma has errors of 1e-10 in float64; the decomposition has not."""
    return types[0].dtype is not float64


def _polygamma(outs: Outs, x: Tensor, n: int) -> Any:
    return torch.polygamma(n, x, out=outs[0])


def _round_to(outs: Outs, x: Tensor, decimals: int) -> Any:
    return torch.round(x, decimals=decimals, out=outs[0])


def _isposinf(outs: Outs, x: Tensor) -> Any:
    return torch.isposinf(x, out=outs[0])


def _isneginf(outs: Outs, x: Tensor) -> Any:
    return torch.isneginf(x, out=outs[0])


def _relu(outs: Outs, x: Tensor) -> Any:
    return torch.clamp_min(x, 0, out=outs[0])


def _relu_late(outs: Outs, x: Tensor) -> Writes:
    return [partial(torch.clamp_min, x, 0, out=outs[0])]


def _gelu(outs: Outs, x: Tensor, approximate: str) -> Any:
    return torch._C._nn.gelu(x, approximate=approximate, out=outs[0])


def _gelu_late(outs: Outs, x: Tensor, approximate: str) -> Writes:
    return [partial(torch._C._nn.gelu, x, approximate=approximate, out=outs[0])]


_silu_grad = builtin(torch.ops.aten.silu_backward.grad_input)
_gelu_grad = builtin(torch.ops.aten.gelu_backward.grad_input)


def _silu_backward(outs: Outs, g: Tensor, x: Tensor) -> None:
    _silu_grad(g, x, grad_input=outs[0])


def _gelu_backward(outs: Outs, g: Tensor, x: Tensor, approximate: str) -> None:
    _gelu_grad(g, x, approximate=approximate, grad_input=outs[0])


def _ndtr(outs: Outs, x: Tensor) -> None:
    """Computed by erfc, in at least float32: torch.special.ndtr is 0 from -8.4 on."""
    upcast = x if x.element_size() >= 4 else x.float()
    outs[0].copy_(torch.erfc(upcast * -math.sqrt(0.5)).mul_(0.5))


_NEVER_FAIL = frozenset({torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor, torch.eq, torch.ne, torch.lt, torch.le,
                         torch.gt, torch.ge})
"""Calls that no value of an operand makes fail; a division of integers by 0 does."""

_COMPARISONS = frozenset({torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge})
_BOTH_SIDES = ("add", "sub", "mul", "div")
_RIGHT_SIDE = ("remainder", "fmod", "floor_divide", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt", "le",
               "gt", "ge")
_UNARY = ("neg", "abs", "sign", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
          "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid",
          "erf", "erfc", "floor", "ceil", "round", "trunc", "bitwise_not", "signbit", "frac",
          "sinc", "erfinv", "digamma", "lgamma", "i0", "logical_not")
_TENSORS = ("atan2", "maximum", "minimum", "copysign", "nextafter", "fmax", "fmin", "heaviside", "hypot", "logaddexp",
            "logaddexp2", "xlogy", "gcd", "lcm", "logical_and", "logical_or", "logical_xor")

POINTWISE: dict[str, Lowering] = {
    **{name: _binary(getattr(torch, name)) for name in _BOTH_SIDES},
    "pow": _binary(torch.pow, as_tensors=()),  # by a number it is another kernel, with other bits
    **{name: _tensor_first(getattr(torch, name)) for name in _RIGHT_SIDE},
    **{name: _unary(getattr(torch, name)) for name in _UNARY},
    **{name: _tensors(getattr(torch, name)) for name in _TENSORS},
    "i1": _unary(torch.special.i1),
    "entr": _unary(torch.special.entr),
    "ndtr": Lowering(_ndtr, in_place=(0,)),
    "logit": Lowering(_logit, in_place=(0,), allocates=True),
    "polygamma": Lowering(_polygamma, supports=_not_float64, in_place=(0,), allocates=True),
    "round_to": Lowering(_round_to, in_place=(0,), allocates=True),
    "trunc_divide": Lowering(_trunc_divide, supports=_not_low, in_place=(0, 1), allocates=True),
    "addcmul": Lowering(_addcmul, in_place=(0, 1, 2), allocates=True, late=_addcmul_late),
    "addcdiv": Lowering(_addcdiv, in_place=(0, 1, 2), allocates=True, late=_addcdiv_late),
    "add_scaled": Lowering(_add_scaled, in_place=(0, 1), allocates=True, late=_add_scaled_late),
    "lerp": Lowering(_lerp, in_place=(0, 1, 2), allocates=True, late=_lerp_late),
    "clamp": Lowering(_clamp, in_place=(0, 1, 2), allocates=True, late=_clamp_late),
    "clamp_min": _bound(torch.clamp_min, torch.maximum),
    "clamp_max": _bound(torch.clamp_max, torch.minimum),
    "nan_to_num": Lowering(_nan_to_num, in_place=(0,), allocates=True),
    "isfinite": Lowering(torch.isfinite, "fresh"),
    "isposinf": Lowering(_isposinf, allocates=True),
    "isneginf": Lowering(_isneginf, allocates=True),
    "isclose": Lowering(_isclose, "fresh"),
    "bitcast": Lowering(_bitcast),
    "left_shift": _tensor_first(torch.bitwise_left_shift),
    "right_shift": _tensor_first(torch.bitwise_right_shift),
    "where": Lowering(_where, in_place=(1, 2), late=_where_late, direct=Direct(torch.where), direct_for=_is_short_where,
                      as_tensors=(1, 2), refuses_far=True),
    "cast": Lowering(_cast, allocates=True, late=_cast_late, direct=Direct(Tensor.copy_, out=""),
                     direct_for=_first_is_tensor),
    "isnan": Lowering(_isnan, allocates=True),
    "isinf": Lowering(_isinf, allocates=True),
    "relu": Lowering(_relu, in_place=(0,), allocates=True, late=_relu_late, direct=Direct(torch.clamp_min, (0,))),
    "silu": _unary(torch._C._nn.silu),
    "gelu": Lowering(_gelu, in_place=(0,), allocates=True, late=_gelu_late),
    "silu_backward": Lowering(_silu_backward, in_place=(0, 1), direct=Direct(_silu_grad, out="grad_input")),
    "gelu_backward": Lowering(_gelu_backward, in_place=(0, 1)),
}
