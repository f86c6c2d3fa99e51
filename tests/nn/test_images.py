"""Folding, resampling and shuffling beside torch's; padding layers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn as tnn
from torch_peer import assert_same, both, check_module, check_result, numbers

import genesis
import genesis.nn.functional as F
from genesis import nn

WINDOWS: list[dict[str, Any]] = [
    {"kernel_size": 2}, {"kernel_size": (2, 3), "stride": 2}, {"kernel_size": 3, "padding": 1, "stride": (2, 1)},
    {"kernel_size": 2, "dilation": (2, 3), "padding": (1, 2)}]


@pytest.mark.parametrize("batch, options", [*itertools.product([(2,), ()], WINDOWS)], ids=str)
def test_unfold_and_fold(batch: tuple[int, ...], options: dict[str, Any]) -> None:
    x, tx = both(numbers(*batch, 3, 7, 8), grad=True)
    columns = TF.unfold(tx, **options)
    check_result(F.unfold(x, **options), columns, [(x, tx)])
    x, tx = both(numbers(*columns.shape, seed=1), grad=True)
    check_result(F.fold(x, (7, 8), **options), TF.fold(tx, (7, 8), **options), [(x, tx)])


SIZES = {1: (7,), 2: (5, 6), 3: (3, 4, 5)}
HOW: list[tuple[int, str, dict[str, Any]]] = [
    (n, mode, {**size, **corners})
    for n, mode in [*itertools.product([1, 2, 3], ["nearest", "nearest-exact", "area"]), (1, "linear"), (2, "bilinear"),
                    (3, "trilinear"), (2, "bicubic")]
    for size in ({"size": 9}, {"size": 2}, {"scale_factor": 2}, {"scale_factor": 1.7},
                 {"scale_factor": 0.6, "recompute_scale_factor": True})
    for corners in ([{}, {"align_corners": True}] if "linear" in mode or mode == "bicubic" else [{}])]


@pytest.mark.parametrize("n, mode, options", HOW, ids=str)
def test_interpolate(n: int, mode: str, options: dict[str, Any]) -> None:
    x, tx = both(numbers(2, 3, *SIZES[n]), grad=True)
    check_result(F.interpolate(x, mode=mode, **options), TF.interpolate(tx, mode=mode, **options), [(x, tx)], rtol=1e-4,
                 atol=1e-5)


def test_interpolate_sizes_and_factors_of_each_dimension() -> None:
    x, tx = both(numbers(1, 2, 5, 6), grad=True)
    for options in ({"size": (3, 11)}, {"scale_factor": (2.0, 0.5)}):
        check_result(F.interpolate(x, mode="bilinear", **options), TF.interpolate(tx, mode="bilinear", **options), [])
    assert_same(F.upsample(x, scale_factor=2), TF.interpolate(tx, scale_factor=2))


def test_the_gradient_of_a_gradient() -> None:
    x, tx = both(numbers(1, 2, 4, 5), grad=True)
    g, = genesis.autograd.grad((F.interpolate(x, size=7, mode="bicubic") ** 3).sum(), [x], create_graph=True)
    tg, = torch.autograd.grad((TF.interpolate(tx, size=7, mode="bicubic") ** 3).sum(), [tx], create_graph=True)
    check_result(g, tg, [(x, tx)], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape, name, factor", [
    ((2, 12, 3, 4), "pixel_shuffle", 2), ((18, 2, 2), "pixel_shuffle", 3), ((2, 3, 6, 4), "pixel_unshuffle", 2),
    ((2, 2, 3, 9, 6), "pixel_unshuffle", 3), ((2, 12, 3, 4), "channel_shuffle", 3)])
def test_shuffles(shape: tuple[int, ...], name: str, factor: int) -> None:
    x, tx = both(numbers(*shape), grad=True)
    torch_function = getattr(TF, name) if hasattr(TF, name) else getattr(torch, name)
    check_result(getattr(F, name)(x, factor), torch_function(tx, factor), [(x, tx)])


@pytest.mark.parametrize("mode, padding", [*itertools.product(
    ["reflect", "replicate", "circular"], [(1, 2), (2, 0, 1, 1), (1, 2, 0, 1, 2, 1)])])
def test_borders(mode: str, padding: tuple[int, ...]) -> None:
    for rank in (len(padding) // 2 + 1, len(padding) // 2 + 2):
        x, tx = both(numbers(2, 3, 4, 5, 6)[(0,) * (5 - rank)], grad=True)
        check_result(F.pad(x, padding, mode), TF.pad(tx, padding, mode), [(x, tx)])


LAYERS = {
    "unfold": (lambda m: m.Unfold(2, padding=1), (1, 2, 4, 5)), "fold": (lambda m: m.Fold((4, 5), 2), (1, 8, 12)),
    "upsample": (lambda m: m.Upsample(scale_factor=(2, 3), mode="bilinear"), (1, 2, 4, 5)),
    "upsample size": (lambda m: m.Upsample(size=7), (1, 2, 4)),
    "upsample nearest": (lambda m: m.UpsamplingNearest2d(scale_factor=2), (1, 2, 4, 5)),
    "upsample bilinear": (lambda m: m.UpsamplingBilinear2d((7, 3)), (1, 2, 4, 5)),
    "pixel shuffle": (lambda m: m.PixelShuffle(2), (1, 8, 3, 4)),
    "pixel unshuffle": (lambda m: m.PixelUnshuffle(2), (1, 2, 4, 6)),
    "channel shuffle": (lambda m: m.ChannelShuffle(2), (1, 6, 4, 5)),
    "constant 1d": (lambda m: m.ConstantPad1d(2, 1.5), (2, 3, 4)),
    "constant 2d": (lambda m: m.ConstantPad2d((1, 2, 0, -1), -1.0), (2, 3, 4, 5)),
    "zero 2d": (lambda m: m.ZeroPad2d(1), (2, 3, 4, 5)), "zero 3d": (lambda m: m.ZeroPad3d(1), (1, 2, 3, 4, 5)),
    "reflection 1d": (lambda m: m.ReflectionPad1d((1, 2)), (2, 3, 4)),
    "reflection 2d": (lambda m: m.ReflectionPad2d(2), (2, 3, 4, 5)),
    "replication 2d": (lambda m: m.ReplicationPad2d((3, 0, 1, 2)), (2, 3, 4, 5)),
    "replication 3d": (lambda m: m.ReplicationPad3d(1), (1, 2, 3, 4, 5)),
    "circular 2d": (lambda m: m.CircularPad2d(2), (2, 3, 4, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str) -> None:
    make, shape = LAYERS[name]
    check_module(make(nn), make(tnn), numbers(*shape), rtol=1e-4, atol=1e-5)
    assert repr(make(nn)) == repr(make(tnn))


@pytest.mark.parametrize("call, error, message", [
    (lambda x: F.unfold(x, 5), RuntimeError, "at least one"),
    (lambda x: F.unfold(x, 0), RuntimeError, "greater than zero"),
    (lambda x: F.fold(x[0], (4, 4), 2), RuntimeError, "do not fit"),
    (lambda x: F.interpolate(x), ValueError, "either size or scale_factor"),
    (lambda x: F.interpolate(x, size=3, scale_factor=2), ValueError, "only one of"),
    (lambda x: F.interpolate(x, size=(3, 3, 3)), ValueError, "same number of spatial dimensions"),
    (lambda x: F.interpolate(x, size=3, mode="linear"), NotImplementedError, "needs 3D input"),
    (lambda x: F.interpolate(x, size=3, align_corners=True), ValueError, "align_corners option"),
    (lambda x: F.interpolate(x, size=0), RuntimeError, "greater than 0"),
    (lambda x: F.pixel_shuffle(x, 2), RuntimeError, "divisible by the square"),
    (lambda x: F.pixel_unshuffle(x, 3), RuntimeError, "divisible by downscale_factor"),
    (lambda x: F.pad(x, (4, 0), "reflect"), RuntimeError, "wider"),
    (lambda x: F.pad(x, (1, 1), "mirror"), NotImplementedError, "mirror"),
    (lambda x: F.pad(x, (1,)), RuntimeError, "divisible by 2"),
])
def test_errors(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call(genesis.tensor(np.ones((1, 3, 4, 4), np.float32)))
