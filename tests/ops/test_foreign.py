"""Operands of other libraries: numpy's scalars and arrays, what derives from Python's numbers, torch's tensors."""

from __future__ import annotations

import enum
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis

NUMPYS = [np.float64(2), np.float32(2), np.float16(2), np.int64(2), np.int8(2), np.uint8(2)]
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
          operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


class Whole(enum.IntEnum):
    TWO = 2


class Real(float, enum.Enum):
    HALF = 0.5


class Count(int):
    pass


DERIVED = [Whole.TWO, Real.HALF, Count(3)]


def same(ours: Any, theirs: Any) -> None:
    """Tensors of equal values and dtypes, and as much gradient."""
    assert type(ours) is genesis.Tensor and type(theirs) is torch.Tensor
    assert (str(ours.dtype).split(".")[1], ours.tolist()) == (str(theirs.dtype).split(".")[1], theirs.tolist())
    assert ours.requires_grad == theirs.requires_grad


@pytest.mark.parametrize("number", [*NUMPYS, *DERIVED], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("call", BINARY, ids=lambda x: x.__name__)
@pytest.mark.parametrize("wants_grad", [False, True])
def test_a_number_on_either_side(number: Any, call: Callable, wants_grad: bool) -> None:
    for data in ([1.0, 3.0], [1, 3]):
        if wants_grad and data == [1, 3]:
            continue
        ours, theirs = (library.tensor(data, requires_grad=wants_grad) for library in (genesis, torch))
        same(call(number, ours), call(number, theirs))
        same(call(ours, number), call(theirs, number))


def test_the_gradient_of_a_product_with_a_numpy_scalar() -> None:
    x = genesis.tensor([1.0, 2.0], requires_grad=True)
    (np.sqrt(2.0) * x).sum().backward()
    assert x.grad.tolist() == genesis.full((2,), 2**0.5).tolist()


def test_numpys_bool_is_a_bool() -> None:
    """torch takes it for a float, and so refuses `tensor & numpy.bool_`."""
    assert (genesis.tensor([1, 2]) * np.bool_(True)).dtype is genesis.int64
    assert (genesis.tensor([True]) & np.bool_(True)).tolist() == [True]


@pytest.mark.parametrize("number", [*NUMPYS, *DERIVED], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("call", [
    lambda L, x: L.full((2,), x),
    lambda L, x: L.full((2,), x, dtype=L.int64),
    lambda L, x: L.full_like(L.zeros(2), x),
    lambda L, x: L.zeros(2).new_full((2,), x),
    lambda L, x: L.zeros(2).fill_(x),
    lambda L, x: L.scalar_tensor(x),
    lambda L, x: L.tensor(x),
    lambda L, x: L.tensor([x, x]),
    lambda L, x: L.tensor([[x], [1]]),
    lambda L, x: L.arange(0, 4, x),
    lambda L, x: L.linspace(0, x, 3),
    lambda L, x: L.ones(2).add(L.ones(2), alpha=x),
    lambda L, x: L.ones(2).masked_fill(L.tensor([True, False]), x),
    lambda L, x: L.where(L.tensor([True, False]), L.ones(2), x),
    lambda L, x: L.ones(2).clamp(max=x),
    lambda L, x: L.ones(2).lerp(L.zeros(2), x),
])
def test_a_number_as_an_argument(number: Any, call: Callable) -> None:
    same(call(genesis, number), call(torch, number))


@pytest.mark.parametrize("number", [np.int64(3), np.uint8(3), Whole.TWO, Count(3)], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("call", [
    lambda L, x: L.eye(x),
    lambda L, x: L.eye(2, x),
    lambda L, x: L.ones(x, 2),
    lambda L, x: L.arange(6).roll(x),
    lambda L, x: L.arange(6).roll(x, 0),
    lambda L, x: L.arange(9)[x],
    lambda L, x: L.arange(6).repeat(x),
])
def test_a_whole_number_as_a_size(number: Any, call: Callable) -> None:
    same(call(genesis, number), call(torch, number))


@pytest.mark.parametrize("data", [[np.float32(3), 1.0], [np.float16(2), 1.0], [np.int8(2), 1], [np.float64(2), 1],
                                  [[np.int8(1)], [np.uint8(2)]], [[True], [np.int16(2)]], [np.zeros(2), [1, 2]]],
                         ids=str)
def test_the_dtype_of_a_list_with_numpys(data: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch finds lists of arrays slow
        same(genesis.tensor(data), torch.tensor(data))


@pytest.mark.parametrize("call", [np.sin, np.exp, np.negative, lambda x: np.add(x, x), lambda x: np.maximum(x, 1.5),
                                  lambda x: np.multiply(np.float64(2), x), lambda x: np.add.reduce(x),
                                  lambda x: x * np.array([1.0, 2.0]), lambda x: x + np.array(2.0),
                                  lambda x: x @ np.array([1.0, 2.0], np.float32)])
def test_numpys_functions_give_tensors(call: Callable) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's __array_wrap__ is of numpy 1
        same(call(genesis.tensor([1.0, 2.0])), call(torch.tensor([1.0, 2.0])))
    with pytest.raises(RuntimeError, match="requires grad"):
        call(genesis.ones(2, requires_grad=True))


def test_several_results_and_truth() -> None:
    whole, rest = np.divmod(genesis.tensor([3, 4]), 2)
    assert (whole.tolist(), rest.tolist()) == ([1, 2], [1, 0])
    assert np.isnan(genesis.tensor([float("nan"), 1.0])).dtype is genesis.bool


def test_what_numpy_makes_does_not_share_the_tensor() -> None:
    x = genesis.tensor([1.0, 2.0])
    np.abs(x).zero_()
    assert x.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("call", [np.asarray, np.array, np.stack, np.isnan])
def test_numpy_refuses_what_requires_grad(call: Callable) -> None:
    with pytest.raises(RuntimeError, match=r"requires grad(.|\n)*detach"):
        call(genesis.ones(2, requires_grad=True))


@pytest.mark.parametrize("array", [np.array([3.0, 4.0]), np.array([3, 4], np.int32), np.ones((2, 1)), np.array(2.0)])
def test_an_array_is_divided_by_a_tensor(array: np.ndarray) -> None:
    """The one operator of torch's that takes an array on its left: it is `tensor.reciprocal() * array`."""
    found, expected = array / genesis.tensor([1.0, 2.0]), array / torch.tensor([1.0, 2.0])
    assert found.tolist() == expected.tolist() and str(found.dtype)[8:] == str(expected.dtype)[6:]
    with pytest.raises(RuntimeError, match="requires grad"):
        array.reshape(-1) / genesis.ones(2, requires_grad=True)


@pytest.mark.parametrize("call", [op for op in BINARY if op not in (operator.eq, operator.ne, operator.truediv)]
                         + [operator.matmul])
def test_an_array_on_the_left_is_an_error(call: Callable) -> None:
    array = np.array([1.0, 2.0])
    for wants_grad in (False, True):
        with pytest.raises(TypeError, match=r"numpy\.ndarray"):
            call(array, genesis.ones(2, requires_grad=wants_grad))


def test_the_error_of_an_array_says_how_to_convert_it() -> None:
    array, x = np.ones(2), genesis.ones(2)
    for call in (lambda: array * x, lambda: genesis.mul(x, array), lambda: genesis.matmul(x, array)):
        with pytest.raises(TypeError, match=r"numpy.ndarray(.|\n)*genesis.from_numpy"):
            call()


def test_equality_with_an_array() -> None:
    x = genesis.tensor([1.0, 2.0], requires_grad=True)
    for result in (x == np.array([1.0, 3.0]), np.array([1.0, 3.0]) == x):
        assert result.tolist() == [True, False] and result.dtype is genesis.bool


def test_another_class_may_know_the_operator() -> None:
    class Unit:
        def __rmul__(self, other: Any) -> str:
            return "reflected"

        def __gt__(self, other: Any) -> str:
            return "greater"

    x = genesis.ones(2)
    assert x * Unit() == "reflected" and (x < Unit()) == "greater"
    with pytest.raises(TypeError, match=r"not .*Unit"):
        x + Unit()
    assert genesis.tensor(2) * ["a"] == ["a", "a"]


@pytest.mark.parametrize("call", [*BINARY, operator.matmul, genesis.add, genesis.matmul, genesis.mul])
def test_a_torch_tensor_says_so(call: Callable) -> None:
    ours, theirs = genesis.ones(2), torch.ones(2)
    for operands in ((ours, theirs), (theirs, ours)):
        with pytest.raises(TypeError, match=r"torch.Tensor(.|\n)*genesis.from_dlpack"):
            call(*operands)


@pytest.mark.parametrize("dtype", [genesis.int32, genesis.uint8, genesis.int64, genesis.float32, genesis.bool], ids=str)
@pytest.mark.parametrize("alpha", [2, -1, 0])
def test_alpha_is_of_the_results_dtype(dtype: Any, alpha: int) -> None:
    theirs = getattr(torch, str(dtype).split(".")[1])
    for other in ([True, False], True):
        def sides(library: Any, kind: Any, other: Any = other) -> tuple[Any, Any]:
            return library.tensor([1, 0], dtype=kind), library.tensor(other) if isinstance(other, list) else other
        (a, b), (c, d) = sides(genesis, dtype), sides(torch, theirs)
        same(a.add(b, alpha=alpha), c.add(d, alpha=alpha))
        if isinstance(other, list):
            same(b.add(a, alpha=alpha), d.add(c, alpha=alpha))


def test_a_boolean_alpha_wants_a_boolean_result() -> None:
    for call in (lambda x: x.add(x, alpha=True), lambda x: x.add_(x, alpha=True), lambda x: x.sub(x, alpha=True)):
        for dtype in (genesis.float32, genesis.int64):
            with pytest.raises(RuntimeError, match="boolean alpha"):
                call(genesis.ones(2, dtype=dtype))


def test_a_tensor_says_how_often_a_sequence_is_repeated() -> None:
    """torch's tensors are no operand of a list: Python asks them for an index then."""
    three, words = genesis.tensor(3), ["a"]
    assert [0] * three == [0, 0, 0] and (1, 2) * three == (1, 2) * 3 and "-" * three == "---" and three * [0] == [0] * 3
    words *= three
    assert words == ["a", "a", "a"] and b"x" * three == b"xxx"
    with pytest.raises(TypeError, match="only integer tensors"):
        [0] * genesis.tensor(2.0)
    with pytest.raises(TypeError, match="not dict"):
        {} * three
    padded = genesis.compile(lambda lengths: [[7] * n for n in lengths])
    assert [padded(genesis.tensor(given)) for given in ([1, 2], [0, 3])] == [[[7], [7, 7]], [[], [7, 7, 7]]]
