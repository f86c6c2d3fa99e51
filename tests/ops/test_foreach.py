"""`_foreach_*`: each row of the tables beside torch's function."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis
from genesis.ops.foreach import BINARY, UNARY


def lists(T: Any) -> tuple[list[Any], list[Any]]:
    return ([T.tensor([0.25, 0.5]), T.tensor([[0.75]])], [T.tensor([0.5, 0.125]), T.tensor([[0.25]])])


def values(found: Any) -> list[Any]:
    return [x.flatten().tolist() for x in found]


def same(call: Any) -> None:
    """The call gives torch's values, and its form in place writes them."""
    theirs, ours = call(torch), call(genesis)
    assert ours is not None and [pytest.approx(x, rel=1e-6) for x in values(theirs)] == values(ours)


@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_of_one(name: str) -> None:
    same(lambda T: getattr(T, f"_foreach_{name}")(lists(T)[0]))
    if name != "clone":
        def written(T: Any) -> list[Any]:
            own = lists(T)[0]
            getattr(T, f"_foreach_{name}_")(own)
            return own
        same(written)


@pytest.mark.parametrize("other", ["list", "number", "numbers"])
@pytest.mark.parametrize("name", sorted(BINARY))
def test_functions_of_two(name: str, other: str) -> None:
    def call(T: Any) -> Any:
        a, b = lists(T)
        return getattr(T, f"_foreach_{name}")(a, {"list": b, "number": 0.5, "numbers": [0.5, 0.25]}[other])
    same(call)


def test_with_alpha_a_tensor_and_in_place() -> None:
    def call(T: Any) -> list[Any]:
        a, b = lists(T)
        T._foreach_add_(a, b, alpha=0.5)
        T._foreach_mul_(a, T.tensor(2.0))
        return a
    same(call)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
@pytest.mark.parametrize("value", [0.5, [0.5, 0.25]])
def test_functions_of_three(name: str, value: Any) -> None:
    def call(T: Any) -> Any:
        a, b = lists(T)
        return getattr(T, f"_foreach_{name}")(a, b, b, value)
    same(call)


def test_the_others() -> None:
    same(lambda T: T._foreach_lerp(*lists(T), 0.25))
    same(lambda T: T._foreach_norm(lists(T)[0]))
    same(lambda T: T._foreach_norm(lists(T)[0], ord=1))
    same(lambda T: T._foreach_max(lists(T)[0]))
    for T in (torch, genesis):
        a, b = lists(T)
        T._foreach_copy_(a, b)
        assert values(a) == values(b)
        T._foreach_zero_(a)
        assert values(a) == [[0.0, 0.0], [0.0]]


def test_lists_of_unequal_lengths_and_unknown_names_are_refused() -> None:
    with pytest.raises(RuntimeError, match="must have the same number of tensors"):
        genesis._foreach_add([genesis.ones(1)], [genesis.ones(1), genesis.ones(1)])  # type: ignore[attr-defined]
    assert not hasattr(genesis, "_foreach_nothing")
