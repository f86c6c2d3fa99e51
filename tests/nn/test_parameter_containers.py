"""ParameterList and ParameterDict, beside torch's."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch

import genesis


def made(lib: Any) -> tuple[Any, Any]:
    row = lib.nn.ParameterList([lib.ones(2), lib.nn.Parameter(lib.zeros(3))])
    row.append(lib.full((1,), 5.0))
    row += [lib.ones(4)]
    row[-1] = lib.zeros(4)
    table = lib.nn.ParameterDict({"a": lib.ones(2)})
    table["b"] = lib.zeros(3)
    table.update({"c": lib.ones(1)})
    del table["a"]
    return row, table


def test_they_hold_what_torchs_hold() -> None:
    (row, table), (like, other) = made(genesis), made(torch)
    assert len(row) == len(like) and len(table) == len(other) and list(table) == list(other)
    assert [x.tolist() for x in row] == [x.tolist() for x in like]
    assert [x.tolist() for x in row[1:3]] == [x.tolist() for x in like[1:3]]
    assert list(row.state_dict()) == list(like.state_dict()) and list(table.state_dict()) == list(other.state_dict())
    assert all(isinstance(x, genesis.nn.Parameter) and x.requires_grad for x in [*row, *table.values()])
    assert "b" in table and "a" not in table and table.get("a") is None and table.pop("b").tolist() == [0, 0, 0]
    table.clear()
    assert not list(table.parameters())


def test_gradients_reach_them() -> None:
    row = genesis.nn.ParameterList([genesis.ones(2)])
    (row[0] * 3).sum().backward()
    assert row[0].grad.tolist() == [3, 3]


def test_what_is_not_there_is_refused() -> None:
    for lib in (genesis, torch):
        row, table = made(lib)
        with pytest.raises(IndexError):
            row[7]
        with pytest.raises((KeyError, AttributeError)):
            table["a"]


def test_the_order_of_parameters_is_torchs() -> None:
    """An optimizer numbers its state by it. A plain dictionary is sorted, an ordered one and pairs are not."""
    def orders(lib: Any) -> list[list[str]]:
        def table(names: str) -> Any:
            return lib.nn.ParameterDict({name: lib.ones(1) for name in names})
        first, second = table("cab"), lib.nn.ParameterDict([("z", lib.ones(1)), ("y", lib.ones(1))])
        ordered = lib.nn.ParameterDict(OrderedDict(x=lib.ones(1), w=lib.ones(1)))
        first.update({"e": lib.ones(1), "d": lib.ones(1)})
        joined = first | second
        joined |= ordered
        return [list(x) for x in (first, second, ordered, joined, lib.nn.ParameterDict(joined), reversed(second))] + [
            [name for name, _ in joined.named_parameters()], list(joined.state_dict()), list(joined.copy())]
    assert orders(genesis) == orders(torch)
