"""Tensors made of lists of tensors: of losses, rewards and values that a loop has computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("T", [genesis, torch], ids=["genesis", "torch"])
def test_lists_of_tensors_of_one_element_are_lists_of_numbers(T: Any) -> None:
    """Of whatever dimensions, beside numbers and in nested lists; their dtypes are promoted."""
    one, row = T.tensor(1.5, dtype=T.float64), T.tensor([[2.0]])
    for data, shape, dtype in (([one, one + 1], (2,), T.float64), ([row, row], (2,), T.float32),
                               ([row], (1,), T.float32), ([one, row, 3], (3,), T.float64), ([3, row], (2,), T.float32),
                               ([[row, one], [1, 2]], (2, 2), T.float64), (([one],), (1, 1), T.float64),
                               ([T.tensor(True), T.tensor(2, dtype=T.int8)], (2,), T.int8),
                               ([T.tensor(2, dtype=T.int32), True], (2,), T.int32)):
        made = T.tensor(data)
        assert tuple(made.shape) == shape and made.dtype == dtype, data
    assert T.tensor([one, row, 3]).tolist() == [1.5, 2.0, 3.0]
    x = T.ones(2, requires_grad=True)
    made = T.tensor([x.sum(), x.prod()], requires_grad=True)
    made.sum().backward()
    assert made.is_leaf and made.grad.tolist() == [1, 1] and x.grad is None
    x.data.fill_(7)
    assert made.tolist() == [2, 1]


def test_a_list_of_what_a_loop_computed_is_recorded_and_not_read() -> None:
    found = [genesis.ones(3).sum() * i for i in range(4)]
    made = genesis.tensor(found)
    assert all(x.storage.cell is None for x in found) and made.tolist() == [0, 3, 6, 9]
    step = genesis.compile(lambda x: genesis.tensor([x.sum(), x.max()]) * 2)
    assert [step(genesis.arange(3.0)).tolist() for _ in range(3)] == [[6, 4]] * 3 and step.hits
