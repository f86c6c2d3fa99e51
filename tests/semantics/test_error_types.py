"""What torch refuses is refused with an error that the same `except` catches, and says what it is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis

REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "int of several": (lambda T: int(T.ones(2)), "one element"),
    "float of several": (lambda T: float(T.ones(2, 2)), "one element"),
    "an index of several": (lambda T: [1, 2][T.tensor([0, 1])], "single element|only integer tensors"),
    "item of several": (lambda T: T.ones(2).item(), "2 elements"),
    "a parameter of integers": (lambda T: T.nn.Parameter(T.tensor([1])), "floating point"),
    "gather beyond": (lambda T: T.ones(2).gather(0, T.tensor([5])).tolist(), "out of bounds"),
    "gather by floats": (lambda T: T.ones(2).gather(0, T.tensor([1.0])), "(?i)int"),
    "embedding of floats": (lambda T: T.nn.Embedding(3, 2)(T.tensor([0.5])), "(?i)int"),
    "a padding row beyond": (lambda T: T.nn.Embedding(3, 2, padding_idx=7), "within num_embeddings"),
    "a padding row beyond, of a function": (
        lambda T: T.nn.functional.embedding(T.tensor([0]), T.ones(3, 2), padding_idx=7), "within num_embeddings"),
    "keys and values of two lengths": (
        lambda T: T.nn.MultiheadAttention(4, 2)(T.ones(3, 1, 4), T.ones(2, 1, 4), T.ones(3, 1, 4)), "key.*value"),
    "keys and values of two lengths, of one example": (
        lambda T: T.nn.MultiheadAttention(4, 2)(T.ones(3, 4), T.ones(2, 4), T.ones(3, 4)), "key.*value"),
    "keys of another batch": (
        lambda T: T.nn.MultiheadAttention(4, 2)(T.ones(3, 2, 4), T.ones(3, 1, 4), T.ones(3, 1, 4)), ""),
    "& of floats": (lambda T: T.ones(2) & T.ones(2), "bitwise_and"),
    "<< of floats": (lambda T: T.ones(2) << 1, "shift"),
    "~ of floats": (lambda T: ~T.ones(2), "integer and Boolean"),
    "a tensor of None": (lambda T: T.tensor([None]), "infer|not all numbers"),
    "a tensor of rows of two lengths": (lambda T: T.tensor([[1, 2], [3]]), "length|inhomogeneous"),
    "a product of booleans": (
        lambda T: T.ones(2, 2, dtype=T.bool) @ T.ones(2, 2, dtype=T.bool), "not implemented for"),
    "a layer of booleans": (lambda T: T.nn.functional.linear(
        T.ones(2, 2, dtype=T.bool), T.ones(2, 2, dtype=T.bool)), "not implemented for"),
    "outer of a matrix": (lambda T: T.outer(T.ones(2, 2), T.ones(2)), "1-D"),
    "outer by a matrix": (lambda T: T.ones(2).outer(T.ones(2, 2)), "1-D"),
    "a class beyond": (lambda T: T.nn.functional.one_hot(T.tensor([5]), 3).tolist(), ""),
    "del of a row": (lambda T: T.ones(2).__delitem__(0), "deleting items"),
    "a text in a tensor": (lambda T: "a" in T.ones(2), "str"),
    "a list in a tensor": (lambda T: [1] in T.ones(2), "list"),
    "Tensor of a float": (lambda T: T.Tensor(3.5), "sequence"),
    "Tensor of a size and a float": (lambda T: T.Tensor(2, 3.5), ""),
    "a scheduler of no optimizer": (lambda T: T.optim.lr_scheduler.StepLR(3, 1), "not an Optimizer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_errors_are_of_torchs_types(name: str) -> None:
    call, said = REFUSED[name]
    with pytest.raises(Exception) as theirs:
        call(torch)
    kind = next(c for c in type(theirs.value).__mro__ if c.__module__ == "builtins")
    with pytest.raises(kind, match=said or None):
        call(genesis)


def test_what_stands_next_to_what_is_refused_is_not() -> None:
    for T in (genesis, torch):
        assert int(T.tensor([[3]])) == 3 and float(T.tensor([2])) == 2.0 and [1, 2][T.tensor([1])] == 2
        assert not T.nn.Parameter(T.tensor([1]), requires_grad=False).requires_grad
        assert 1 in T.ones(2) and 2.0 not in T.ones(2) and np.float32(1) in T.ones(2) and T.tensor(1) in T.ones(2)
        assert (~T.tensor([1])).tolist() == [-2] and (~T.tensor([True])).tolist() == [False]
