"""`Tensor.type`: the name of a tensor's dtype and device, and the cast to another, as torch has them."""

from __future__ import annotations

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
