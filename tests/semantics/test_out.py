"""`out=`: a result goes into memory that others may look at, as an in-place write does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import genesis


def test_the_tensor_given_is_returned_and_every_view_of_it_sees_the_result():
    total = genesis.zeros(2, 3)
    column = total[:, 1]
    assert genesis.add(genesis.ones(2, 3), genesis.ones(2, 3), out=total) is total
    assert column.tolist() == [2, 2]
    genesis.mul(column, 3, out=total[:, 0])
    assert total.tolist() == [[6, 2, 2]] * 2


def test_an_operand_may_be_the_out():
    x = genesis.tensor([3.0, 1.0, 2.0])
    genesis.cumsum(x, 0, out=x)
    genesis.sub(x, 1, out=x)
    assert x.tolist() == [2, 3, 5]


def test_what_was_recorded_before_reads_the_old_content():
    x = genesis.tensor([1.0, 2.0])
    before = x * 10
    genesis.exp(genesis.zeros(2), out=x)
    assert before.tolist() == [10, 20] and x.tolist() == [1, 1]


def test_the_result_is_cast_to_the_dtype_of_out():
    for dtype, kind in ((genesis.float64, torch.float64), (genesis.float16, torch.float16)):
        out, like = genesis.zeros(3, dtype=dtype), torch.zeros(3, dtype=kind)
        genesis.add(genesis.tensor([1, 2, 3]), 1, out=out)
        torch.add(torch.tensor([1, 2, 3]), 1, out=like)
        assert out.tolist() == like.tolist() and out.dtype is dtype


def test_several_results_go_into_as_many_tensors():
    values, places = genesis.empty(3), genesis.empty(3, dtype=genesis.int64)
    found = genesis.sort(genesis.tensor([3.0, 1.0, 2.0]), out=(values, places))
    assert found.values is values and found.indices is places
    assert values.tolist() == [1, 2, 3] and places.tolist() == [1, 2, 0]
    top = genesis.topk(genesis.tensor([3.0, 1.0, 2.0]), 3, out=(values, places))
    assert top.values is values and values.tolist() == [3, 2, 1]
    with pytest.raises(TypeError, match="tuple of 2 tensors"):
        genesis.sort(genesis.ones(3), out=values)


def test_one_tensor_cannot_take_as_many_results_as_there_are_dimensions():
    with pytest.raises(RuntimeError, match="no out kwarg when as_tuple is True"):
        genesis.nonzero(genesis.ones(2, 2), as_tuple=True, out=genesis.empty(0, dtype=genesis.int64))


def test_a_created_tensor_takes_the_dtype_of_out():
    whole = genesis.empty(4, dtype=genesis.int32)
    assert genesis.arange(4, out=whole) is whole and whole.tolist() == [0, 1, 2, 3]
    genesis.full((4,), 7, out=whole)
    assert whole.tolist() == [7] * 4 and whole.dtype is genesis.int32
    assert genesis.linspace(0, 3, 4, out=whole).tolist() == torch.linspace(0, 3, 4, out=torch.empty(4).int()).tolist()
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        genesis.zeros(4, dtype=genesis.float32, out=whole)
    with pytest.raises(RuntimeError):
        torch.zeros(4, dtype=torch.float32, out=torch.empty(4).int())


def test_the_numbers_drawn_are_those_drawn_without_out():
    genesis.manual_seed(3)
    plain = genesis.rand(5)
    genesis.manual_seed(3)
    assert genesis.rand(5, out=genesis.empty(5)).tolist() == plain.tolist()


def test_an_empty_out_takes_the_shape_and_another_is_refused():
    out = genesis.empty(0)
    genesis.matmul(genesis.ones(2, 3), genesis.ones(3, 4), out=out)
    assert out.shape == (2, 4) and out.sum().item() == 24
    with pytest.raises(RuntimeError, match=r"shape \[2, 4\], but out has \[3\]"):
        genesis.matmul(genesis.ones(2, 3), genesis.ones(3, 4), out=genesis.ones(3))


def refusals():
    yield lambda lib, x, out: lib.add(x, 1, out=out[:1].expand(3)), "refers to a single memory location"
    yield lambda lib, x, out: lib.add(x, x, out=out.requires_grad_()), "automatic differentiation"
    yield lambda lib, x, out: lib.exp(x.requires_grad_(), out=out), "automatic differentiation"
    yield lambda lib, x, out: lib.add(x, 0.5, out=out.long()), "can't be cast to the desired output type"
    yield lambda lib, x, out: lib.add(x.long(), 1, out=out.bool()), "can't be cast to the desired output type"


@pytest.mark.parametrize("call, message", list(refusals()))
def test_what_torch_refuses_is_refused(call, message):
    for lib in (genesis, torch):
        with pytest.raises(RuntimeError, match=message):
            call(lib, lib.ones(3), lib.zeros(3))


@pytest.mark.parametrize("call", [
    lambda lib, x, out: lib.eq(x, 1, out=out.bool()),  # no gradient goes through a comparison
    lambda lib, x, out: lib.argmax(x, out=lib.zeros((), dtype=lib.int64)),
])
def test_a_result_without_gradient_may_be_written(call):
    found, wanted = (call(lib, lib.ones(3).requires_grad_(), lib.zeros(3)) for lib in (genesis, torch))
    assert found.tolist() == wanted.tolist()


def test_without_gradients_all_is_allowed():
    weight = genesis.ones(3, requires_grad=True)
    with genesis.no_grad():
        genesis.mul(weight, 0.5, out=weight)
    assert weight.tolist() == [0.5] * 3 and weight.requires_grad
    (weight * weight).sum().backward()
    assert weight.grad.tolist() == [1.0] * 3


def test_a_compiled_function_writes_at_each_call():
    out = genesis.zeros(3)

    @genesis.compile
    def step(x):
        return genesis.add(x, 1, out=out)

    for value in range(4):
        step(genesis.full((3,), float(value)))
        assert out.tolist() == [value + 1.0] * 3


def test_no_tensor_is_no_out():
    with pytest.raises(TypeError, match=r"expected a genesis tensor, not numpy\.ndarray"):
        genesis.add(genesis.ones(2), 1, out=np.zeros(2))


def test_torch_resizes_with_a_warning_where_this_is_an_error():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.add(torch.ones(2), 1, out=torch.ones(3))
    assert "resized" in str(said[0].message)
