"""Batch, group, instance and local response norm beside torch's: values, gradients, running statistics."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn as tnn
from torch_peer import array_of, assert_same, both, check_module, check_result, copy_weights, numbers

import genesis
import genesis.nn.functional as F
from genesis import nn

SHAPES = [(6, 4), (3, 4, 5), (2, 4, 3, 5), (2, 4, 2, 3, 2)]


def parameters(count: int, channels: int = 4) -> list[tuple[Any, torch.Tensor]]:
    return [both(numbers(channels, seed=7 + i), grad=True) for i in range(count)]


@pytest.mark.parametrize("shape, affine", [*itertools.product(SHAPES, [0, 1, 2])])
def test_batch_norm_in_training(shape: tuple[int, ...], affine: int) -> None:
    x, tx = both(numbers(*shape), grad=True)
    pairs = parameters(affine)
    mean, tmean = both(numbers(4, seed=3))
    variance, tvariance = both(numbers(4, seed=4) ** 2)
    y = F.batch_norm(x, mean, variance, *(p for p, _ in pairs), training=True, momentum=0.3)
    ty = TF.batch_norm(tx, tmean, tvariance, *(p for _, p in pairs), training=True, momentum=0.3)
    check_result(y, ty, [(x, tx), *pairs], rtol=1e-4, atol=1e-5)
    assert_same(mean, tmean)
    assert_same(variance, tvariance)


@pytest.mark.parametrize("shape, affine", [*itertools.product(SHAPES, [0, 1, 2])])
def test_batch_norm_in_evaluation(shape: tuple[int, ...], affine: int) -> None:
    x, tx = both(numbers(*shape), grad=True)
    pairs = parameters(affine)
    mean, tmean = both(numbers(4, seed=3))
    variance, tvariance = both(numbers(4, seed=4) ** 2)
    check_result(F.batch_norm(x, mean, variance, *(p for p, _ in pairs)),
                 TF.batch_norm(tx, tmean, tvariance, *(p for _, p in pairs)), [(x, tx), *pairs], rtol=1e-4, atol=1e-5)


def test_a_bias_alone() -> None:
    x, tx = both(numbers(3, 4, 5), grad=True)
    (bias, tbias), = parameters(1)
    check_result(F.batch_norm(x, None, None, None, bias, training=True),
                 TF.batch_norm(tx, None, None, None, tbias, training=True), [(x, tx), (bias, tbias)], rtol=1e-4,
                 atol=1e-5)


@pytest.mark.parametrize("shape, groups, affine", [*itertools.product(SHAPES[1:], [1, 2, 4], [0, 1, 2])])
def test_group_norm(shape: tuple[int, ...], groups: int, affine: int) -> None:
    x, tx = both(numbers(*shape), grad=True)
    pairs = parameters(affine)
    check_result(F.group_norm(x, groups, *(p for p, _ in pairs)), TF.group_norm(tx, groups, *(p for _, p in pairs)),
                 [(x, tx), *pairs], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape, stats", [*itertools.product(SHAPES[1:], [True, False])])
def test_instance_norm(shape: tuple[int, ...], stats: bool) -> None:
    x, tx = both(numbers(*shape), grad=True)
    pairs = parameters(2)
    mean, tmean = both(numbers(4, seed=3))
    variance, tvariance = both(numbers(4, seed=4) ** 2)
    y = F.instance_norm(x, mean, variance, *(p for p, _ in pairs), use_input_stats=stats, momentum=0.2)
    ty = TF.instance_norm(tx, tmean, tvariance, *(p for _, p in pairs), use_input_stats=stats, momentum=0.2)
    check_result(y, ty, [(x, tx), *pairs], rtol=1e-4, atol=1e-5)
    assert_same(mean, tmean)
    assert_same(variance, tvariance)


@pytest.mark.parametrize("shape, size", [*itertools.product(SHAPES[1:], [1, 2, 3, 5])])
def test_local_response_norm(shape: tuple[int, ...], size: int) -> None:
    x, tx = both(numbers(*shape), grad=True)
    check_result(F.local_response_norm(x, size, 0.5), TF.local_response_norm(tx, size, 0.5), [(x, tx)], rtol=1e-4)


LAYERS = {
    "batch 1d": (lambda m: m.BatchNorm1d(4), (6, 4)),
    "batch 1d of sequences": (lambda m: m.BatchNorm1d(4, momentum=None), (3, 4, 5)),
    "batch 2d": (lambda m: m.BatchNorm2d(4, eps=1e-3, momentum=0.2), (2, 4, 3, 5)),
    "batch 2d without parameters": (lambda m: m.BatchNorm2d(4, affine=False), (2, 4, 3, 5)),
    "batch 2d without statistics": (lambda m: m.BatchNorm2d(4, track_running_stats=False), (2, 4, 3, 5)),
    "batch 3d": (lambda m: m.BatchNorm3d(4), (2, 4, 3, 2, 3)),
    "instance 1d": (lambda m: m.InstanceNorm1d(4), (2, 4, 7)),
    "instance 2d": (lambda m: m.InstanceNorm2d(4, affine=True, track_running_stats=True), (2, 4, 3, 5)),
    "instance 2d alone": (lambda m: m.InstanceNorm2d(4), (4, 3, 5)),
    "instance 3d": (lambda m: m.InstanceNorm3d(4), (2, 4, 3, 2, 3)),
    "group": (lambda m: m.GroupNorm(2, 4), (2, 4, 3, 5)),
    "group without parameters": (lambda m: m.GroupNorm(2, 4, affine=False), (2, 4, 3, 5)),
    "local response": (lambda m: m.LocalResponseNorm(2), (2, 4, 3, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str) -> None:
    make, shape = LAYERS[name]
    check_module(make(nn), make(tnn), numbers(*shape), rtol=1e-4, atol=1e-5)
    assert repr(make(nn)) == repr(make(tnn))
    assert list(make(nn).state_dict()) == list(make(tnn).state_dict())


@pytest.mark.parametrize("name", LAYERS)
def test_statistics_follow_and_are_used_in_evaluation(name: str) -> None:
    make, shape = LAYERS[name]
    ours, theirs = make(nn), make(tnn)
    copy_weights(ours, theirs)
    for step in range(3):
        x, tx = both(numbers(*shape, seed=step))
        ours(x), theirs(tx)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(array_of(ours.state_dict()[key]), value.numpy(), rtol=1e-5, atol=1e-6, err_msg=key)
    assert_same(ours.eval()(x), theirs.eval()(tx), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("call, error, message", [
    (lambda: F.batch_norm(genesis.ones(1, 3), None, None, training=True), ValueError, "more than 1 value per channel"),
    (lambda: F.batch_norm(genesis.ones(2, 3), None, None), RuntimeError, "running_mean and running_var"),
    (lambda: F.batch_norm(genesis.ones(2, 3), genesis.ones(2), genesis.ones(3)), RuntimeError, "should contain 3"),
    (lambda: F.group_norm(genesis.ones(2, 3, 4), 2), RuntimeError, "divisible by num_groups"),
    (lambda: F.instance_norm(genesis.ones(2, 3, 1)), ValueError, "more than 1 spatial element"),
    (lambda: F.local_response_norm(genesis.ones(2, 3), 2), ValueError, "3D or higher"),
    (lambda: nn.BatchNorm2d(3)(genesis.ones(2, 3, 4)), ValueError, "expected 4D input"),
    (lambda: nn.GroupNorm(2, 3), ValueError, "divisible"),
])
def test_errors(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()


def test_running_statistics_take_a_call_to_shrink_and_one_to_add() -> None:
    """Beside the norm itself, and the count of batches: no tensor is made of a mean or a variance."""
    layer = nn.BatchNorm1d(3)
    genesis.eval(layer.running_mean, layer.running_var, layer.num_batches_tracked)
    x = genesis.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]])
    genesis.eval(x)
    layer(x)
    layer.running_mean.tolist()
    labels = [step.label.split()[0] for step in genesis.engine.last_plan().plan.steps]
    assert sorted(name for name in labels if not name.startswith("batch_norm")) == [
        "add", "add_scaled", "add_scaled", "mul", "mul"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("momentum", [0.1, 1.0, 1, None])
def test_running_statistics_of_any_dtype_and_momentum(dtype: str, momentum: float | None) -> None:
    """An infinite statistic stays one, unless nothing of it is kept."""
    found = []
    for library in (torch, genesis):
        layer = library.nn.BatchNorm1d(2, momentum=momentum).to(getattr(library, dtype))
        with library.no_grad():
            layer.running_var[1] = float("inf")
        for batch in ([[1.0, 2.0], [3.0, -4.0], [5.0, 1.0]], [[0.5, 2.0], [2.0, 8.0], [1.0, 1.0]]):
            layer(library.tensor(batch, dtype=getattr(library, dtype)))
        found.append([layer.running_mean.float().tolist(), layer.running_var.float().tolist(),
                      layer.num_batches_tracked.item()])
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=2e-2 if dtype == "bfloat16" else 1e-6)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=2e-2 if dtype == "bfloat16" else 1e-6)
    assert found[1][2] == found[0][2]
