"""Pointwise ops on Python numbers: what a formula such as `lr * decay` is when a plan runs.

Floats follow IEEE 754 (1 / 0 is inf, no exceptions), integers wrap to 64 bits as int64 does. `as_number` says what a
number is in the first place: Python's, what derives from them (`enum.IntEnum`), and numpy's scalars.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any, Final

from genesis.ir.types import DType

Number = bool | int | float

PLAIN: Final = frozenset({bool, int, float})
"""The classes that a number of the program has."""


def as_number(x: Any) -> Number | None:
    """The plain Python number that x is, None if it is no number.

    Of a class that derives from `int` or `float`, the value; of a numpy scalar, its item. An array without dimensions
    is an array, and a tensor without dimensions a tensor.

    >>> import enum, numpy
    >>> as_number(enum.IntEnum("Color", "RED GREEN").GREEN), as_number(numpy.float32(0.5)), as_number("2")
    (2, 0.5, None)
    """
    if x.__class__ in PLAIN:
        return x  # type: ignore[return-value]
    numpy = sys.modules.get("numpy")  # who has a numpy scalar has loaded it
    if numpy is not None and isinstance(x, numpy.generic):
        if isinstance(x, numpy.floating):
            return float(x)  # a longdouble's item is a longdouble
        return x.item() if isinstance(x, (numpy.integer, numpy.bool_)) else None
    if isinstance(x, float):
        return float(x)
    return int(x) if isinstance(x, int) else None


def fold_numbers(op: str, *numbers: Number, **attributes: Any) -> Number:
    """The value of a pointwise op on numbers.

    >>> fold_numbers("mul", 0.5, 4), fold_numbers("div", 1.0, 0.0), fold_numbers("remainder", -7, 3)
    (2.0, inf, 2)
    """
    if attributes.get("dtype") is not None:
        return _cast(numbers[0], attributes["dtype"])
    rule = _RULES[op] if op != "gelu" else _GELU[attributes["approximate"]]
    try:
        value = rule(*numbers)
    except (ZeroDivisionError, OverflowError, ValueError):
        value = _exceptional(op, *numbers)
    return _wrap(value) if type(value) is int else value


def _wrap(value: int, low: int = -2**63, count: int = 2**64) -> int:
    """The integer in [low, low + count) with the same low bits."""
    return (value - low) % count + low


def _cast(x: Number, dtype: DType) -> Number:
    if dtype.kind == "float":
        return float(x) if dtype.itemsize == 8 else float(dtype.numpy.type(x))  # rounded to the dtype
    if dtype.kind == "bool":
        return bool(x)
    return _wrap(int(x) if math.isfinite(x) else -2**63, int(dtype.min or 0), 2**(8 * dtype.itemsize))


def _exceptional(op: str, *numbers: Number) -> Number:
    """The IEEE result where Python raises instead."""
    if op in ("floor", "ceil", "round", "trunc"):
        return float(numbers[0])
    if all(type(x) is not float for x in numbers) and op in ("floor_divide", "remainder", "fmod", "left_shift",
                                                            "right_shift", "pow"):
        raise ZeroDivisionError(f"{op} of the integers {numbers[0]} and {numbers[1]}")
    import numpy as np
    with np.errstate(all="ignore"):
        return float(_NUMPY[op](*map(np.float64, numbers)))


def _add(a: Number, b: Number) -> Number:
    return a or b if type(a) is type(b) is bool else a + b


def _mul(a: Number, b: Number) -> Number:
    return a and b if type(a) is type(b) is bool else a * b


def _fmod(a: Number, b: Number) -> Number:
    return math.fmod(a, b) if float in (type(a), type(b)) else int(abs(a) % abs(b)) * (-1 if a < 0 else 1)


def _pow(a: Number, b: Number) -> Number:
    value = a**b
    if isinstance(value, complex):
        return math.nan
    if isinstance(value, float) and float not in (type(a), type(b)):
        raise ValueError("integers to negative integer powers are not allowed")
    return value


def _sign(x: Number) -> Number:
    return type(x)((x > 0) - (x < 0))


def _rounding(call: Callable) -> Callable:
    return lambda x: math.copysign(float(call(x)), x) if type(x) is float else x


def _either(pick: Callable) -> Callable:
    return lambda a, b: math.nan if a != a or b != b else pick(a, b)


def _logaddexp(a: float, b: float) -> float:
    return a if a == b and math.isinf(a) else _either(max)(a, b) + math.log1p(math.exp(-abs(a - b)))


def _logaddexp2(a: float, b: float) -> float:
    return a if a == b and math.isinf(a) else _either(max)(a, b) + math.log1p(2.0**-abs(a - b)) / math.log(2)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


_RULES: Final[dict[str, Callable[..., Number]]] = {
    "add": _add, "sub": operator.sub, "mul": _mul, "div": operator.truediv, "floor_divide": operator.floordiv,
    "remainder": operator.mod, "fmod": _fmod, "pow": _pow, "atan2": math.atan2, "maximum": _either(max),
    "minimum": _either(min), "neg": operator.neg, "abs": abs, "sign": _sign, "reciprocal": lambda x: 1 / x,
    "sqrt": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x), "exp": math.exp, "exp2": lambda x: 2.0**x,
    "expm1": math.expm1, "log": math.log, "log2": math.log2, "log10": math.log10, "log1p": math.log1p,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan,
    "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "asinh": math.asinh, "acosh": math.acosh,
    "atanh": math.atanh, "sigmoid": _sigmoid, "erf": math.erf, "erfc": math.erfc,
    "ndtr": lambda x: 0.5 * math.erfc(-x * math.sqrt(0.5)), "floor": _rounding(math.floor),
    "ceil": _rounding(math.ceil), "round": _rounding(round), "trunc": _rounding(math.trunc),
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "bitwise_not": lambda x: not x if type(x) is bool else ~x, "left_shift": operator.lshift,
    "right_shift": operator.rshift, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "isnan": lambda x: x != x, "isinf": lambda x: abs(x) == math.inf,
    "where": lambda condition, a, b: a if condition else b,
    "relu": lambda x: x if x > 0 or x != x else type(x)(0), "silu": lambda x: x * _sigmoid(x),
    "signbit": lambda x: math.copysign(1.0, x) < 0, "copysign": math.copysign, "nextafter": math.nextafter,
    "isfinite": math.isfinite, "isposinf": lambda x: x == math.inf, "isneginf": lambda x: x == -math.inf,
    "fmax": lambda a, b: a if a >= b or b != b else b, "fmin": lambda a, b: a if a <= b or b != b else b,
    "clamp": lambda x, low, high: _either(min)(_either(max)(x, low), high), "clamp_min": _either(max),
    "clamp_max": _either(min), "heaviside": lambda x, at_zero: at_zero if x == 0 else type(x)(x > 0),
    "hypot": math.hypot, "logaddexp": _logaddexp, "logaddexp2": _logaddexp2,
    "xlogy": lambda a, b: 0.0 if a == 0 and b == b else a * math.log(b),
    "lerp": lambda a, b, weight: a + weight * (b - a), "addcmul": lambda x, a, b, value: x + value * a * b,
    "addcdiv": lambda x, a, b, value: x + value * a / b, "add_scaled": lambda a, b, alpha: a + alpha * b,
    "frac": lambda x: x - math.trunc(x), "trunc_divide": lambda a, b: _rounding(math.trunc)(a / b),
    "gcd": math.gcd, "lcm": math.lcm, "logical_not": operator.not_,
    "logical_and": lambda a, b: bool(a) and bool(b), "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_xor": lambda a, b: bool(a) is not bool(b),
}

FOLDED: Final = frozenset(_RULES) | {"gelu", "cast"}
"""Ops that have a rule. The others (special functions) are computed on tensors only."""

_GELU: Final[dict[str, Callable[[float], float]]] = {
    "none": lambda x: x * 0.5 * math.erfc(-x * math.sqrt(0.5)),
    "tanh": lambda x: x * 0.5 * (math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)) + 1),
}


def _numpy_table() -> dict[str, Callable[..., Any]]:
    import numpy as np
    same = {"add", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh",
            "floor_divide", "remainder", "fmod", "reciprocal"}
    renamed = {"div": "divide", "pow": "power", "asin": "arcsin", "acos": "arccos", "acosh": "arccosh",
               "atanh": "arctanh"}
    return {**{n: getattr(np, n) for n in same}, **{n: getattr(np, to) for n, to in renamed.items()},
            "rsqrt": lambda x: 1 / np.sqrt(x), "trunc_divide": lambda a, b: np.trunc(a / b),
            "xlogy": lambda a, b: a * np.log(b), "frac": lambda x: x - np.trunc(x)}


class _Lazy(dict):
    """numpy's functions, looked up when one is first needed: importing Genesis's IR loads no numpy."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        self.update(_numpy_table())
        return self[name]


_NUMPY: Final[dict[str, Callable[..., Any]]] = _Lazy()
