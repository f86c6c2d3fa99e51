"""Which functions take negative row numbers: those of torch's that do. For the others they are an error, not a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis

CALLS: list[tuple[str, Callable]] = [
    ("index_select", lambda L, x, i: x.index_select(0, i)),
    ("index_add", lambda L, x, i: x.index_add(0, i, L.ones(1, 3))),
    ("index_copy", lambda L, x, i: x.index_copy(0, i, L.ones(1, 3))),
    ("index_copy_", lambda L, x, i: x.index_copy_(0, i, L.ones(1, 3))),
    ("index_reduce", lambda L, x, i: x.index_reduce(0, i, L.ones(1, 3), "prod")),
    ("index_fill", lambda L, x, i: x.index_fill(0, i, 2.0)),
    ("index_put", lambda L, x, i: x.index_put((i,), L.ones(3))),
    ("gather", lambda L, x, i: x.gather(0, i[None])),
    ("scatter", lambda L, x, i: x.scatter(0, i[None], 2.0)),
    ("take", lambda L, x, i: x.take(i)),
    ("put", lambda L, x, i: x.put(i, L.ones(1))),
    ("embedding", lambda L, x, i: L.nn.functional.embedding(i, x)),
    ("x[i]", lambda L, x, i: x[i]),
]


def outcome(L: Any, call: Callable, value: int) -> Any:
    try:
        return call(L, L.arange(6.0).reshape(2, 3), L.tensor([value])).tolist()
    except (IndexError, RuntimeError):
        return "refused"


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
@pytest.mark.parametrize("compiled", [False, True])
def test_as_torch(name: str, call: Callable, compiled: bool) -> None:
    ours = genesis.compile(call) if compiled else call
    for value in (1, 0, 1, -1, -2, -7):
        assert outcome(genesis, ours, value) == outcome(torch, call, value)


@pytest.mark.parametrize("index", [[[0, 1]], 1])
def test_index_select_takes_a_vector(index: Any) -> None:
    def run(L: Any) -> Any:
        try:
            return L.arange(6.0).reshape(2, 3).index_select(0, L.tensor(index)).tolist()
        except IndexError as error:
            return str(error).partition("\n")[0].rpartition(": ")[2].partition(",")[0].removeprefix("index_select(): ")
    assert run(genesis) == run(torch)
