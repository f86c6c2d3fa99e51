"""copy, deepcopy and pickle of tensors and parameters, as torch's."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import genesis
from genesis import nn


def pickled(x):
    return pickle.loads(pickle.dumps(x))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("again", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_tensor_comes_back(again, dtype):
    x = genesis.arange(6).view(2, 3).to(getattr(genesis, dtype))
    y = again(x)
    assert y.dtype is x.dtype and y.tolist() == x.tolist() and type(y) is genesis.Tensor
    y.zero_()
    assert x.tolist() != y.tolist()


@pytest.mark.parametrize("again", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_tensors_over_one_memory_stay_so(again):
    x = genesis.arange(12.0).view(3, 4)
    copies = again({"whole": x, "row": x[1], "columns": x.t()[1:]})
    copies["whole"].mul_(10)
    assert copies["row"].tolist() == [40, 50, 60, 70] and copies["columns"].tolist()[0] == [10, 50, 90]
    assert copies["columns"].stride() == x.t()[1:].stride() and copies["row"].storage_offset() == 4
    assert x.tolist()[0] == [0, 1, 2, 3]


@pytest.mark.parametrize("again", [pickled, copy.deepcopy, copy.copy], ids=["pickle", "deepcopy", "copy"])
def test_parameters_stay_parameters(again):
    weight = nn.Parameter(genesis.ones(2))
    weight.decay = 0.5
    other = again(weight)
    assert type(other) is nn.Parameter and other.requires_grad and other.is_leaf and other.decay == 0.5
    (other * 3).sum().backward()
    assert other.grad.tolist() == [3, 3] and weight.grad is None
    assert not again(nn.Parameter(genesis.ones(2), requires_grad=False)).requires_grad


def copied_model(L):
    """The gradients of a copied model, before and after a backward of its own, and of a tensor that it holds."""
    model = L.nn.Linear(2, 1, bias=False)
    model.held = L.ones(2, requires_grad=True)
    (model(L.ones(1, 2)).sum() + model.held.sum()).backward()
    other = copy.deepcopy(model)
    found = [other.weight.grad, other.held.grad.tolist(), copy.deepcopy(model.weight).grad]
    other(L.ones(1, 2)).sum().backward()
    return [*found, other.weight.grad.tolist(), model.weight.grad.tolist()]


def test_a_copied_model_has_no_gradients_yet():
    assert copied_model(genesis) == copied_model(torch)


def test_deepcopy_takes_the_gradient_along_and_pickle_leaves_it():
    x = genesis.ones(2, requires_grad=True)
    (x * x).sum().backward()
    copied = copy.deepcopy(x)
    assert copied.grad.tolist() == [2, 2] and copied.grad is not x.grad
    assert pickled(x).grad is None and pickled(x).requires_grad


def test_copy_shares_the_memory():
    x = genesis.ones(3)
    y = copy.copy(x)
    y.add_(1)
    assert y is not x and x.tolist() == [2, 2, 2]


def test_deepcopy_of_what_was_computed_is_refused():
    x = genesis.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"use detach\(\)\.clone\(\)"):
        copy.deepcopy(x * 2)
    assert pickled(x * 2).tolist() == [2, 2]


def test_a_module_is_copied_with_its_ties():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    twin = copy.deepcopy(model)
    assert twin[1].weight is twin[0].weight and twin[0].weight is not model[0].weight
    twin = pickled(model)
    assert twin[1].weight is twin[0].weight
    x = genesis.ones(1, 2)
    assert twin(x).tolist() == model(x).tolist()


def test_dtypes_devices_and_shapes_come_back_themselves():
    for thing in (genesis.float32, genesis.device("cpu"), genesis.ones(2, 3).shape):
        assert pickled(thing) == thing and copy.deepcopy(thing) == thing
    assert pickled(genesis.bfloat16) is genesis.bfloat16
