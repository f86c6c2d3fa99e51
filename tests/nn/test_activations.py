"""Every activation beside torch's: values, gradients at and around the kinks, in-place forms, layers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn as tnn
from torch_peer import array_of, assert_same, both, check_module, check_result, numbers

import genesis
import genesis.nn.functional as F
from genesis import nn

FUNCTIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("leaky_relu", ()), ("leaky_relu", (0.3,)), ("elu", ()), ("elu", (1.7,)), ("selu", ()), ("celu", ()),
    ("celu", (2.0,)),
    ("mish", ()), ("softplus", ()), ("softplus", (3.0, 2.0)), ("softsign", ()), ("tanhshrink", ()), ("softshrink", ()),
    ("softshrink", (1.0,)), ("hardshrink", ()), ("hardshrink", (1.0,)), ("hardsigmoid", ()), ("hardswish", ()),
    ("hardtanh", ()), ("hardtanh", (-2.0, 0.5)), ("relu6", ()), ("threshold", (1.0, -3.0)), ("logsigmoid", ()),
    ("relu", ()), ("silu", ()), ("gelu", ()), ("glu", ()), ("glu", (0,)), ("rrelu", ()), ("softmin", (1,)),
]
KINKS = np.array([[-6.0, -3.0, -2.0, -1.0, -0.5, -0.0], [0.0, 0.5, 1.0, 3.0, 6.0, 30.0]], np.float32)


@pytest.mark.parametrize("name, arguments", FUNCTIONS, ids=str)
@pytest.mark.parametrize("values", [numbers(6, 8) * 3, KINKS], ids=["anywhere", "kinks"])
def test_values_and_gradients(name: str, arguments: tuple[Any, ...], values: np.ndarray) -> None:
    x, tx = both(values, grad=True)
    check_result(getattr(F, name)(x, *arguments), getattr(TF, name)(tx, *arguments), [(x, tx)], rtol=2e-5)


@pytest.mark.parametrize("name, arguments", [f for f in FUNCTIONS if f[0] != "hardsigmoid"], ids=str)  # torch has none
def test_the_gradient_of_a_gradient(name: str, arguments: tuple[Any, ...]) -> None:
    x, tx = both(numbers(6, 8).astype(np.float64) * 3, grad=True)
    g, = genesis.autograd.grad((getattr(F, name)(x, *arguments) ** 3).sum(), [x], create_graph=True)
    tg, = torch.autograd.grad((getattr(TF, name)(tx, *arguments) ** 3).sum(), [tx], create_graph=True)
    check_result(g, tg, [(x, tx)], rtol=1e-6)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "selu", "celu", "mish", "hardsigmoid", "hardswish",
                                  "hardtanh", "relu6", "silu", "rrelu"])
def test_in_place(name: str) -> None:
    x, tx = both(numbers(3, 4))
    assert getattr(F, name)(x, inplace=True) is x
    getattr(TF, name)(tx, inplace=True)
    assert_same(x, tx)


@pytest.mark.parametrize("name, arguments", [("relu_", ()), ("leaky_relu_", ()), ("elu_", (2.0,)), ("selu_", ()),
                                             ("celu_", ()), ("hardtanh_", (-0.5, 0.5)), ("threshold_", (0.1, 9.0)),
                                             ("rrelu_", ())])
def test_in_place_by_name(name: str, arguments: tuple[Any, ...]) -> None:
    x, tx = both(numbers(3, 4))
    assert getattr(F, name)(x, *arguments) is x
    getattr(TF, name)(tx, *arguments)
    assert_same(x, tx)


@pytest.mark.parametrize("shape, count", [((3, 4), 4), ((3, 4, 5), 4), ((3, 4), 1), ((5,), 1), ((2, 3, 2, 2), 3)])
def test_prelu(shape: tuple[int, ...], count: int) -> None:
    x, tx = both(numbers(*shape), grad=True)
    weight, tweight = both(numbers(count, seed=1), grad=True)
    check_result(F.prelu(x, weight), TF.prelu(tx, tweight), [(x, tx), (weight, tweight)])
    assert_same(x.prelu(weight), tx.prelu(tweight))


@pytest.mark.parametrize("name, dtype", [*itertools.product(["relu6", "hardtanh", "threshold"], ["int64", "int8"])])
def test_integers(name: str, dtype: str) -> None:
    x, tx = both(np.arange(-9, 9).astype(dtype))
    arguments = (3, -7) if name == "threshold" else ()
    assert_same(getattr(F, name)(x, *arguments), getattr(TF, name)(tx, *arguments))


def test_nan_stays() -> None:
    x, tx = both(np.array([np.nan, np.inf, -np.inf], np.float32))
    for name, arguments in FUNCTIONS:
        if name not in ("glu", "softmin"):
            ours, theirs = array_of(getattr(F, name)(x, *arguments)), array_of(getattr(TF, name)(tx, *arguments))
            assert np.array_equal(ours, theirs, equal_nan=True), name


def test_a_random_slope_lies_between_its_bounds() -> None:
    genesis.manual_seed(0)
    x = genesis.full((1000,), -1.0)
    slopes = -array_of(F.rrelu(x, 0.2, 0.4, training=True))
    assert 0.2 <= slopes.min() < 0.21 and 0.39 < slopes.max() < 0.4


def test_gumbel_softmax_draws_classes_by_their_probability() -> None:
    genesis.manual_seed(0)
    chances = np.array([0.1, 0.2, 0.7], np.float32)
    logits = genesis.tensor(np.log(chances)).expand(20_000, 3)
    drawn = array_of(F.gumbel_softmax(logits, hard=True))
    assert np.array_equal(np.unique(np.round(drawn, 5)), [0, 1])
    assert np.abs(drawn.mean(0) - chances).max() < 0.015  # four standard deviations
    soft = array_of(F.gumbel_softmax(logits, tau=0.5))
    assert np.abs(soft.sum(-1) - 1).max() < 1e-5 and 0.1 < soft.std() < 0.5


def test_gumbel_softmax_passes_the_soft_gradient() -> None:
    x = genesis.tensor(numbers(5, 4), requires_grad=True)
    (F.gumbel_softmax(x, hard=True) * genesis.arange(4.0)).sum().backward()
    assert np.abs(array_of(x.grad)).max() > 0.01


LAYERS = {
    "leaky relu": (lambda m: m.LeakyReLU(0.2), (4, 6)), "elu": (lambda m: m.ELU(), (4, 6)),
    "selu": (lambda m: m.SELU(), (4, 6)), "celu": (lambda m: m.CELU(2.0), (4, 6)),
    "mish": (lambda m: m.Mish(), (4, 6)), "softplus": (lambda m: m.Softplus(2.0), (4, 6)),
    "softsign": (lambda m: m.Softsign(), (4, 6)), "tanhshrink": (lambda m: m.Tanhshrink(), (4, 6)),
    "softshrink": (lambda m: m.Softshrink(0.3), (4, 6)), "hardshrink": (lambda m: m.Hardshrink(), (4, 6)),
    "hardsigmoid": (lambda m: m.Hardsigmoid(), (4, 6)), "hardswish": (lambda m: m.Hardswish(), (4, 6)),
    "hardtanh": (lambda m: m.Hardtanh(-0.5, 0.7), (4, 6)), "relu6": (lambda m: m.ReLU6(), (4, 6)),
    "threshold": (lambda m: m.Threshold(0.1, 2.0), (4, 6)), "log sigmoid": (lambda m: m.LogSigmoid(), (4, 6)),
    "glu": (lambda m: m.GLU(1), (4, 6)), "prelu": (lambda m: m.PReLU(), (4, 6)),
    "prelu of channels": (lambda m: m.PReLU(6, 0.1), (4, 6, 2)), "log softmax": (lambda m: m.LogSoftmax(1), (4, 6)),
    "softmin": (lambda m: m.Softmin(0), (4, 6)), "softmax 2d": (lambda m: m.Softmax2d(), (2, 3, 4, 5)),
    "rrelu": (lambda m: m.RReLU().eval(), (4, 6)), "relu in place": (lambda m: m.ReLU(inplace=True), (4, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str) -> None:
    make, shape = LAYERS[name]
    if "in place" not in name:
        check_module(make(nn), make(tnn), numbers(*shape), rtol=1e-4)
    assert repr(make(nn)) == repr(make(tnn))


@pytest.mark.parametrize("call, error, message", [
    (lambda: F.glu(genesis.ones(3)), RuntimeError, "must be even"),
    (lambda: F.celu(genesis.ones(3), 0.0), RuntimeError, "alpha cannot be 0"),
    (lambda: F.softshrink(genesis.ones(3), -1.0), RuntimeError, "greater or equal to 0"),
    (lambda: F.hardtanh(genesis.ones(3), 2.0, 1.0), ValueError, "cannot be greater"),
    (lambda: F.prelu(genesis.ones(3, 4), genesis.ones(3)), RuntimeError, "Mismatch of parameter numbers"),
    (lambda: F.elu(genesis.ones(3).long()), RuntimeError, "not defined for"),
    (lambda: F.rrelu(genesis.ones(3), 0.3, 0.1), RuntimeError, "Lower bound"),
    (lambda: nn.Softmax2d()(genesis.ones(3)), ValueError, "3D or 4D"),
])
def test_errors(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()
