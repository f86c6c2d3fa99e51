"""An index outside a dimension: the GPU goes on with the nearest row, the next call that waits for it raises."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.nn import functional as F
from genesis.runtime.cuda import device_checks

from .compare import array, numbers

BAD = 7
TABLE = numbers(5, 3)


def column(index: Any) -> Any:
    return index.reshape(-1, 1)


PROGRAMS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "a key": ("indexing", lambda x, i: x[i]),
    "two keys": ("indexing", lambda x, i: x[genesis.zeros_like(i), i]),
    "a key to write to": ("indexing", lambda x, i: written(x, i)),
    "index_select": ("take", lambda x, i: x.index_select(0, i)),
    "gather": ("gather", lambda x, i: x.gather(0, column(i))),
    "embedding": ("take", lambda x, i: F.embedding(i, x)),
    "index_add": ("index_add", lambda x, i: x.index_add(0, i, x[:3])),
    "scatter": ("scatter", lambda x, i: x.scatter(0, column(i), x[:3, :1])),
    "scatter_add": ("scatter_add", lambda x, i: x.scatter_add(0, column(i), x[:3, :1])),
    "cross_entropy": ("cross_entropy", lambda x, i: F.cross_entropy(x.t()[:3], i)),
}


def written(x: Any, i: Any) -> Any:
    y = x.clone()
    y[i] = 1.0
    return y


def operands(bad: int = BAD) -> tuple[Any, Any]:
    return (genesis.tensor(TABLE, device="cuda"), genesis.tensor(np.array([1, bad, 2]), device="cuda"))


def message_of(action: Callable[[], Any]) -> str:
    with pytest.raises(IndexError) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_op_that_takes_an_index(cuda, name):
    op, program = PROGRAMS[name]
    x, i = operands()
    message = message_of(lambda: array(program(x, i)))
    assert re.match(rf"{op}: index {BAD} is out of bounds for dimension [01] with size [35]\n", message)
    assert re.search(r"at .*test_index_errors\.py:\d+: ", message)
    np.testing.assert_array_equal(array(x), TABLE)  # raised once, and the process goes on
    right = operands(bad=0)
    array(program(*right))
    genesis.cuda.synchronize()


@pytest.mark.parametrize("wait", [
    lambda y: y.tolist(), lambda y: y.sum().item(), lambda y: y.cpu().numpy(), lambda y: genesis.cuda.synchronize(),
    lambda y: genesis.cuda.current_stream().synchronize()])
def test_every_wait_raises(cuda, wait):
    x, i = operands()
    y = x[i]
    assert f"index {BAD}" in message_of(lambda: wait(y))


def test_the_gpu_goes_on_with_the_nearest_row(cuda):
    x, i = operands()
    y, z = F.embedding(i, x), x * 2
    genesis.eval(y, z)
    message_of(genesis.cuda.synchronize)
    np.testing.assert_array_equal(array(y), TABLE[[1, 4, 2]])
    np.testing.assert_array_equal(array(z), TABLE * 2)
    low = F.embedding(genesis.tensor(np.array([-1, 3, -9]), device="cuda"), x)
    genesis.eval(low)
    assert "size 5" in message_of(genesis.cuda.synchronize)
    np.testing.assert_array_equal(array(low), TABLE[[0, 3, 0]])


def test_negative_indices_of_keys_count_from_the_end(cuda):
    x, _ = operands()
    i = genesis.tensor(np.array([-1, -5, 4]), device="cuda")
    np.testing.assert_array_equal(array(x[i]), TABLE[[-1, -5, 4]])
    assert "index -6 is out of bounds for dimension 0 with size 5" in message_of(
        lambda: array(x[genesis.tensor(np.array([-6]), device="cuda")]))


def test_each_key_is_checked_in_its_own_dimension(cuda):
    """(0, 4) would be inside if the two dimensions were one."""
    x, _ = operands()
    rows, columns = (genesis.tensor(np.array(v), device="cuda") for v in ([0], [4]))
    assert "index 4 is out of bounds for dimension 1 with size 3" in message_of(lambda: array(x[rows, columns]))


def test_the_first_failure_is_kept(cuda):
    x, i = operands()
    genesis.eval(x[i])
    genesis.eval(x.index_add(0, i, x[:3]))
    assert "indexing: index 7" in message_of(genesis.cuda.synchronize)
    genesis.cuda.synchronize()


def test_equal_programs_at_two_lines_name_their_own(cuda):
    x, i = operands()
    messages = [message_of(lambda: array(F.embedding(i, x))),
                message_of(lambda: array(F.embedding(i, x)))]
    lines = {message.split("test_index_errors.py:")[1].split(":")[0] for message in messages}
    assert len(lines) == 2


def test_ignored_targets_pass(cuda):
    x, _ = operands()
    target = genesis.tensor(np.array([0, -100, 2, 1, -100]), device="cuda")
    assert np.isfinite(F.cross_entropy(x, target).item())
    assert "index -99" in message_of(lambda: F.cross_entropy(x, target + 1).item())


def test_a_training_step_reports_and_the_next_one_works(cuda):
    genesis.manual_seed(0)
    table = genesis.nn.Embedding(5, 4).to("cuda")
    optimizer = genesis.optim.SGD(table.parameters(), lr=0.1)

    @genesis.compile
    def step(ids: Any) -> Any:
        loss = table(ids).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    good, bad = (genesis.tensor(np.array([0, v]), device="cuda") for v in (4, 5))
    for _ in range(3):
        step(good)
    genesis.cuda.synchronize()
    loss = step(bad)
    assert "index 5 is out of bounds for dimension 0 with size 5" in message_of(loss.item)
    assert np.isfinite(step(good).item())


def test_sizes_of_zero(cuda):
    x = genesis.zeros(0, 3, device="cuda")
    none = genesis.zeros(0, dtype=genesis.int64, device="cuda")
    assert array(x[none]).shape == (0, 3)


NO_ROWS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "index_add": lambda T, x, i: x[:, 0].index_add(0, i, T.ones_like(i).float()),
    "index_copy": lambda T, x, i: x.index_copy(0, i, T.ones_like(i).float()[:, None].expand(3, 4)),
    "scatter_add": lambda T, x, i: x[:, 0].scatter_add(0, i, T.ones_like(i).float()),
    "scatter_add of columns": lambda T, x, i: x.t().contiguous().scatter_add(1, i.expand(4, 3), T.ones_like(i.expand(
        4, 3)).float()),
    "scatter": lambda T, x, i: x.scatter(0, column(i), 1.0),
    "scatter_reduce": lambda T, x, i: x.scatter_reduce(0, column(i), T.ones_like(column(i)).float(), "amax"),
    "gather": lambda T, x, i: x.gather(0, column(i)),
    "index_select": lambda T, x, i: x.index_select(0, i),
    "index_select of no columns": lambda T, x, i: x[:, :0].index_select(0, i),
    "embedding": lambda T, x, i: T.nn.functional.embedding(i, x),
    "a key": lambda T, x, i: x[i],
    "two keys": lambda T, x, i: x[i, i],
    "a key to write to": lambda T, x, i: x.clone().__setitem__(i, 1.0),
    "index_put": lambda T, x, i: x.index_put((i,), T.ones_like(i).float()[:, None].expand(3, 4), accumulate=True),
    "take": lambda T, x, i: x.take(i),
}
"""Programs that take rows of none, of 4 elements each, by an index of three."""


@pytest.mark.parametrize("program", NO_ROWS.values(), ids=NO_ROWS)
def test_any_index_into_no_rows_is_an_error_at_its_line(cuda, program):
    """By their sizes, on every device: a kernel would have no row to go on with, and where the result has no elements
    there is none that could tell."""
    with pytest.raises((IndexError, RuntimeError)):
        program(torch, torch.zeros(0, 4), torch.zeros(3, dtype=torch.int64))
    for device in ("cpu", "cuda"):
        x, i = genesis.zeros(0, 4, device=device), genesis.zeros(3, dtype=genesis.int64, device=device)
        genesis.eval(x, i)
        message = message_of(lambda x=x, i=i: program(genesis, x, i))
        assert re.search(r"^\w+: index is out of bounds for dimension [01] with size 0\n", message)
        assert re.search(r"at .*test_index_errors\.py:\d+: ", message)
    genesis.cuda.synchronize()


@pytest.mark.parametrize("program", [
    lambda T, x, i: x.index_add(0, i, T.zeros(3, 4, device=i.device)),
    lambda T, x, i: x[:, :0].index_copy(0, i, T.zeros(3, 0, device=i.device)),
    lambda T, x, i: x[:, :0].scatter_add(0, column(i)[:, :0], T.zeros(3, 0, device=i.device)),
    lambda T, x, i: x[:, :0].gather(0, column(i)[:, :0]), lambda T, x, i: x[i[:0]], lambda T, x, i: x.take(i[:0])],
    ids=["rows", "rows of nothing", "no columns", "gather of no columns", "a key of none", "take of none"])
def test_no_rows_where_torch_looks_at_no_index(cuda, program):
    want = program(torch, torch.zeros(0, 4), torch.zeros(3, dtype=torch.int64)).shape
    for device in ("cpu", "cuda"):
        found = program(genesis, genesis.zeros(0, 4, device=device), genesis.zeros(3, dtype=genesis.int64,
                                                                                  device=device))
        assert array(found).shape == tuple(want)
    genesis.cuda.synchronize()


def test_large_indices_are_told_as_far_as_they_fit(host_cuda):
    check = device_checks.Check("take", 5, 0, "a.py:1 f")
    for index in (7, -3, 0, 2**42 - 1, -2**42):
        word = device_checks.failure_word(check) + index
        ctypes.c_int64.from_address(device_checks.word_of(0)).value = word
        assert f"take: index {index} is out of bounds" in message_of(lambda: device_checks.raise_failed(0))
    device_checks.raise_failed(0)
