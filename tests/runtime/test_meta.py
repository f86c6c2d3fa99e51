"""The "meta" device: shapes and dtypes, as torch's, and no memory for elements."""

from __future__ import annotations

import pytest
import torch

import genesis
from genesis import nn


def test_programs_have_shapes_and_dtypes() -> None:
    x = genesis.ones(10**7, 10**6, device="meta")  # 40 TB
    y = (x @ genesis.ones(10**6, 2, device="meta", dtype=genesis.float32)).softmax(-1).argmax(-1)
    expected = (torch.ones(10**7, 10**6, device="meta") @ torch.ones(10**6, 2, device="meta")).softmax(-1).argmax(-1)
    assert (tuple(y.shape), y.dtype.name, str(y.device)) == (tuple(expected.shape), "int64", str(expected.device))
    assert x.is_meta and not x.is_cpu and not genesis.ones(1).is_meta
    genesis.eval(x, y)
    assert repr(genesis.ones(2, device="meta")) == repr(torch.ones(2, device="meta")) == (
        "tensor(..., device='meta', size=(2,))")


def test_there_is_nothing_to_read() -> None:
    x = genesis.ones(2, device="meta") * 3
    for read in (x.tolist, lambda: x.sum().item(), x.cpu, x.numpy, lambda: bool(x.any()),
                 lambda: nn.Linear(2, 2, device="meta").to("cpu")):
        with pytest.raises((NotImplementedError, TypeError), match="meta"):
            read()
    with pytest.raises(RuntimeError, match="all tensors on one device, but found cpu and meta"):
        genesis.ones(2) + x


def test_a_module_is_made_there_trained_there_and_gets_memory() -> None:
    with genesis.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        inputs = genesis.randn(8, 3)
    assert genesis.get_default_device() == genesis.device("cpu")
    optimizer = genesis.optim.AdamW(model.parameters())
    model(inputs).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert model[0].weight.grad is not None and model[0].weight.grad.is_meta
    weight = model[0].weight
    model.to_empty(device="cpu")
    assert model[0].weight is weight and weight.is_cpu and str(model[1].running_mean.device) == "cpu"
    genesis.manual_seed(3)
    model[0].reset_parameters()
    genesis.manual_seed(3)
    assert weight.tolist() == nn.Linear(3, 4).weight.tolist()


def test_contexts_of_devices_nest_and_end_with_an_exception() -> None:
    with pytest.raises(ValueError, match="out"), genesis.device("meta"):
        with genesis.device("cpu"):
            assert genesis.ones(1).is_cpu
        assert genesis.ones(1).is_meta and genesis.ones(1, device="cpu").is_cpu
        raise ValueError("out")
    assert genesis.ones(1).is_cpu


def test_a_device_of_a_device_is_that_device() -> None:
    for name in ("cpu", "meta"):
        assert genesis.device(genesis.device(name)) is genesis.device(name)
