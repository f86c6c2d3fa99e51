"""Convolutions beside torch's: functions with every option, layers with torch's weights."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn as tnn
from torch_peer import array_of, both, check_module, check_result, numbers

import genesis
import genesis.nn.functional as F
from genesis import nn

SIZES = {1: (11,), 2: (9, 8), 3: (5, 6, 4)}
OPTIONS = [{}, {"stride": 2, "padding": 1}, {"padding": "same"}, {"padding": "valid", "dilation": 2},
           {"padding": "same", "dilation": 2}, {"groups": 2, "padding": 1}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("n, taps, batch", [*itertools.product([1, 2, 3], [3, 2], [(2,), ()])])
def test_convolutions(n, taps, batch, options) -> None:  # type: ignore[no-untyped-def]
    if options.get("dilation") and n == 3:
        options = {**options, "dilation": (1, 2, 1)}
    x, tx = both(numbers(*batch, 4, *SIZES[n]), grad=True)
    weight, tweight = both(numbers(6, 4 // options.get("groups", 1), *[taps] * n, seed=1), grad=True)
    bias, tbias = both(numbers(6, seed=2), grad=True)
    name = f"conv{n}d"
    check_result(getattr(F, name)(x, weight, bias, **options), getattr(TF, name)(tx, tweight, tbias, **options),
                 [(x, tx), (weight, tweight), (bias, tbias)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [
    {}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "padding": 1}, {"dilation": 2, "stride": 3},
    {"dilation": 3, "output_padding": 2}], ids=str)
@pytest.mark.parametrize("n, batch", [(1, (2,)), (1, ()), (2, (2,)), (2, ()), (3, (1,))])
def test_transposed_convolutions(n, batch, options) -> None:  # type: ignore[no-untyped-def]
    x, tx = both(numbers(*batch, 4, *SIZES[n]), grad=True)
    weight, tweight = both(numbers(4, 6 // options.get("groups", 1), *[3] * n, seed=1), grad=True)
    bias, tbias = both(numbers(6, seed=2), grad=True)
    name = f"conv_transpose{n}d"
    check_result(getattr(F, name)(x, weight, bias, **options), getattr(TF, name)(tx, tweight, tbias, **options),
                 [(x, tx), (weight, tweight), (bias, tbias)], rtol=1e-4, atol=1e-4)


def test_images_without_channels() -> None:
    """Sums of nothing are 0, so the bias is left. (torch makes images without channels of them.)"""
    x, weight, bias = genesis.ones(3, 0, 4), genesis.ones(2, 0, 2, requires_grad=True), genesis.tensor([1.0, -2.0])
    y = F.conv1d(x, weight, bias)
    np.testing.assert_array_equal(array_of(y), np.tile(np.array([[1], [-2]], np.float32), (3, 1, 3)))
    y.sum().backward()
    assert weight.grad.shape == (2, 0, 2)


def test_the_gradient_of_a_gradient() -> None:
    x, tx = both(numbers(2, 2, 6, 6), grad=True)
    weight, tweight = both(numbers(4, 1, 3, 3, seed=1), grad=True)
    first = genesis.autograd.grad((F.conv2d(x, weight, groups=2, stride=2) ** 2).sum(), [x, weight], create_graph=True)
    tfirst = torch.autograd.grad((TF.conv2d(tx, tweight, groups=2, stride=2) ** 2).sum(), [tx, tweight],
                                 create_graph=True)
    sum((g * g).sum() for g in first).backward()  # type: ignore[union-attr]
    sum((g * g).sum() for g in tfirst).backward()  # type: ignore[union-attr]
    for ours, theirs in ((x, tx), (weight, tweight)):
        np.testing.assert_allclose(array_of(ours.grad), array_of(theirs.grad), rtol=1e-3, atol=1e-2)


def test_integers_convolve_exactly() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (2, 3, 6, 5))
    weight = np.random.default_rng(1).integers(-9, 9, (4, 3, 3, 2))
    ours, theirs = (f(*args, padding=1) for f, args in (
        (F.conv2d, [genesis.tensor(a) for a in (x, weight)]), (TF.conv2d, [torch.tensor(a) for a in (x, weight)])))
    assert np.array_equal(array_of(ours), array_of(theirs))


LAYERS = {
    "conv1d": (lambda m: m.Conv1d(4, 6, 3), (2, 4, 9)),
    "conv1d same": (lambda m: m.Conv1d(4, 6, 4, padding="same", bias=False), (2, 4, 9)),
    "conv2d": (lambda m: m.Conv2d(3, 4, (3, 2), stride=(1, 2), padding=(1, 0)), (2, 3, 8, 7)),
    "conv2d groups": (lambda m: m.Conv2d(4, 8, 3, groups=4, dilation=2, bias=False), (2, 4, 8, 8)),
    "conv2d reflect": (lambda m: m.Conv2d(2, 3, 3, padding=2, padding_mode="reflect"), (2, 2, 6, 5)),
    "conv2d circular same": (lambda m: m.Conv2d(2, 3, 4, padding="same", padding_mode="circular"), (2, 2, 6, 5)),
    "conv2d replicate": (lambda m: m.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="replicate"), (2, 6, 5)),
    "conv3d": (lambda m: m.Conv3d(2, 3, 3, padding=1), (1, 2, 4, 5, 3)),
    "transposed 1d": (lambda m: m.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 5)),
    "transposed 2d": (lambda m: m.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2), (2, 4, 5, 4)),
    "transposed 3d": (lambda m: m.ConvTranspose3d(2, 3, 2, stride=2, bias=False), (1, 2, 3, 2, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str) -> None:
    make, shape = LAYERS[name]
    check_module(make(nn), make(tnn), numbers(*shape), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_prints_as_torchs(name: str) -> None:
    make, _ = LAYERS[name]
    assert repr(make(nn)) == repr(make(tnn))


def test_a_transposed_layer_takes_the_size_of_its_result() -> None:
    ours, theirs = nn.ConvTranspose2d(2, 3, 3, stride=2), tnn.ConvTranspose2d(2, 3, 3, stride=2)
    assert ours(genesis.ones(1, 2, 4, 4), output_size=(10, 9)).shape == theirs(torch.ones(1, 2, 4, 4), (10, 9)).shape
    with pytest.raises(ValueError, match="between 9 and 10"):
        ours(genesis.ones(1, 2, 4, 4), output_size=(11, 9))


def test_initial_values_are_as_wide_as_torchs() -> None:
    layer = nn.Conv2d(16, 64, 5)
    for parameter in layer.parameters():
        values = array_of(parameter)
        assert np.abs(values).max() <= 1 / 20 and np.abs(values).max() > 0.9 / 20  # 1 / √(16·5·5)


@pytest.mark.parametrize("call, error, message", [
    (lambda: F.conv2d(genesis.ones(1, 3, 4, 4), genesis.ones(2, 4, 3, 3)), RuntimeError, "to have 4 channels"),
    (lambda: F.conv2d(genesis.ones(3, 4), genesis.ones(2, 3, 3, 3)), RuntimeError, "Expected 3D"),
    (lambda: F.conv1d(genesis.ones(1, 3, 4), genesis.ones(2, 3, 5)), RuntimeError, "Kernel size"),
    (lambda: F.conv1d(genesis.ones(1, 3, 4), genesis.ones(2, 3, 3), stride=0), RuntimeError, "non-positive stride"),
    (lambda: F.conv1d(genesis.ones(1, 3, 4), genesis.ones(2, 3, 3).double()), RuntimeError, "should be the same"),
    (lambda: F.conv1d(genesis.ones(1, 3, 4), genesis.ones(2, 3, 3), genesis.ones(3)), RuntimeError, "bias"),
    (lambda: F.conv1d(genesis.ones(1, 3, 4), genesis.ones(2, 3, 3), padding="full"), RuntimeError, "Invalid padding"),
    (lambda: F.conv1d(genesis.ones(1, 3, 4), genesis.ones(2, 3, 3), None, 2, "same"), RuntimeError, "strided"),
    (lambda: F.conv_transpose1d(genesis.ones(1, 3, 4), genesis.ones(3, 3, 3), output_padding=1), RuntimeError,
     "output padding must be smaller"),
    (lambda: F.conv_transpose1d(genesis.ones(1, 3, 4), genesis.ones(2, 3, 3)), RuntimeError, "to have 2 channels"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "divisible by groups"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), ValueError, "padding_mode"),
])
def test_errors(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()
