"""`Tensor.type`: the name of a tensor's dtype and device, and the cast to another, as torch has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import genesis

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


@pytest.mark.parametrize("name", DTYPES)
def test_a_cast_and_the_name_of_the_class(name: str) -> None:
    ours = genesis.tensor([0, 1, 2]).type(getattr(genesis, name))
    theirs = torch.tensor([0, 1, 2]).type(getattr(torch, name))
    assert ours.dtype is getattr(genesis, name) and ours.tolist() == theirs.tolist()
    assert ours.type() == theirs.type().replace("torch", "genesis")
    again = genesis.zeros(3).type(ours.type())
    assert again.dtype is ours.dtype


@pytest.mark.parametrize("given", [genesis.LongTensor, "genesis.LongTensor", "torch.LongTensor"])
def test_a_class_or_its_name(given: object) -> None:
    assert genesis.tensor([1.5, 2.5]).type(given).tolist() == [1, 2]


def test_gradients_go_through_a_cast() -> None:
    x = genesis.ones(2, requires_grad=True)
    x.type(genesis.float64).sum().backward()
    assert x.grad is not None and x.grad.dtype is genesis.float32 and x.grad.tolist() == [1, 1]
    assert x.type(genesis.float32) is x


@pytest.mark.parametrize("given", ["genesis.Tensor", 3, genesis.cpu])
def test_what_is_no_type(given: object) -> None:
    with pytest.raises((ValueError, TypeError), match="type"):
        genesis.ones(2).type(given)


def test_the_class_called_with_a_shape_or_a_tensor_is_torchs() -> None:
    for T in (genesis, torch):
        x = T.ones(2, 3)
        assert T.Tensor(x.size()).shape == (2, 3) and T.Tensor(x[0].shape).shape == (3,)
        assert T.Tensor(T.Size([])).shape == () and T.Tensor(np.int64(3)).shape == (3,)
        assert T.Tensor((2, 3)).tolist() == [2.0, 3.0] and T.Tensor([4]).tolist() == [4.0]
        leaf = T.ones(3, requires_grad=True)
        same = T.Tensor(leaf)
        (same * same).sum().backward()
        assert same.requires_grad and not same.is_leaf and leaf.grad.tolist() == [2.0, 2.0, 2.0]
        shared = T.Tensor(x)
        shared[0] = 5
        assert x[0].tolist() == [5.0, 5.0, 5.0] and T.Tensor(T.tensor([1, 2])).dtype == T.int64
