"""dtypes of results and their values, for every pair of dtypes and kind of scalar, against torch."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch_programs import name_of, same

import genesis
from tests.sweeping import by_default

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
SCALARS = [True, 2, 1.5]
WITH_SCALARS = ["add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "eq", "lt", "ge", "ne",
                "bitwise_and", "bitwise_or", "bitwise_xor"]
BINARY = [*WITH_SCALARS, "maximum", "minimum", "atan2", "logical_and", "logical_or"]


def operand(T, dtype, ndim=1):
    """Numbers that every dtype holds exactly."""
    x = T.tensor([3, 1, 2, 5]).to(getattr(T, dtype))
    return x if ndim else x[2]


def outcome(T, name, a, b):
    """The result, or "error"."""
    try:
        return getattr(T, name)(a, b)
    except (RuntimeError, TypeError):
        return "error"


def one_step(result):
    """The relative distance of neighbours in the result's dtype, about."""
    return 1e-6 if isinstance(result, str) else {"float16": 2e-3, "bfloat16": 2e-2}.get(name_of(result.dtype), 1e-6)


def compare(name, make):
    """Ours and torch's outcome are one."""
    ours, theirs = outcome(genesis, name, *make(genesis)), outcome(torch, name, *make(torch))
    if isinstance(theirs, str) or isinstance(ours, str):
        assert type(ours) is type(theirs) and str(ours) == str(theirs), (ours, theirs)
        return
    same(ours, theirs, rtol=one_step(theirs))


@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_tensors(name):
    for a, b in itertools.product(DTYPES, DTYPES):
        compare(name, lambda T, a=a, b=b: (operand(T, a), operand(T, b)))


@pytest.mark.parametrize("name", BINARY)
def test_a_tensor_and_a_0d_tensor(name):
    for a, b in itertools.product(DTYPES, DTYPES):
        compare(name, lambda T, a=a, b=b: (operand(T, a), operand(T, b, 0)))


@by_default("add", "div", "floor_divide", "pow", "eq", "bitwise_and", "maximum", "atan2")
@pytest.mark.parametrize("name", BINARY)
def test_two_0d_tensors(name):
    for a, b in itertools.product(DTYPES, DTYPES):
        compare(name, lambda T, a=a, b=b: (operand(T, a, 0), operand(T, b, 0)))


@pytest.mark.parametrize("name", WITH_SCALARS)
def test_a_tensor_and_a_scalar(name):
    for a, scalar, ndim in itertools.product(DTYPES, SCALARS, (1, 0)):
        compare(name, lambda T, a=a, scalar=scalar, ndim=ndim: (operand(T, a, ndim), scalar))


@pytest.mark.parametrize("operator", ["__add__", "__radd__", "__rsub__", "__rmul__", "__rtruediv__", "__rfloordiv__",
                                      "__rpow__", "__rmod__", "__and__", "__ror__", "__lshift__", "__rshift__"])
def test_operators_with_scalars_on_either_side(operator):
    for a, scalar in itertools.product(DTYPES, SCALARS):
        def run(T, a=a, scalar=scalar):
            try:
                return getattr(operand(T, a), operator)(scalar)
            except (RuntimeError, TypeError):
                return "error"
        ours, theirs = run(genesis), run(torch)
        if ours is NotImplemented or theirs is NotImplemented:
            continue
        same(ours, theirs, rtol=one_step(theirs), where=f"{a} {operator} {scalar}")


def test_promote_types_and_result_type():
    for a, b in itertools.product(DTYPES, DTYPES):
        ours, theirs = (T.promote_types(getattr(T, a), getattr(T, b)) for T in (genesis, torch))
        assert name_of(ours) == name_of(theirs), (a, b)
        for x, y in itertools.product((0, 1), (0, 1)):
            ours, theirs = (T.result_type(operand(T, a, x), operand(T, b, y)) for T in (genesis, torch))
            assert name_of(ours) == name_of(theirs), (a, x, b, y)
        for scalar in SCALARS:
            ours, theirs = (T.result_type(operand(T, a), scalar) for T in (genesis, torch))
            assert name_of(ours) == name_of(theirs), (a, scalar)


REDUCTIONS = {
    "sum": lambda T, x: x.sum(),
    "sum of a dim": lambda T, x: x.sum(0),
    "sum as float": lambda T, x: x.sum(dtype=T.float32),
    "prod": lambda T, x: x.prod(),
    "mean": lambda T, x: x.mean(),
    "mean as double": lambda T, x: x.mean(dtype=T.float64),
    "cumsum": lambda T, x: x.cumsum(0),
    "cumprod": lambda T, x: x.cumprod(0),
    "any": lambda T, x: x.any(),
    "all": lambda T, x: x.all(),
    "argmax": lambda T, x: x.argmax(),
    "argmin": lambda T, x: x.argmin(0),
    "amax": lambda T, x: x.amax(),
    "max": lambda T, x: x.max(),
    "max of a dim": lambda T, x: tuple(x.max(0)),
    "min of a dim": lambda T, x: tuple(x.min(0)),
    "var": lambda T, x: x.var(),
    "std": lambda T, x: x.std(0),
    "norm": lambda T, x: x.norm(),
    "logsumexp": lambda T, x: x.logsumexp(0),
    "softmax": lambda T, x: x.softmax(0),
    "softmax as float": lambda T, x: x.softmax(0, dtype=T.float32),
}
UNARY = ["neg", "abs", "exp", "sqrt", "sin", "sign", "floor", "round", "sigmoid", "relu", "reciprocal", "square",
         "bitwise_not", "logical_not", "isnan", "isfinite", "isinf", "erf", "log1p", "trunc", "tanh"]


GIVEN_WHERE_TORCH_REFUSES = {
    ("abs", "bool"), ("argmax", "bool"), ("argmin", "bool"),
    *(("softmax", d) for d in DTYPES[:6]),
}
"""Op and dtype for which torch has no kernel, and Genesis the obvious result (integers become floats)."""


def unary(run, dtype, name):
    """The outcome of both for one dtype."""
    results = []
    for T in (genesis, torch):
        try:
            results.append(run(T, operand(T, dtype)))
        except (RuntimeError, TypeError):
            results.append("error")
    if (name, dtype) in GIVEN_WHERE_TORCH_REFUSES:
        assert isinstance(results[0], genesis.Tensor) and results[1] == "error"
        return
    first = results[1][0] if isinstance(results[1], tuple) else results[1]
    same(*results, rtol=one_step(first), where=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, dtype):
    unary(REDUCTIONS[name], dtype, name)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    for dtype in DTYPES:
        unary(lambda T, x: getattr(T, name)(x), dtype, name)


def test_where_cat_stack_and_masked_fill():
    for a, b in itertools.product(DTYPES, DTYPES):
        for T_pair in [lambda T, a=a, b=b: T.where(T.tensor([True, False, True, False]), operand(T, a), operand(T, b)),
                       lambda T, a=a, b=b: T.cat([operand(T, a), operand(T, b)]),
                       lambda T, a=a, b=b: T.stack([operand(T, a), operand(T, b)])]:
            same(T_pair(genesis), T_pair(torch), where=f"{a} {b}")
    for a, scalar in itertools.product(DTYPES, SCALARS):
        run = lambda T, a=a, scalar=scalar: T.where(T.tensor([True, False, True, False]), operand(T, a), scalar)  # noqa: E731
        same(run(genesis), run(torch), where=f"{a} {scalar}")


def test_casts_between_all_dtypes():
    """Values in range of both, fractions and negative ones included."""
    for a, b in itertools.product(DTYPES, DTYPES):
        def run(T, a=a, b=b):
            x = T.tensor([0.0, 1.0, 2.5, 100.75, 3.999]) if b in ("uint8", "bool") or a == "uint8" else \
                T.tensor([0.0, -1.0, 2.5, -100.75, 3.999])
            return x.to(getattr(T, a)).to(getattr(T, b))
        same(run(genesis), run(torch), where=f"{a} to {b}")


@pytest.mark.parametrize("alpha", [0, 1, 2, True, False])
@pytest.mark.parametrize("dtype", ["bool", "int64"])
def test_a_scaled_sum_with_bools(dtype, alpha):
    def program(T):
        try:
            return T.add(T.tensor([True, False]), operand(T, dtype)[:2], alpha=alpha)
        except RuntimeError:
            return "error"
    ours, theirs = program(genesis), program(torch)
    if isinstance(theirs, str):
        assert isinstance(ours, str)
    else:
        same(ours, theirs)


def test_in_place_operations_keep_the_dtype_or_raise():
    for a, b, op in itertools.product(DTYPES, DTYPES, ["add_", "mul_", "div_", "copy_"]):
        def run(T, a=a, b=b, op=op):
            try:
                return getattr(operand(T, a).clone(), op)(operand(T, b))
            except RuntimeError:
                return "error"
        ours, theirs = run(genesis), run(torch)
        same(ours, theirs, rtol=one_step(theirs), where=f"{a} {op} {b}")


def test_default_dtype():
    def run(T):
        before = T.get_default_dtype()
        T.set_default_dtype(T.float64)
        try:
            drawn = T.rand(1).dtype == T.float64
            return T.tensor([1.5]), T.ones(2), T.tensor([1]) / 2, T.tensor([1]).exp(), T.ones(1).float() * 1.5, drawn
        finally:
            T.set_default_dtype(before)
    same(run(genesis), run(torch))


def test_integer_arithmetic_is_exact_and_wraps():
    def run(T):
        big = T.tensor([2**62, -2**62, 2**53 + 1])
        small = T.tensor([100, -100, 127], dtype=T.int8)
        a, b = T.tensor([7, -7, 7, -7]), T.tensor([2, 2, -2, -2])
        return (big + big, big * 3, big // 7, big % 1000, small + small, small * small, big.sum(), small.sum(),
                a // b, a % b,
                T.tensor([250], dtype=T.uint8) + 10, T.tensor([5]) ** 20, T.tensor([1, 2]) << 3, T.tensor([-9]) >> 1)
    same(run(genesis), run(torch))


def test_special_values():
    def run(T):
        x = T.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-45, 3.4e38])
        y = x.flip(0)
        return (x + y, x * y, x / y, T.maximum(x, y), T.minimum(x, y), x.sum(), x.max(), x.min(), x.argmax(), x.isnan(),
                x == y, x < y, x.clamp(-1, 1), 1 / x, x * 0, x.sign(), x.relu(), x.abs(), T.where(x > 0, x, -x),
                x % 2, x // 2, x.pow(2), x.pow(0), x.to(T.float16), x.softmax(0), x.round(), x.bool())
    same(run(genesis), run(torch))
