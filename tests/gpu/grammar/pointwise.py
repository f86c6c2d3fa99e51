"""Steps that compute each element from the elements at its place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

import genesis.utils.checkpoint  # noqa: F401  `lib.utils.checkpoint`, which torch has from the start
from tests.gpu.grammar.values import Run, Step, Value


def pick(draw: Any, values: list[Value], holds: Callable[[Value], bool]) -> int | None:
    """The position of a value for which it holds; recent ones come more often."""
    found = [i for i, value in enumerate(values) if holds(value)]
    return draw(st.sampled_from((found + found[-3:])[::-1])) if found else None


def pattern(lib: Any, shape: tuple[int, ...], like: Any) -> Any:
    """Halves from -1 to 1 by position, in the dtype of another value."""
    count = math.prod(shape)
    return ((lib.arange(count, device=like.device) * 7 % 5 - 2).to(like.dtype) * 0.5).reshape(shape)


def mask(lib: Any, like: Any) -> Any:
    """True at every third position."""
    return (lib.arange(math.prod(like.shape), device=like.device) % 3 == 0).reshape(tuple(like.shape))


def inside(lib: Any, x: Any) -> Any:
    """Something between -0.9 and 0.9."""
    return lib.tanh(x) * 0.9


def above(x: Any) -> Any:
    """Something from 1 on."""
    return x * x + 1.0


# name: (function, ulp): continuous functions of a real value, of numbers in their domain.
SMOOTH: dict[str, tuple[Run, float]] = {
    **{name: (lambda lib, x, name=name: getattr(lib, name)(x), ulp) for name, ulp in (
        ("tanh", 2), ("sigmoid", 2), ("sin", 2), ("cos", 2), ("atan", 2), ("asinh", 4), ("erf", 2), ("erfc", 4),
        ("sinc", 8), ("square", 1))},
    **{name: (lambda lib, x, name=name: getattr(lib, name)(inside(lib, x)), 8) for name in (
        "exp", "exp2", "expm1", "acos", "asin", "atanh", "sinh", "cosh", "tan", "erfinv", "i0")},
    **{name: (lambda lib, x, name=name: getattr(lib, name)(above(x)), 8) for name in (
        "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma")},
    "entr": (lambda lib, x: lib.special.entr(above(x)), 8),
    "acosh": (lambda lib, x: lib.acosh(above(x) + 0.5), 8),
    "logit": (lambda lib, x: lib.logit(lib.sigmoid(x) * 0.8 + 0.1), 8),
    "polygamma": (lambda lib, x: lib.polygamma(1, above(x)), 16),
    "pow 3": (lambda lib, x: x ** 3, 4), "pow": (lambda lib, x: above(x) ** -0.5, 8),
    "1 over": (lambda lib, x: 1.5 / above(x), 4),
    "mean square error": (lambda lib, x: lib.nn.functional.mse_loss(x, lib.tanh(x)), 8),
    **{name: (lambda lib, x, name=name, how=how: getattr(lib.nn.functional, name)(x, **how), 8) for name, how in (
        ("gelu", {}), ("silu", {}), ("softplus", {"beta": 2.0}), ("mish", {}), ("elu", {"alpha": 0.5}), ("selu", {}),
        ("celu", {}), ("hardsigmoid", {}), ("hardswish", {}), ("logsigmoid", {}), ("softsign", {}),
        ("tanhshrink", {}))},
    "checkpoint": (lambda lib, x: lib.utils.checkpoint.checkpoint(
        lambda y: lib.tanh(lib.sin(y) * 2.0), x, use_reentrant=False), 8),
    "linspace": (lambda lib, x: x * lib.linspace(-1, 1, x.shape[-1], device=x.device).to(x.dtype), 4),
    "gelu tanh": (lambda lib, x: lib.nn.functional.gelu(x, approximate="tanh"), 8),
}

# Rounded once at most, so that exact operands stay exact.
ARITHMETIC: dict[str, Run] = {
    "neg": lambda lib, x: -x, "abs": lambda lib, x: lib.abs(x), "relu": lambda lib, x: lib.nn.functional.relu(x),
    "clamp": lambda lib, x: lib.clamp(x, -1.5, 1.25), "clamp_min": lambda lib, x: lib.clamp(x, min=-1),
    "clamp_max": lambda lib, x: lib.clamp(x, max=2), "times": lambda lib, x: x * 0.75, "plus": lambda lib, x: 1.5 + x,
    "times 2": lambda lib, x: 2 * x, "minus": lambda lib, x: 1 - x, "half": lambda lib, x: x / 2,
    "leaky_relu": lambda lib, x: lib.nn.functional.leaky_relu(x, 0.25),
    "hardtanh": lambda lib, x: lib.nn.functional.hardtanh(x, -1.5, 2.0),
    "relu6": lambda lib, x: lib.nn.functional.relu6(x), "softshrink": lambda lib, x: lib.nn.functional.softshrink(x),
    "nan_to_num": lambda lib, x: lib.nan_to_num(x, nan=1.0), "isfinite": lambda lib, x: lib.isfinite(x),
    "isnan": lambda lib, x: lib.isnan(x), "isinf": lambda lib, x: lib.isinf(x),
    "isneginf": lambda lib, x: lib.isneginf(x), "isposinf": lambda lib, x: lib.isposinf(x),
    "masked_fill": lambda lib, x: x.masked_fill(mask(lib, x), 2),
    "detach": lambda lib, x: x.detach() + x,
}

# Functions of certain values.
JUMPS: dict[str, Run] = {
    "floor": lambda lib, x: lib.floor(x * 0.5), "ceil": lambda lib, x: lib.ceil(x * 0.5),
    "trunc": lambda lib, x: lib.trunc(x * 0.5), "round": lambda lib, x: lib.round(x * 0.25),
    "round to 1": lambda lib, x: lib.round(x, decimals=1), "frac": lambda lib, x: lib.frac(x * 0.25),
    "sign": lambda lib, x: lib.sign(x), "signbit": lambda lib, x: lib.signbit(x),
    "greater": lambda lib, x: (x > 0.5).to(x.dtype), "remainder": lambda lib, x: lib.remainder(x, 3),
    "fmod": lambda lib, x: lib.fmod(x, 3), "floor_divide": lambda lib, x: x.detach() // 2,
    "to int": lambda lib, x: x.to(lib.int64), "to bool": lambda lib, x: x.to(lib.bool),
    "logical_not": lambda lib, x: lib.logical_not(x), "hardshrink": lambda lib, x: lib.nn.functional.hardshrink(x),
    "threshold": lambda lib, x: lib.nn.functional.threshold(x, 0.5, -1.0),
    "trunc_divide": lambda lib, x: lib.div(x, 3, rounding_mode="trunc"),
}

BINARY: dict[str, tuple[Run, float]] = {
    "add": (lambda lib, x, y: x + y, 1), "sub": (lambda lib, x, y: x - y, 1), "mul": (lambda lib, x, y: x * y, 1),
    "maximum": (lambda lib, x, y: lib.maximum(x, y), 1), "minimum": (lambda lib, x, y: lib.minimum(x, y), 1),
    "fmax": (lambda lib, x, y: lib.fmax(x, y), 1), "fmin": (lambda lib, x, y: lib.fmin(x, y), 1),
    "where": (lambda lib, x, y: lib.where(mask(lib, x), x, y), 1),
    "add scaled": (lambda lib, x, y: lib.add(x, y, alpha=2), 2),
    "addcmul": (lambda lib, x, y: lib.addcmul(x, x, y, value=2), 4),
    "masked add": (lambda lib, x, y: x + lib.where(y == y, y, 0), 1),
}

# Continuous, and never exact.
ROUNDED: dict[str, Run] = {
    "div": lambda lib, x, y: x / (lib.abs(y) + 1.0), "lerp": lambda lib, x, y: lib.lerp(x, y, 0.25),
    "lerp by tensor": lambda lib, x, y: lib.lerp(x, y, lib.sigmoid(y)),
    "atan2": lambda lib, x, y: lib.atan2(x, above(y)), "hypot": lambda lib, x, y: lib.hypot(above(x), y),
    "logaddexp": lambda lib, x, y: lib.logaddexp(x, y), "logaddexp2": lambda lib, x, y: lib.logaddexp2(x, y),
    "xlogy": lambda lib, x, y: lib.xlogy(x, above(y)), "pow": lambda lib, x, y: lib.pow(above(x), lib.tanh(y)),
    "addcdiv": lambda lib, x, y: lib.addcdiv(x, y, above(x), value=0.5),
    "smooth_l1": lambda lib, x, y: lib.nn.functional.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda lib, x, y: lib.nn.functional.huber_loss(x, y, reduction="none", delta=0.5),
    "bce": lambda lib, x, y: lib.nn.functional.binary_cross_entropy(
        lib.sigmoid(x) * 0.8 + 0.1, lib.sigmoid(y).detach(), reduction="none"),
    "bce with logits": lambda lib, x, y: lib.nn.functional.binary_cross_entropy_with_logits(x, lib.sigmoid(y)),
    "l1": lambda lib, x, y: lib.nn.functional.l1_loss(x, y),
}

JUMPS_OF_TWO: dict[str, Run] = {
    **{name: lambda lib, x, y, name=name: getattr(lib, name)(x, y) for name in (
        "eq", "ne", "lt", "le", "gt", "ge", "isclose", "logical_and", "logical_or", "logical_xor", "copysign")},
    **{name: lambda lib, x, y, name=name: getattr(lib, name)(x, lib.abs(y) + 1) for name in ("remainder", "fmod")},
    **{name: lambda lib, x, y, name=name: getattr(lib, name)(x.detach(), lib.abs(y).detach() + 1) for name in (
        "floor_divide", "heaviside", "nextafter")},
    "chosen": lambda lib, x, y: lib.where(x > y, x, y * 0.5),
}

BITS: dict[str, Run] = {
    **{name: lambda lib, x, y, name=name: getattr(lib, name)(x, y) for name in (
        "bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm", "add", "mul", "sub", "maximum")},
    "bitwise_not": lambda lib, x, y: ~x, "left_shift": lambda lib, x, y: x << (y & 3),
    "right_shift": lambda lib, x, y: x >> (y & 3), "floor_divide": lambda lib, x, y: x // (y * y + 1),
    "remainder": lambda lib, x, y: x % (y * y + 1), "to float": lambda lib, x, y: x * 1.0 + y,
}


def smooth(draw: Any, values: list[Value]) -> Step | None:
    """A function of one variable."""
    at = pick(draw, values, lambda x: x.real)
    name = draw(st.sampled_from(sorted(SMOOTH)))
    run, ulp = SMOOTH[name]
    return None if at is None else Step(name, run, (at,), ulp, exact=False, scale=0.5)


def arithmetic(draw: Any, values: list[Value]) -> Step | None:
    """One variable, exact where that is possible; integers too."""
    at = pick(draw, values, lambda x: True)
    name = draw(st.sampled_from(sorted(ARITHMETIC)))
    return None if at is None else Step(name, ARITHMETIC[name], (at,), 1)


def jumping(draw: Any, values: list[Value]) -> Step | None:
    """One certain variable."""
    at = pick(draw, values, lambda x: x.certain)
    name = draw(st.sampled_from(sorted(JUMPS)))
    return None if at is None else Step(name, JUMPS[name], (at,), 1, jumps=True)


def binary(draw: Any, values: list[Value]) -> Step | None:
    """Two variables, broadcast and promoted."""
    found = two(draw, values, lambda x: True)
    name = draw(st.sampled_from(sorted(BINARY)))
    run, ulp = BINARY[name]
    return found and Step(name, run, found, ulp)


def rounded(draw: Any, values: list[Value]) -> Step | None:
    """Two real variables."""
    found = two(draw, values, lambda x: x.real)
    name = draw(st.sampled_from(sorted(ROUNDED)))
    return found and Step(name, ROUNDED[name], found, 8, exact=False, scale=0.5)


def jumping_of_two(draw: Any, values: list[Value]) -> Step | None:
    """Two certain variables, which promotion does not round."""
    found = two(draw, values, lambda x: x.certain)
    if found and values[found[0]].dtype != values[found[1]].dtype and not all(values[i].exact for i in found):
        return None
    name = draw(st.sampled_from(sorted(JUMPS_OF_TWO)))
    return found and Step(name, JUMPS_OF_TWO[name], found, 2, jumps=True)


def bits(draw: Any, values: list[Value]) -> Step | None:
    """Two integers or bools."""
    found = two(draw, values, lambda x: not x.real)
    name = draw(st.sampled_from(sorted(BITS)))
    return found and Step(f"{name} of bits", BITS[name], found)


def converted(draw: Any, values: list[Value]) -> Step | None:
    """Another floating dtype."""
    at = pick(draw, values, lambda x: True)
    dtype = draw(st.sampled_from(("float32", "bfloat16", "float16")))
    return None if at is None else Step(
        f"to {dtype}", lambda lib, x: x.to(getattr(lib, dtype)) if x.dtype != lib.float64 else x, (at,), 1)


def two(draw: Any, values: list[Value], holds: Callable[[Value], bool]) -> Any:
    """The positions of two values for which it holds and that broadcast; None if there are none."""
    a = pick(draw, values, holds)
    if a is None:
        return None
    b = pick(draw, values, lambda x: holds(x) and _broadcast(x.shape, values[a].shape))
    return (a, b)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


FAMILIES = (smooth, smooth, smooth, arithmetic, arithmetic, jumping, binary, binary, rounded, rounded, jumping_of_two,
            bits, converted)
