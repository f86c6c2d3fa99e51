"""Samples that are rows of one memory are copied together, and others one by one: the batch is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import genesis
from genesis.utils.data import DataLoader, TensorDataset, collate, default_collate, random_split


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[genesis.Tensor]:
    """The samples that were copied one by one."""
    found: list[genesis.Tensor] = []
    before = collate._elements

    def elements(tensor: genesis.Tensor) -> Any:
        found.append(tensor)
        return before(tensor)
    monkeypatch.setattr(collate, "_elements", elements)
    return found


DTYPES = [genesis.float32, genesis.float64, genesis.bfloat16, genesis.int64, genesis.bool]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(12,), (12, 3), (12, 2, 3)])
def test_rows_in_any_order(copied: list[genesis.Tensor], dtype: genesis.DType, shape: tuple[int, ...]) -> None:
    x = (genesis.arange(12 * int(np.prod(shape[1:]))) % 5).reshape(shape).to(dtype)
    genesis.eval(x)
    order = [7, 0, 11, 7, 3]
    batch = default_collate([x[i] for i in order])
    assert batch.dtype is dtype and batch.shape == (5, *shape[1:])
    assert batch.tolist() == [x[i].tolist() for i in order] and not copied


def test_a_loader_over_a_part_of_a_dataset(copied: list[genesis.Tensor]) -> None:
    rows, labels = genesis.arange(40.0).reshape(20, 2), genesis.arange(20)
    genesis.eval(rows, labels)
    part, _ = random_split(TensorDataset(rows, labels), [15, 5])
    for x, y in DataLoader(part, batch_size=4, shuffle=True):
        assert x.tolist() == [[2.0 * i, 2.0 * i + 1] for i in y.tolist()]
    assert not copied


def test_a_batch_does_not_change_with_what_it_was_copied_of() -> None:
    x = genesis.zeros(6, 2)
    genesis.eval(x)
    batch = default_collate([x[4], x[1]])
    x.add_(1.0)
    assert batch.tolist() == [[0.0, 0.0]] * 2 and default_collate([x[4]]).tolist() == [[1.0, 1.0]]


OTHERS: dict[str, Callable[[genesis.Tensor], list[genesis.Tensor]]] = {
    "columns": lambda x: [x[:, 1], x[:, 0]],
    "rows of every second element": lambda x: [x[0, ::2], x[1, ::2]],
    "rows that begin between rows": lambda x: [x.view(-1)[1:5], x.view(-1)[4:8]],
    "repeated elements": lambda x: [x[0, :1].expand(4), x[1, :1].expand(4)],
    "two memories": lambda x: [x[0], genesis.ones(4)],
    "another order in memory": lambda x: [x.t()[0], x.t()[1]],
    "nothing": lambda x: [x[0, :0], x[1, :0]],
    "what is not computed yet": lambda x: list((x * 2.0).unbind()),
    "a part of the bytes": lambda x: [row.view(genesis.int32) for row in x.unbind()],
}


@pytest.mark.parametrize("name", OTHERS)
def test_samples_that_are_no_rows(name: str) -> None:
    x = genesis.arange(16.0).reshape(4, 4)
    genesis.eval(x)
    samples = OTHERS[name](x)
    wanted = [sample.tolist() for sample in samples]
    assert default_collate(samples).tolist() == wanted


def test_rows_of_unequal_lengths_are_refused() -> None:
    x = genesis.arange(16.0).reshape(4, 4)
    with pytest.raises(RuntimeError, match="different shapes"):
        default_collate([x[0], x[1, :2]])
