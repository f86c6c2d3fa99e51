"""Pointwise functions and reductions beside torch where its samples do not look: ties, names, operators, refusals."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import torch

import genesis

TIED = [[-1.0, 0.0, 1.0, 2.0, 1.0], [1.0, 0.0, 1.0, -2.0, float("nan")]]

TIES = {
    "maximum": lambda T, x, y: T.maximum(x, y), "minimum": lambda T, x, y: T.minimum(x, y),
    "fmax": lambda T, x, y: T.fmax(x, y), "fmin": lambda T, x, y: T.fmin(x, y),
    "clamp": lambda T, x, y: T.clamp(x, 0, 1), "clamp_min": lambda T, x, y: T.clamp(x, min=1),
    "clamp_max": lambda T, x, y: T.clamp(x, max=1), "clamp by tensors": lambda T, x, y: T.clamp(x, y, y + 1),
    "crossed bounds": lambda T, x, y: T.clamp(x, y + 1, y), "abs": lambda T, x, y: x.abs(),
    "sign": lambda T, x, y: x.sign() * y, "relu": lambda T, x, y: T.relu(x), "hypot": lambda T, x, y: T.hypot(x, y),
    "sinc": lambda T, x, y: T.sinc(x), "xlogy": lambda T, x, y: T.xlogy(x, y), "copysign": lambda T, x, y: T.copysign(
        x, y), "norm": lambda T, x, y: (x * 0).norm() + T.norm(x[:2], 3), "norm inf": lambda T, x, y: x.norm(
            float("inf")), "std": lambda T, x, y: T.std(x * 0 + 1), "amax": lambda T, x, y: x[:4].amax(),
    "nan_to_num": lambda T, x, y: T.nan_to_num(y, 2.0) * x, "lerp": lambda T, x, y: T.lerp(x, y, 0.5),
    "i0": lambda T, x, y: T.i0(x), "logit": lambda T, x, y: T.logit(x, 0.25), "atan2": lambda T, x, y: T.atan2(x, y),
}


@pytest.mark.parametrize("name", TIES)
def test_gradients_where_elements_tie(name):
    """On bounds, at kinks and for NaN: torch's choice of subgradient."""
    found = []
    for T in (genesis, torch):
        x, y = (T.tensor(row, dtype=T.float64, requires_grad=True) for row in TIED)
        result = TIES[name](T, x, y)
        (result * T.tensor(np.arange(1.0, 1.0 + max(result.numel(), 1))[:result.numel()]).reshape(
            result.shape)).sum().backward()
        found.append([np.zeros(5) if v.grad is None else v.grad.numpy() for v in (x, y)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12, err_msg=name)


OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
             operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
BITS = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod, operator.iand, operator.ior,
            operator.ixor, operator.ilshift, operator.irshift)


@pytest.mark.parametrize("apply", [*OPERATORS, *BITS], ids=lambda f: f.__name__)
def test_operators_and_their_reflected_forms(apply):
    for values in ([5, 3, 2], *(([5.5, 3.0, 2.25],) if apply in OPERATORS else ())):
        for left, right in (("x", 2), (2, "x"), ("x", "x")):
            ours, theirs = (apply(*(T.tensor(values) if v == "x" else v for v in (left, right)))
                            for T in (genesis, torch))
            assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("apply", IN_PLACE, ids=lambda f: f.__name__)
def test_in_place_operators(apply):
    ours, theirs = (apply(T.tensor([5, 3, 2]), 2) for T in (genesis, torch))
    assert ours.tolist() == theirs.tolist()


def test_unary_operators_and_divmod():
    x = genesis.tensor([-7, 7])
    assert (-x).tolist() == [7, -7] and (+x) is x and abs(x).tolist() == [7, 7] and (~x).tolist() == [6, -8]
    assert [part.tolist() for part in divmod(x, 2)] == [[-4, 3], [1, 1]]
    assert [part.tolist() for part in divmod(9, genesis.tensor([2, -2]))] == [[4, -5], [1, -1]]


REDUCTIONS = ("sum", "nansum", "prod", "mean", "nanmean", "amax", "amin", "any", "all", "logsumexp", "var", "std",
              "argmax", "argmin", "norm")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_numpys_names_for_the_dimension(name):
    x = genesis.tensor(np.random.default_rng(0).standard_normal((3, 4)))
    function, method = getattr(genesis, name), getattr(x, name)
    wanted = function(x, dim=1, keepdim=True).tolist()
    assert function(x, axis=1, keepdims=True).tolist() == wanted == method(axis=1, keepdims=True).tolist()


REFUSED = {
    "abs of nothing": (lambda x, i, b: genesis.maximum(x, 2), TypeError, "expected two tensors"),
    "number first": (lambda x, i, b: genesis.eq(2, x), TypeError, "the first operand must be a tensor"),
    "two numbers": (lambda x, i, b: genesis.add(1, 2), TypeError, "the first operand must be a tensor"),
    "shapes": (lambda x, i, b: x + genesis.ones(2), RuntimeError, "do not broadcast"),
    "bool minus": (lambda x, i, b: b - b, RuntimeError, "subtraction with bool tensors is not supported"),
    "plus of bool": (lambda x, i, b: +b, RuntimeError, "on a bool tensor is not supported"),
    "alpha": (lambda x, i, b: genesis.add(i, i, alpha=1.5), RuntimeError, "argument alpha must be an integer"),
    "rounding mode": (lambda x, i, b: genesis.div(x, x, rounding_mode="up"), RuntimeError, "expected rounding_mode"),
    "negative power": (lambda x, i, b: i ** -1, RuntimeError, "negative integer powers are not allowed"),
    "no bounds": (lambda x, i, b: x.clamp(), RuntimeError, "At least one of 'min' or 'max'"),
    "gcd of floats": (lambda x, i, b: genesis.gcd(x, x), RuntimeError, "only for int"),
    "heaviside": (lambda x, i, b: genesis.heaviside(x, i), RuntimeError, "different dtypes"),
    "lerp": (lambda x, i, b: genesis.lerp(x, x.double(), 0.5), RuntimeError, "expected dtype"),
    "isclose": (lambda x, i, b: genesis.isclose(x, x, rtol=-1), RuntimeError, "rtol must be greater"),
    "polygamma": (lambda x, i, b: genesis.polygamma(-1, x), RuntimeError, "does not support negative n"),
    "mvlgamma": (lambda x, i, b: genesis.mvlgamma(x, 0), RuntimeError, "p has to be greater"),
    "addcdiv": (lambda x, i, b: genesis.addcdiv(i, i, i), RuntimeError, "Integer division with addcdiv"),
    "in place": (lambda x, i, b: i.exp_(), RuntimeError, "can't be cast to the desired output type"),
    "larger result": (lambda x, i, b: x[0].add_(genesis.ones(2, 3)), RuntimeError, "doesn't match the broadcast"),
    "float_power_": (lambda x, i, b: x.float_power_(2), RuntimeError, "cannot be written to"),
    "mean of integers": (lambda x, i, b: i.mean(), RuntimeError, "Input dtype must be floating point"),
    "var of integers": (lambda x, i, b: i.var(), RuntimeError, "only floating-point dtypes"),
    "norm of integers": (lambda x, i, b: i.norm(), RuntimeError, "expected a floating-point tensor"),
    "dimension": (lambda x, i, b: x.sum(5), IndexError, "Dimension out of range"),
    "dimension twice": (lambda x, i, b: x.sum((0, 0)), RuntimeError, "names a dimension twice"),
    "amax of nothing": (lambda x, i, b: x[:0].amax(), RuntimeError, "Expected reduction dim to be specified"),
    "argmax of nothing": (lambda x, i, b: x[:0].argmax(), IndexError, "Expected reduction dim to be specified"),
    "diff": (lambda x, i, b: genesis.diff(x, -1), RuntimeError, "order must be non-negative"),
    "trapezoid": (lambda x, i, b: genesis.trapezoid(b), RuntimeError, "bool is not supported"),
    "arange": (lambda x, i, b: genesis.arange(0, 3, 0), RuntimeError, "step must be nonzero"),
    "arange away": (lambda x, i, b: genesis.arange(0, 3, -1), RuntimeError, "inconsistent with step sign"),
    "linspace": (lambda x, i, b: genesis.linspace(0, 1, -1), RuntimeError, "number of steps must be non-negative"),
    "eye": (lambda x, i, b: genesis.eye(-1), RuntimeError, "n must be greater or equal to 0"),
    "meshgrid": (lambda x, i, b: genesis.meshgrid(x), RuntimeError, "expected scalar or 1D tensors"),
    "tril_indices": (lambda x, i, b: genesis.tril_indices(-1, 2), RuntimeError, "must be non-negative"),
    "asarray": (lambda x, i, b: genesis.asarray([1], copy=False), ValueError, "cannot be shared"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call(genesis.ones(2, 3), genesis.ones(2, 3, dtype=genesis.int64), genesis.ones(2, 3) > 0)
