"""einsum of operands that are followed by the numbers of their dimensions, as torch takes it beside an equation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis

CASES: dict[str, tuple[list[tuple[tuple[int, ...], list[Any]]], list[Any] | None]] = {
    "a product": ([((2, 3), [0, 1]), ((3, 4), [1, 2])], [0, 2]),
    "the result's own": ([((2, 3), [5, 2])], None),
    "numbers beyond the letters of one case": ([((2, 3), [30, 4])], None),
    "any other dimensions": ([((2, 3, 4), [..., 0]), ((4, 2), [0, 1])], [..., 1]),
    "a trace": ([((3, 3), [51, 51])], []),
    "three operands": ([((2, 3), [0, 1]), ((3,), [1]), ((2,), [0])], [0]),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_stand_for_letters(name: str) -> None:
    parts, output = CASES[name]

    def call(T: Any) -> Any:
        given: list[Any] = []
        for shape, numbers in parts:
            given += [T.arange(float(torch.Size(shape).numel())).reshape(shape), numbers]
        return T.einsum(*given, *([] if output is None else [output])).tolist()
    assert call(genesis) == call(torch)


def test_a_number_out_of_range_is_told() -> None:
    for T in (genesis, torch):
        with pytest.raises(ValueError, match="valid range"):
            T.einsum(T.ones(2), [52])
