"""Pools beside torch's: values, positions, gradients, layers, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn as tnn
from torch_peer import array_of, assert_same, both, check_module, check_result, numbers

import genesis
import genesis.nn.functional as F
from genesis import nn

SIZES = {1: (13,), 2: (9, 10), 3: (5, 7, 6)}
WINDOWS = [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
           {"kernel_size": 3, "stride": 2, "ceil_mode": True}, {"kernel_size": 2, "stride": 3, "ceil_mode": True}]


@pytest.mark.parametrize("n, batch, options", [*itertools.product(
    [1, 2, 3], [(2,), ()], [*WINDOWS, {"kernel_size": 3, "stride": 1, "dilation": 2, "padding": 1}])])
def test_max_pools(n, batch, options) -> None:  # type: ignore[no-untyped-def]
    x, tx = both(numbers(*batch, 3, *SIZES[n]), grad=True)
    name = f"max_pool{n}d"
    y, where = getattr(F, name)(x, return_indices=True, **options)
    ty, twhere = getattr(TF, name)(tx, return_indices=True, **options)
    assert np.array_equal(array_of(where), array_of(twhere))
    check_result(y, ty, [(x, tx)])
    assert_same(getattr(F, name)(x, **options), ty)


@pytest.mark.parametrize("n, batch, options", [*itertools.product(
    [1, 2, 3], [(2,), ()], [*WINDOWS, {"kernel_size": 3, "padding": 1, "count_include_pad": False},
                            {"kernel_size": 3, "padding": 1, "ceil_mode": True},
                            {"kernel_size": 2, "divisor_override": 3}])])
def test_average_pools(n, batch, options) -> None:  # type: ignore[no-untyped-def]
    if n == 1 and "divisor_override" in options:
        return
    x, tx = both(numbers(*batch, 3, *SIZES[n]), grad=True)
    check_result(getattr(F, f"avg_pool{n}d")(x, **options), getattr(TF, f"avg_pool{n}d")(tx, **options), [(x, tx)])


@pytest.mark.parametrize("n, power", [*itertools.product([1, 2, 3], [1, 2, 3.5])])
def test_norm_pools(n: int, power: float) -> None:
    x, tx = both(np.abs(numbers(2, 3, *SIZES[n])) + 0.1, grad=True)
    name = f"lp_pool{n}d"
    check_result(getattr(F, name)(x, power, 2, ceil_mode=True), getattr(TF, name)(tx, power, 2, ceil_mode=True),
                 [(x, tx)], rtol=1e-4)


@pytest.mark.parametrize("n, batch, size", [*itertools.product([1, 2, 3], [(2,), ()], [1, 3, 4, 15])])
def test_adaptive_pools(n: int, batch: tuple[int, ...], size: int) -> None:
    x, tx = both(numbers(*batch, 2, *SIZES[n]), grad=True)
    name = f"adaptive_avg_pool{n}d"
    check_result(getattr(F, name)(x, size), getattr(TF, name)(tx, size), [(x, tx)])
    x, tx = both(numbers(*batch, 2, *SIZES[n]), grad=True)
    name = f"adaptive_max_pool{n}d"
    y, where = getattr(F, name)(x, size, return_indices=True)
    ty, twhere = getattr(TF, name)(tx, size, return_indices=True)
    assert np.array_equal(array_of(where), array_of(twhere))
    check_result(y, ty, [(x, tx)])


@pytest.mark.parametrize("n", [1, 2])
def test_adaptive_means_of_no_channels(n: int) -> None:
    x, tx = both(np.zeros((2, 0, *[3] * n), np.float32))
    name = f"adaptive_avg_pool{n}d"
    assert_same(getattr(F, name)(x, 2), getattr(TF, name)(tx, 2))


def test_equal_elements_count_once() -> None:
    x, tx = both(np.zeros((1, 1, 4, 4), np.float32), grad=True)
    check_result(F.max_pool2d(x, 3, 1), TF.max_pool2d(tx, 3, 1), [(x, tx)])


def test_infinities_and_nan() -> None:
    values = np.full((1, 1, 6), -np.inf, np.float32)
    x, tx = both(values)
    for ours, theirs in zip(F.max_pool1d(x, 3, 1, 1, return_indices=True),
                            TF.max_pool1d(tx, 3, 1, 1, return_indices=True), strict=True):
        assert np.array_equal(array_of(ours), array_of(theirs))
    values[0, 0, 2] = np.nan
    x, tx = both(values)
    assert np.array_equal(array_of(F.max_pool1d(x, 2)), array_of(TF.max_pool1d(tx, 2)), equal_nan=True)


def test_the_gradient_of_a_gradient() -> None:
    for ours, theirs in ((F.max_pool2d, TF.max_pool2d), (F.avg_pool2d, TF.avg_pool2d)):
        x, tx = both(numbers(1, 2, 6, 6), grad=True)
        g, = genesis.autograd.grad((ours(x, 3, 2, 1) ** 3).sum(), [x], create_graph=True)
        tg, = torch.autograd.grad((theirs(tx, 3, 2, 1) ** 3).sum(), [tx], create_graph=True)
        check_result(g, tg, [(x, tx)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling(n: int) -> None:
    even = tuple(size // 2 * 2 for size in SIZES[n])
    x, tx = both(numbers(2, 3, *even), grad=True)
    pair, tpair = (getattr(f, f"max_pool{n}d")(v, 2, return_indices=True) for f, v in ((F, x), (TF, tx)))
    for size in (None, even):
        y = getattr(F, f"max_unpool{n}d")(*pair, 2, output_size=size)
        ty = getattr(TF, f"max_unpool{n}d")(*tpair, 2, output_size=size)
        assert_same(y, ty)
    check_result(y, ty, [(x, tx)])


LAYERS = {
    "max 1d": (lambda m: m.MaxPool1d(3, 2), (2, 3, 9)),
    "max 2d": (lambda m: m.MaxPool2d((3, 2), padding=(1, 0), ceil_mode=True), (2, 3, 9, 8)),
    "max 3d": (lambda m: m.MaxPool3d(2, 1, dilation=2), (1, 2, 5, 5, 5)),
    "avg 1d": (lambda m: m.AvgPool1d(3, 2, 1), (2, 3, 9)),
    "avg 2d": (lambda m: m.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 9, 8)),
    "avg 3d": (lambda m: m.AvgPool3d(2, divisor_override=5), (1, 2, 5, 5, 5)),
    "norm 1d": (lambda m: m.LPPool1d(1, 3), (2, 3, 9)),
    "norm 2d": (lambda m: m.LPPool2d(2, 3, 2), (2, 3, 9, 8)),
    "adaptive max 1d": (lambda m: m.AdaptiveMaxPool1d(4), (2, 3, 9)),
    "adaptive max 2d": (lambda m: m.AdaptiveMaxPool2d((4, None)), (2, 3, 9, 8)),
    "adaptive avg 2d": (lambda m: m.AdaptiveAvgPool2d(1), (2, 3, 9, 8)),
    "adaptive avg 3d": (lambda m: m.AdaptiveAvgPool3d((2, 3, None)), (1, 2, 5, 5, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str) -> None:
    make, shape = LAYERS[name]
    check_module(make(nn), make(tnn), numbers(*shape), rtol=1e-4)
    assert repr(make(nn)) == repr(make(tnn))


@pytest.mark.parametrize("call, error, message", [
    (lambda: F.max_pool2d(genesis.ones(1, 3, 4, 4), 5), RuntimeError, "too small"),
    (lambda: F.max_pool2d(genesis.ones(1, 3, 4, 4), 2, padding=2), RuntimeError, "at most half"),
    (lambda: F.max_pool2d(genesis.ones(1, 3, 4, 4), 2, stride=0), RuntimeError, "should not be zero"),
    (lambda: F.max_pool2d(genesis.ones(3, 4), 2), RuntimeError, "Expected 3D"),
    (lambda: F.max_pool2d(genesis.ones(1, 3, 4, 4), (2, 2, 2)), RuntimeError, "kernel_size must be one int or 2"),
    (lambda: F.avg_pool2d(genesis.ones(1, 3, 4, 4), 2, divisor_override=0), RuntimeError, "divisor"),
    (lambda: F.avg_pool1d(genesis.ones(1, 3, 4).bool(), 2), RuntimeError, "not defined for"),
    (lambda: F.adaptive_avg_pool2d(genesis.ones(1, 3, 4, 4), -1), RuntimeError, "greater than or equal to 0"),
    (lambda: F.adaptive_avg_pool2d(genesis.ones(4, 4), 2), ValueError, "at least 3"),
    (lambda: F.max_unpool1d(genesis.ones(1, 3, 4), genesis.zeros(1, 3, 4), 2), RuntimeError, "indices"),
])
def test_errors(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()
