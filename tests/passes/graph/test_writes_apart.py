"""A small write whose memory is read on is made twice: in a copy for who reads it, and alone, as a last call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.engine.backends import backend_named
from genesis.passes.pipeline import run_passes

ROWS, SIZE = 16, 8


def updates(program: Any, *arrays: np.ndarray) -> tuple[Any, list[Any]]:
    """(what the passes make of it, the operands afterwards) of a program that writes to its first operand."""
    tensors = [genesis.tensor(a) for a in arrays]
    genesis.eval(*tensors)
    engine.reset()
    plans: list[Any] = []
    with engine.observe(plans.append):
        genesis.eval(program(*tensors), tensors[0])
    passed = run_passes(plans[-1].graph, backend_named("cpu"))
    return passed, tensors


def matmul_behind(write: Any) -> Any:
    def program(kept: Any, x: Any, at: Any) -> Any:
        write(kept, x, at)
        return kept @ kept.t()
    return program


def put(kept: Any, x: Any, at: Any) -> None:
    kept.index_copy_(0, at, x)


def add(kept: Any, x: Any, at: Any) -> None:
    kept.index_add_(0, at, x)


def assign(kept: Any, x: Any, at: Any) -> None:
    kept[3:4] = x


@pytest.mark.parametrize("write", [put, add, assign])
def test_the_memory_is_written_where_it_is_small(write: Any) -> None:
    """No group copies the memory as a whole at the end; the values are numpy's."""
    rng = np.random.default_rng(0)
    kept, x = rng.standard_normal((ROWS, SIZE)), rng.standard_normal((1, SIZE))
    passed, tensors = updates(matmul_behind(write), kept, x, np.array([3]))
    assert passed.memory is not None and not passed.memory.after
    kept[3] = kept[3] + x[0] if write is add else x[0]
    np.testing.assert_allclose(tensors[0].numpy(), kept)


@pytest.mark.parametrize("rows", [1, 4, 5, ROWS])
def test_large_writes_are_made_once(rows: int) -> None:
    rng = np.random.default_rng(0)
    kept, x = rng.standard_normal((ROWS, SIZE)), rng.standard_normal((rows, SIZE))
    passed, tensors = updates(matmul_behind(put), kept, x, np.arange(rows))
    made = sum(node.op.name == "index_copy" for group in passed.schedule.groups for node in group.nodes)
    assert made == (2 if rows * 4 <= ROWS else 1)
    kept[:rows] = x
    np.testing.assert_allclose(tensors[0].numpy(), kept)


def test_a_write_that_nothing_reads_is_made_once() -> None:
    passed, tensors = updates(lambda kept, x, at: (put(kept, x, at), x @ x.t())[1], np.zeros((ROWS, SIZE)),
                              np.ones((1, SIZE)), np.array([5]))
    assert sum(node.op.name == "index_copy" for group in passed.schedule.groups for node in group.nodes) == 1
    assert tensors[0].sum().item() == SIZE


@pytest.mark.parametrize("at", [-1, ROWS])
def test_one_row_that_is_outside_is_refused(at: int) -> None:
    kept, x = genesis.zeros(ROWS, SIZE), genesis.ones(1, SIZE)
    with pytest.raises((IndexError, RuntimeError)):
        kept.index_copy_(0, genesis.tensor([at]), x)
        genesis.eval(kept @ kept.t())
    assert genesis.zeros(1).item() == 0
